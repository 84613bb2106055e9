"""The picture view in a browser: what it prints is what PyTorch computes, to the last digit."""

import io
import re
import time

import pytest
import torch
from page_files import drop_file
from PIL import Image
from playwright.sync_api import expect
from printed_values import agrees

from clearhead.files.pictures import decode_picture, fit_picture
from clearhead.inspection import measure_covering, picture_map, record
from clearhead.inspection.picture_maps import build_untrained, cover_patches

NUMBER = 3
SECONDS = 60
NOISE = 1e-5  # of the difference of two logits of about 10 in float32
BARS = ".class-bars .bar-number"


@pytest.fixture(scope="module")
def run(lecture):
    return lecture.open("digits").run


@pytest.fixture(scope="module")
def x(run):
    return run.predictor.normalise(run.task.validation.images[NUMBER : NUMBER + 1])


def predict(run, x):
    with torch.no_grad():
        return run.model(x)[0]


def open_picture(page, **state):
    page.goto_view("picture", model="digits", **{"number": NUMBER, **state})
    page.wait_for_selector(".map-choices .heat-choice")


def wait_for_bars(page, probs, before=None):
    """Until the bars show these probabilities, and those before them."""
    wanted = [probs] if before is None else [before, probs]

    def is_shown():
        rows = [row.split(" → ") for row in page.locator(BARS).all_inner_texts()]
        columns = list(zip(*rows, strict=False))
        return (
            len(rows) == len(probs)
            and len(columns) == len(wanted)
            and all(
                agrees(text, p)
                for column, values in zip(columns, wanted, strict=True)
                for text, p in zip(column, values, strict=True)
            )
        )

    deadline = time.monotonic() + SECONDS
    while not is_shown():
        assert time.monotonic() < deadline, page.locator(BARS).all_inner_texts()
        page.wait_for_timeout(20)


def click_patch(page, label, patch, columns=4):
    """Click into the middle of a patch."""
    box = page.get_by_role("application", name=label).bounding_box()
    side = box["width"] / columns
    position = {"x": (patch % columns + 0.5) * side, "y": (patch // columns + 0.5) * side}
    page.get_by_role("application", name=label).click(position=position)


def open_explanation(page, title):
    section = page.get_by_role("region", name=title)
    section.get_by_role("button", name="explain").click()
    return section.locator(".explanation")


def test_a_picture_has_the_probabilities_of_the_model(page, run, x):
    open_picture(page)
    logits = predict(run, x)
    wait_for_bars(page, logits.softmax(-1))
    label = run.task.class_names[int(run.task.validation.labels[NUMBER])]
    expect(page.locator(".picture-verdict")).to_contain_text(f"It says {label}, with probability")
    rows = open_explanation(page, "The answer").locator("tbody tr")
    for i, row in enumerate(rows.all()):
        name, logit, _, p = row.locator("td").all_inner_texts()
        assert name == run.task.class_names[i]
        assert agrees(logit, logits[i])
        assert agrees(p, logits.softmax(-1)[i])


def test_the_page_says_that_the_pictures_are_being_read(page):
    page.route("**/api/ask/list_pictures*", lambda route: None)  # never answered
    page.goto_view("picture")
    expect(page.get_by_text("Reading the pictures …")).to_be_visible()


def test_another_picture_of_the_strip_is_opened_by_a_click(page, run):
    open_picture(page)
    page.get_by_role("button", name="later pictures").click()
    page.locator(".picture-choice[data-number='30']").click()
    page.wait_for_function("() => location.hash.includes('number=30')")
    other = run.predictor.normalise(run.task.validation.images[30:31])
    wait_for_bars(page, predict(run, other).softmax(-1))


def test_only_mistakes_are_those_of_the_task(page, run):
    open_picture(page)
    page.get_by_label("only mistakes").check()
    mistakes = run.task.find_mistakes(run.model, 24)
    expect(page.locator(f".picture-choice[data-number='{mistakes[0]}']")).to_be_visible()
    shown = page.locator(".picture-choice").evaluate_all(
        "(all) => all.map((x) => x.dataset.number)"
    )
    assert shown == [str(number) for number in mistakes]
    page.wait_for_function(f"() => location.hash.includes('number={mistakes[0]}&')")
    expect(page.locator(".picture-verdict")).to_contain_text("The right class is")


def test_covering_patches_moves_the_probabilities(page, run, x):
    open_picture(page)
    before = predict(run, x).softmax(-1)
    wait_for_bars(page, before)
    label = "the picture: choose patches to cover"
    picture = page.get_by_role("application", name=label)
    box = picture.bounding_box()
    side = box["width"] / 4
    page.mouse.move(box["x"] + 1.5 * side, box["y"] + 1.5 * side)  # patch 5, then over 6 to 7
    page.mouse.down()
    page.mouse.move(box["x"] + 3.5 * side, box["y"] + 1.5 * side)  # too fast to be seen at 6
    page.mouse.up()
    covered = torch.zeros(1, 16, dtype=torch.bool)
    covered[0, [5, 6, 7]] = True
    after = predict(run, cover_patches(x, covered, (4, 4))).softmax(-1)
    expect(page.locator(".patch.covered")).to_have_count(3)
    page.wait_for_function("() => location.hash.includes('covered=%5B5%2C6%2C7%5D')")
    wait_for_bars(page, after, before)
    page.keyboard.press("Enter")  # the patch at the cursor, 7, is uncovered
    expect(page.locator(".patch.covered")).to_have_count(2)
    page.get_by_role("button", name="swap").click()
    expect(page.locator(".patch.covered")).to_have_count(14)
    page.get_by_role("button", name="uncover all").click()
    expect(page.locator(BARS).first).not_to_contain_text("→")
    wait_for_bars(page, before)


def test_heat_maps_have_the_numbers_of_inspection(page, run, x):
    open_picture(page, key=9)
    large = page.get_by_role("application", name="heat map: choose a patch")
    maps = {name: picture_map(run.model, x, name)[0] for name in ("rollout", "gradient")}
    maps["untrained"] = picture_map(build_untrained(run.model), x)[0]
    maps["covering"] = measure_covering(run.model, x)[0]
    for name, values in maps.items():
        page.locator(".map-choices").get_by_role("button", name=name).click()
        expect(large.locator(".patch-number")).to_have_count(16)
        expect(page.locator(".map-cell")).to_contain_text("The patch at row 2, column 1")
        shown = large.locator(".patch-number").all_text_contents()
        pairs = zip(shown, values.flatten(), strict=True)
        assert all(agrees(text, value, NOISE) for text, value in pairs)
        cell = page.locator(".map-cell").inner_text().split(": ")[1]
        assert agrees(cell, values.flatten()[9], NOISE)


def test_the_effect_of_covering_is_explained_by_both_logits(page, run, x):
    open_picture(page, key=6, map="covering")
    expect(page.locator(".map-cell")).to_contain_text("row 1, column 2")
    words = open_explanation(page, "Which patches it uses")
    expect(words).to_contain_text("Its probability goes from")
    covered = torch.zeros(1, 16, dtype=torch.bool)
    covered[0, 6] = True
    before, after = predict(run, x), predict(run, cover_patches(x, covered, (4, 4)))
    best = int(before.argmax())
    equation = re.fullmatch(r"(\S+) − (\S+) = (\S+)", words.locator(".mono").inner_text())
    first, second, third = (text.strip("()") for text in equation.groups())
    assert agrees(first, before[best])
    assert agrees(second, after[best])
    assert agrees(third, before[best] - after[best], NOISE)


def test_every_head_is_shown_and_any_patch_can_look(page, run, x):
    open_picture(page)
    with torch.no_grad(), record(run.model) as trace:
        run.model(x)
    weights = torch.cat(trace.weights())  # (L, H, T, T)
    L, H = weights.shape[:2]
    expect(page.locator(".picture-heads .heat-choice")).to_have_count(L * H)
    page.get_by_role("button", name="layer 1, head 2").click()
    where = page.get_by_role("application", name="where it looks: choose a patch")

    def compare(row):
        shown = where.locator(".patch-number").all_text_contents()
        assert all(agrees(t, w) for t, w in zip(shown, weights[1, 2, row, 1:], strict=True))

    compare(0)
    click_patch(page, "who looks: choose a patch", 10)
    expect(page.get_by_role("region", name="Every head")).to_contain_text(
        "the weights of the patch at row 2, column 2"
    )
    compare(1 + 10)
    click_patch(page, "where it looks: choose a patch", 4)
    page.wait_for_function("() => location.hash.includes('cell=4')")
    words = open_explanation(page, "Every head")
    expect(words.locator(".explained-weight")).to_be_visible()
    assert agrees(words.locator(".explained-weight").inner_text(), weights[1, 2, 11, 5])
    page.get_by_role("button", name="the class token looks").click()
    expect(page.get_by_role("region", name="Every head")).to_contain_text(
        "weights of the class token"
    )
    compare(0)


def test_a_file_is_read_and_what_is_no_picture_is_refused(page, run):
    open_picture(page)
    data = io.BytesIO()
    pixels = torch.randint(256, (40, 60), dtype=torch.uint8, generator=torch.manual_seed(0))
    Image.fromarray(pixels.numpy()).save(data, "PNG")
    drop = page.get_by_label("a picture from this computer")
    drop.set_input_files({"name": "noise.png", "mimeType": "image/png", "buffer": data.getvalue()})
    page.wait_for_function("() => !location.hash.includes('number=')")
    image = fit_picture(decode_picture(data.getvalue(), "noise"), 1, (28, 28))
    wait_for_bars(page, predict(run, run.predictor.normalise(image[None])).softmax(-1))
    expect(page.locator(".picture-verdict")).not_to_contain_text("right")
    drop.set_input_files({"name": "bad.png", "mimeType": "image/png", "buffer": b"no picture"})
    expect(page.get_by_role("alert")).to_contain_text("bad.png is not a picture")


def test_a_dropped_file_is_read(page, run):
    open_picture(page)
    data = io.BytesIO()
    pixels = torch.randint(256, (30, 50), dtype=torch.uint8, generator=torch.manual_seed(1))
    Image.fromarray(pixels.numpy()).save(data, "PNG")
    drop_file(page, ".drop-zone", "noise.png", data.getvalue())
    image = fit_picture(decode_picture(data.getvalue(), "noise"), 1, (28, 28))
    wait_for_bars(page, predict(run, run.predictor.normalise(image[None])).softmax(-1))


def test_the_view_in_the_address_is_opened_again_on_a_telephone(page):
    page.set_viewport_size({"width": 390, "height": 800})
    open_picture(page, covered="[1, 2]", map="rollout", key=5, layer=1, head=3, patch=7, cell=8)
    expect(page.locator(".patch.covered")).to_have_count(2)
    expect(page.locator(".map-choices [aria-pressed=true]")).to_have_text("rollout")
    chosen = page.locator(".picture-heads [aria-pressed=true]")
    expect(chosen).to_have_attribute("title", "layer 1, head 3")
    heads = page.get_by_role("region", name="Every head")
    expect(heads).to_contain_text("Now the patch at row 1, column 3")
    expect(page.locator(BARS).first).to_contain_text("→")


def test_a_number_that_no_picture_has_is_a_sentence_above_the_first_pictures(page):
    page.goto_view("picture", model="digits", number=999_999)
    page.wait_for_selector("text=there is no validation picture 999999")
    page.wait_for_selector("text=1 – 24 of 2,000")
    page.expected.append("status of 400")


def test_the_maps_say_that_they_show_the_whole_picture(page):
    open_picture(page)
    notes = page.get_by_text("This panel still shows the whole picture")
    expect(notes.first).to_be_hidden()
    open_picture(page, covered="[5,6]")
    for name in ("Which patches it uses", "Every head"):
        expect(page.get_by_role("region", name=name).locator(notes)).to_be_visible()
    page.get_by_role("button", name="uncover all").click()
    expect(notes.first).to_be_hidden()
