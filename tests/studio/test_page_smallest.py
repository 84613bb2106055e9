"""The smallest transformer in a browser: every cell is NumPy's, and a changed cell changes all."""

import json
import shutil
from pathlib import Path
from urllib.parse import parse_qs, urlparse

import numpy as np
import pytest
from page_numbers import agrees, printed, wait_for
from playwright.sync_api import expect
from small_runs import BRIEFLY

from clearhead.models.smallest import NumpyTransformer, designs
from clearhead.runs.folder import RunFolder
from clearhead.training import find_recipe, train, with_changes
from clearhead.training.tasks.sequences import SequencePredictor

expect.set_options(timeout=60_000)
GOLDEN = Path(__file__).parents[1] / "golden"
NOTHING = '{"Km": [[0]], "Qm": [[0]], "Vm": [[0]]}'
COMPUTED = {"K": "K", "Q": "Q", "V": "V", "Attn": "attention", "Out": "output"}


def entry(x):
    """As a cell prints it: whole numbers as they are, others with two digits."""
    if float(x).is_integer() or abs(x) >= 100:
        return printed(x, 0)
    return "0.00" if abs(x) < 0.005 else printed(x, 2)


def table(matrix):
    return [[entry(x) for x in row] for row in matrix]


def find_cell(page, name, row, column):
    return page.locator(f"[data-matrix={name}] [data-cell='{row},{column}']")


def read_grid(page, name):
    """The numbers of a matrix as printed, row by row."""
    cells = page.locator(f"[data-matrix={name}] [data-cell]")
    found = cells.evaluate_all(
        "(all) => all.map((g) => [...g.dataset.cell.split(',').map(Number),"
        " g.querySelector('text').textContent])"
    )
    rows = 1 + max(row for row, _, _ in found)
    return [[text for row, _, text in found if row == i] for i in range(rows)]


def run(model, rule, text, max_len=4):
    return model.steps(SequencePredictor(rule, max_len).read(text).inputs[0].numpy())


def read_state(page):
    values = parse_qs(urlparse(page.url.replace("#", "?", 1)).query)
    return {name: value[0] for name, value in values.items()}


def wait_for_matrices(page):
    """Until the address holds the parameters that the page shows; then the model of them."""
    for _ in range(1200):  # a minute; the address follows the page with some delay
        model = NumpyTransformer(**json.loads(read_state(page).get("matrices", NOTHING)))
        if all(read_grid(page, name) == table(getattr(model, name)) for name in ("Km", "Qm", "Vm")):
            return model
        page.wait_for_timeout(50)
    raise AssertionError("the address does not hold the matrices of the page")


def check_page(page, model, steps):
    """All nine matrices become those of the model on this input."""
    parameters = {name: getattr(model, name) for name in ("Km", "Qm", "Vm", "pos")}
    computed = {name: getattr(steps, field) for name, field in COMPUTED.items()}
    for name, matrix in (parameters | computed).items():
        if matrix is not None:
            texts = [text for row in table(matrix) for text in row]
            wait_for(page, f"[data-matrix={name}] .grid-number", texts)


def open_view(page, **state):
    page.goto_view("smallest", **state)
    page.wait_for_selector("[data-matrix=Out] [data-cell]")


@pytest.mark.parametrize(
    ("rule", "text", "model"),
    [
        ("identity", "CABB", designs.identity(2.5)),
        ("first", "CAB", designs.first(4, 2.5)),
        ("unique", "ABBA", designs.unique(4, 2.5)),
    ],
)
def test_every_cell_is_that_of_numpy(page, rule, text, model):
    open_view(page, rule=rule, text=text, sharpness=2.5)
    check_page(page, model, run(model, rule, text))


def test_a_dragged_cell_changes_the_output_and_the_count_at_once(page):
    open_view(page, rule="first", text="BAC")
    expect(page.locator(".count")).to_contain_text("120 of 120")
    box = find_cell(page, "Vm", 1, 1).bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x, y + 30, steps=6)
    page.mouse.move(x, y + 70, steps=8)
    page.mouse.up()
    expect(page.locator(".count")).to_contain_text("80 of 120")
    model = wait_for_matrices(page)
    assert model.Vm[1, 1] == pytest.approx(0.3)
    check_page(page, model, run(model, "first", "BAC"))
    assert page.locator(".word.wrong").count() == 3
    page.locator(".mistakes .chip").first.click()
    wait_for(page, ".word-in", ["B"])


def test_keys_and_typed_numbers_change_a_cell(page):
    open_view(page, rule="identity", text="AB")
    find_cell(page, "Vm", 0, 1).focus()
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Shift+ArrowUp")
    expect(find_cell(page, "Vm", 0, 1).locator("text")).to_have_text("0.11")
    page.keyboard.press("ArrowRight")
    page.keyboard.type("-2.25")
    page.keyboard.press("Enter")
    expect(find_cell(page, "Vm", 0, 2).locator("text")).to_have_text("−2.25")
    expect(find_cell(page, "Vm", 0, 2)).to_be_focused()
    model = designs.identity()
    Vm = model.Vm.copy()
    Vm[0, 1:] = 0.11, -2.25
    steps = run(NumpyTransformer(model.Km, model.Qm, Vm), "identity", "AB")
    expect(find_cell(page, "Out", 0, 2).locator("text")).to_have_text("−2.25")
    assert read_grid(page, "Out") == table(steps.output)
    page.get_by_role("button", name="reset the matrices").click()
    expect(find_cell(page, "Out", 0, 2).locator("text")).to_have_text("0")


def test_letters_are_clicked_and_each_token_is_right_or_wrong(page):
    open_view(page, rule="unique", text="AB")
    page.get_by_role("button", name="+ B").click()
    wait_for(page, ".word-in", ["CLS", "A", "B", "B"])
    wait_for(page, ".word-out", ["+1", "+1", "−1", "−1"])
    page.get_by_role("button", name="letter 3: B").click()
    wait_for(page, ".word-in", ["CLS", "A", "B", "C"])
    wait_for(page, ".word-out", ["+1", "+1", "+1", "+1"])
    page.get_by_role("button", name="remove").click()
    wait_for(page, ".word-in", ["CLS", "A", "B"])
    page.get_by_role("button", name="first", exact=True).click()
    wait_for(page, ".word-in", ["A", "B"])
    wait_for(page, ".word-mark", ["✓ right", "✓ right"])


def test_a_cell_of_the_attention_is_explained_with_its_own_numbers(page):
    open_view(page, rule="unique", text="ABBA", sharpness=1.5)
    find_cell(page, "Attn", 2, 3).click()
    steps = run(designs.unique(4, 1.5), "unique", "ABBA")
    dot = steps.Q[2] @ steps.K[3]
    expect(page.locator(".total").last).to_have_text(
        f"Attn[2, 3] = {printed(steps.attention[2, 3])}"
    )
    totals = page.locator(".total").all_inner_texts()
    assert totals[:2] == [f"Q · K = {printed(dot)}", f"score = {printed(steps.scores[2, 3])}"]
    terms, shares = (
        [row.locator("td").all_inner_texts() for row in box.locator("tbody tr").all()]
        for box in page.locator(".table-box").all()
    )
    assert [row[3] for row in terms] == [printed(x) for x in steps.Q[2] * steps.K[3]]
    powers = np.exp(steps.scores[2] - steps.scores[2].max())
    assert [row[1:] for row in shares] == [
        [printed(steps.scores[2, s]), printed(powers[s]), printed(steps.attention[2, s])]
        for s in range(5)
    ]
    find_cell(page, "Out", 2, 0).click()
    expect(page.locator(".total")).to_have_text(f"Out[2, 0] = {printed(steps.output[2, 0])}")


def test_training_moves_the_matrices_and_lowers_the_loss(page):
    open_view(page, rule="unique", start="random", text="ABB")
    train = page.get_by_role("button", name="train 100 steps")
    before = read_grid(page, "Km")
    loss = page.locator(".smallest-first .chart g title")
    losses = []
    for step in (100, 200):
        train.click()
        expect(loss).to_contain_text(f"at {step}")
        expect(train).to_be_enabled()
        losses.append(float(loss.text_content().split()[1].replace("−", "-")))
    assert losses[0] > 10 * losses[1]
    expect(page.locator(".count")).to_contain_text("120 of 120")
    model = wait_for_matrices(page)
    assert table(model.Km) != before
    check_page(page, model, run(model, "unique", "ABB"))


def test_of_quick_changes_the_last_one_counts(page):
    open_view(page, rule="first", text="CAB")
    for name in ("unique", "random", "identity", "learned", "unique", "by hand"):
        page.get_by_role("button", name=name, exact=True).click()
    model = designs.unique(4)
    check_page(page, model, run(model, "unique", "CAB"))
    expect(page.locator(".count")).to_contain_text("120 of 120")
    assert page.locator(".error").count() == 0


def test_an_edit_ends_a_training(page):
    open_view(page, rule="first", start="random", text="AB")
    page.get_by_role("button", name="train 100 steps").click()
    find_cell(page, "Vm", 0, 0).focus()
    page.keyboard.type("3")
    page.keyboard.press("Enter")
    expect(find_cell(page, "Vm", 0, 0).locator("text")).to_have_text("3")
    expect(page.get_by_role("button", name="train 100 steps")).to_be_enabled()


def test_learned_weights_make_no_mistake_and_the_address_shows_them_again(page):
    open_view(page, rule="identity", start="learned", text="CAB", cell="K.1.2")
    expect(page.locator(".count")).to_contain_text("120 of 120")
    shown = read_grid(page, "Km")
    expect(page.locator(".total")).to_contain_text("K[1, 2] = ")
    assert agrees(
        shown[0][2], float(page.locator(".total").inner_text().split()[-1].replace("−", "-"))
    )
    find_cell(page, "Km", 0, 0).focus()
    page.keyboard.press("ArrowUp")
    changed = table(wait_for_matrices(page).Km)
    assert changed != shown
    state = read_state(page)
    open_view(page, **{name: value for name, value in state.items() if name != "view"})
    wait_for(page, "[data-matrix=Km] .grid-number", [x for row in changed for x in row])


def test_until_other_weights_are_there_nothing_can_be_trained(page):
    held = []

    def hold(route):
        if route.request.post_data_json["start"] == "by hand":
            route.continue_()
        else:
            held.append(route)

    page.route("**/api/ask/run_smallest", hold)
    open_view(page, rule="unique", letters=6, text="ABB")
    by_hand = read_grid(page, "Km")
    train = page.get_by_role("button", name="train 100 steps")
    expect(train).to_be_enabled()
    page.get_by_role("button", name="learned", exact=True).click()
    expect(page.get_by_text("Learning the weights …")).to_be_visible()
    expect(train).to_be_disabled()
    page.get_by_role("button", name="random", exact=True).click()
    expect(page.get_by_text("Computing …")).to_be_visible()
    expect(train).to_be_disabled()
    find_cell(page, "Vm", 0, 0).focus()  # an edit would make the matrices of "by hand" its own
    page.keyboard.press("ArrowUp")
    held[-1].continue_()
    expect(train).to_be_enabled()
    expect(page.get_by_text("Computing …")).to_be_hidden()
    assert read_grid(page, "Km") != by_hand
    assert "matrices" not in read_state(page)


def test_a_reset_waits_for_the_weights_before_they_are_trained(page):
    open_view(page, rule="first", text="AB")
    find_cell(page, "Vm", 0, 0).focus()
    page.keyboard.press("ArrowUp")
    wait_for_matrices(page)
    held = []
    page.route("**/api/ask/run_smallest", lambda route: held.append(route))
    train = page.get_by_role("button", name="train 100 steps")
    expect(train).to_be_enabled()
    page.get_by_role("button", name="reset the matrices").click()
    expect(train).to_be_disabled()
    page.wait_for_timeout(100)
    held[-1].continue_()
    expect(train).to_be_enabled()
    assert read_grid(page, "Vm") == table(designs.first(4).Vm)


def test_a_loss_of_0_is_said_in_words(page):
    open_view(page, rule="unique", text="AB")
    expect(page.locator(".count")).to_contain_text("Largest error: 0.")
    page.get_by_role("button", name="train 100 steps").click()
    expect(page.get_by_text("The loss is 0: there is nothing to learn.")).to_be_visible()
    expect(page.get_by_role("button", name="train 100 steps")).to_be_enabled()


@pytest.mark.parametrize(
    "state",
    [
        {"matrices": "{}"},
        {"matrices": "[[1]]"},
        {"text": "XYZ"},
        {"text": "CABCABC", "rule": "constructor"},
        {"sharpness": -4},
        {"start": "random", "seed": 1.5},
        {"cell": "Attn.-1.x"},
    ],
)
def test_impossible_values_in_the_address_are_ignored(page, state):
    open_view(page, **state)
    assert page.get_by_role("alert").count() == 0
    assert "undefined" not in page.inner_text("[data-view='smallest']")


def test_matrices_that_do_not_fit_can_be_reset(page):
    page.goto_view("smallest", matrices='{"Km": [[1]], "Qm": [[1]], "Vm": [[1]]}')
    expect(page.get_by_role("alert")).to_contain_text("needs the sizes")
    page.get_by_role("button", name="reset the matrices").click()
    expect(page.locator(".count")).to_contain_text("120 of 120")
    page.expected.append("status of 400")


def test_weights_set_by_hand_can_be_chosen_after_a_run_of_other_lengths(page, studio):
    """A run may have 3 to 9 letters, the matrices set by hand have 4 to 6."""
    recipe = with_changes(find_recipe("identity"), ["data.max_len=7", *BRIEFLY])
    run = train(recipe, Path(studio.log.name).parent / "runs", threads=1).run
    try:
        open_view(page, run=run.name, letters=7, text="ABCABCA")
        expect(page.locator(".count")).to_contain_text("up to 7 letters")
        page.get_by_role("button", name="by hand").click()
        expect(page.locator(".count")).to_contain_text("up to 6 letters are right")
        page.get_by_role("button", name=run.name).click()
        expect(page.locator(".count")).to_contain_text("up to 7 letters")
        expect(page.locator(".word-in")).to_have_count(3)
    finally:
        shutil.rmtree(run)


def test_a_run_that_cannot_be_shown_is_named_with_the_reason(page, studio):
    run = RunFolder(Path(studio.log.name).parent / "runs" / "broken-0001")
    shutil.copytree(GOLDEN / "identity-0001", run.path)
    shutil.rmtree(run.checkpoints)
    try:
        for id, words in (
            ("broken-0001", "The run broken-0001 cannot be opened: "),
            ("digits", "The run digits is not a smallest transformer."),
            ("nosuch-0001", "The run nosuch-0001 is not open in this studio."),
        ):
            open_view(page, run=id)
            expect(page.get_by_role("status").filter(has_text="The run")).to_contain_text(words)
    finally:
        shutil.rmtree(run.path)


def test_explain_goes_to_the_numbers_of_the_cell(page):
    open_view(page)
    page.get_by_role("button", name="go to the equation").click()
    expect(page.get_by_role("region", name="Why this cell has its number")).to_be_focused()
