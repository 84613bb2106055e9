"""The text view in a browser: what it prints is what the model computes, to the last digit."""

import math
import re
import shutil
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest
from page_numbers import printed, printed_share, wait_for
from PIL import Image
from printed_values import agrees
from text_models import build

from clearhead.studio.look import look

GOLDEN = Path(__file__).parents[1] / "golden"
TEXT = "abccab|cca"
CHIPS = "[aria-label=tokens] .chip"
T = len(TEXT) + 1


@pytest.fixture
def answer(studio):
    return studio.ask("attend", {"model": "substring", "text": TEXT})


def open_text(page, **state):
    page.goto_view("text", **{"model": "substring", "text": TEXT, **state})
    page.wait_for_selector(".heads .head")


def read_table(page, step):
    """The cells of the table of a step, row by row."""
    rows = page.locator(f".step >> nth={step - 1}").locator("tbody tr")
    return [row.locator("td").all_inner_texts() for row in rows.all()]


def click_cell(page, row, column):
    """Click into the large matrix."""
    x, y = page.locator(".head-open canvas.matrix").evaluate(
        "(canvas, [row, column]) => { const m = canvas.matrix;"
        " return [m.left + (column + 0.5) * m.cell, m.top + (row + 0.5) * m.cell]; }",
        [row, column],
    )
    page.locator(".head-open canvas.matrix").click(position={"x": x, "y": y})


def test_typing_shows_tokens_heads_and_the_answer(page, studio):
    open_text(page)
    page.get_by_label("text", exact=True).fill("cab|ab")
    wait_for(page, CHIPS, ["[CLS]", "c", "a", "b", "|", "a", "b"])
    assert page.locator(".heads >> nth=0").locator(".head").count() == 12
    found = studio.ask("attend", {"model": "substring", "text": "cab|ab"})["answer"]
    shown = page.get_by_role("group", name="answers").locator(".bar-number").all_inner_texts()
    assert shown == [printed_share(p) for p in found["probs"]]
    assert page.get_by_text("At [CLS], the model answers yes").count() == 1


def test_the_large_matrix_holds_the_weights_of_the_open_head(page, answer):
    open_text(page, layer=1, head=2)
    shown = page.locator(".head-open canvas.matrix").evaluate("(c) => [...c.matrix.data]")
    assert np.array_equal(np.float32(shown).reshape(T, T), answer["layers"][1]["weights"][2])


def test_each_small_map_is_drawn_with_a_pixel_for_each_cell(page):
    open_text(page)
    maps = page.locator(".heads .head canvas")
    sizes = maps.evaluate_all("(all) => all.map((c) => [c.width, c.height])")
    assert sizes == [[T, T]] * 12
    shades = maps.evaluate_all(
        "(all) => all.map((c) => new Set(new Uint32Array(c.getContext('2d')"
        ".getImageData(0, 0, c.width, c.height).data.buffer)).size)"
    )
    assert min(shades) > 3


def test_a_click_on_a_cell_shows_its_very_numbers(page, answer):
    open_text(page, layer=1, head=2)
    row, column = 8, 4
    click_cell(page, row, column)
    page.wait_for_function("location.hash.includes('row=8') && location.hash.includes('column=4')")
    layer = answer["layers"][1]
    q, k, v = (np.float64(layer[name][2]) for name in ("q", "k", "v"))
    weights = np.float64(layer["weights"][2, row])
    # 1: the products, the largest first, and their sum
    products = q[row] * k[column]
    order = np.argsort(-np.abs(products), kind="stable")
    expected = [[str(d), *map(printed, (q[row, d], k[column, d], products[d])), ""] for d in order]
    assert read_table(page, 1) == expected
    steps = page.locator(".step")
    assert f"q · k = {printed(products.sum())}" in steps.nth(0).inner_text()
    # 2: the score
    scores = q[row] @ k.T / math.sqrt(q.shape[1])
    assert f"score = {printed(scores[column])}" in steps.nth(1).inner_text()
    # 3: the softmax of the row
    exps = np.exp(scores - scores.max())
    assert read_table(page, 3) == [
        [name, *map(printed, (scores[s], exps[s], weights[s])), ""]
        for s, name in enumerate(answer["names"])
    ]
    assert f"weight = {printed(weights[column])}" in steps.nth(2).inner_text()
    # 4: the values, and the output of the head
    mixture = weights @ v
    assert np.allclose(mixture, layer["output"][2, row], atol=1e-5)
    assert read_table(page, 4) == [
        [str(d), *map(printed, (v[column, d], weights[column] * v[column, d], mixture[d])), ""]
        for d in range(len(mixture))
    ]


def test_explain_shows_the_equation_with_the_numbers_of_the_cell(page, answer):
    open_text(page, layer=0, head=1, row=3, column=5)
    page.get_by_role("region", name="One head").get_by_role("button", name="explain").click()
    weight = printed(answer["layers"][0]["weights"][1, 3, 5])
    words = page.locator(".explanation:visible").inner_text()
    assert "softmax" in words
    assert f"= {weight}" in words


@pytest.mark.parametrize("model", ["substring", "shakespeare"])
def test_the_python_of_a_cell_computes_its_numbers(page, studio, model):
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    text = TEXT if model == "substring" else "ROMEO:"
    open_text(page, model=model, text=text, layer=1, head=2, row=4, column=3)
    panel = page.get_by_role("region", name="This cell, number by number")
    panel.get_by_role("button", name="copy as Python").click()
    page.wait_for_function("async () => (await navigator.clipboard.readText()).length > 100")
    python = {}
    exec(page.evaluate("navigator.clipboard.readText()"), python)
    layer = studio.ask("attend", {"model": model, "text": text})["layers"][1]
    np.testing.assert_allclose(python["head"], layer["weights"][2], atol=1e-6)
    texts = panel.locator(".sum-line b").all_inner_texts()
    shown = dict(text.split(" = ") for text in texts)
    assert agrees(shown["score"], python["score"])
    assert agrees(shown["weight"], python["weight"])
    contribution = [cells[2] for cells in read_table(page, 4)]
    assert all(map(agrees, contribution, python["contribution"]))


def test_a_bias_is_a_term_of_the_score_and_of_its_python(browser, tmp_path):
    model, tokenizer = build("toeplitz")
    path = look(model, "abcabd", tokenizer).save(tmp_path / "page.html")
    page = browser.new_page()
    page.add_init_script(
        "navigator.clipboard.writeText = async (text) => { window.copied = text; }"
    )
    page.goto(Path(path).as_uri())
    panel = page.get_by_role("region", name="This cell, number by number")
    panel.get_by_role("button", name="copy as Python").click()
    page.wait_for_function("window.copied !== undefined")
    python = {"model": model, "tokenizer": tokenizer}
    copied = page.evaluate("window.copied")
    exec(copied, python)
    bias = float(python["bias"])
    assert abs(bias) > 0.1
    score = (float(python["products"].sum()) + bias) / math.sqrt(3)
    assert float(python["score"]) == pytest.approx(score)
    texts = panel.locator(".sum-line b").all_inner_texts()
    shown = dict(text.split(" = ") for text in texts)
    assert agrees(shown["score"], score)
    assert agrees(shown["weight"], python["weight"])
    key = int(re.search(r"\* k\[(\d+)\]", copied)[1])
    assert agrees(read_table(page, 3)[key][1], score)  # in the softmax of the row
    row = panel.locator("tr", has_text="+ bias of this distance").locator("td")
    assert agrees(row.last.inner_text(), bias)
    page.get_by_role("region", name="One head").get_by_role("button", name="explain").click()
    words = page.locator(".explanation:visible").inner_text()
    assert f" + {printed(bias)}) / {printed(math.sqrt(3))} − " in words
    page.close()


def test_the_bars_of_a_row_are_its_weights(page, answer):
    open_text(page, layer=2, head=0, row=6)
    shown = page.get_by_role("group", name="weights of the row")
    expected = [printed(x) for x in answer["layers"][2]["weights"][0, 6]]
    assert shown.locator(".bar-number").all_inner_texts() == expected
    shown.locator("button").nth(3).click()
    page.wait_for_function("location.hash.includes('column=3')")


def test_hovering_a_token_leaves_only_its_lines(page, answer):
    open_text(page, layer=1, head=1)
    weights = answer["layers"][1]["weights"][1]
    lines = page.locator(".lines-line")
    assert lines.count() == int((weights >= 0.02).sum())
    page.locator(".lines-token").nth(4).hover()
    page.wait_for_function(f"document.querySelectorAll('.lines-line').length === {T}")
    found = lines.evaluate_all("(all) => all.map((l) => +l.getAttribute('stroke-opacity'))")
    assert found == pytest.approx(weights[4].tolist(), abs=6e-4)


def test_another_head_is_opened_by_a_click_and_by_arrow_keys(page):
    open_text(page)
    page.get_by_role("button", name="layer 1 head 2").click()
    assert "layer 1 · head 2" in page.get_by_role("region", name="One head").inner_text()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    assert "layer 2 · head 3" in page.get_by_role("region", name="One head").inner_text()
    assert "head=3" in page.url


def test_arrow_keys_move_the_chosen_cell(page):
    open_text(page, row=2, column=2)
    page.locator(".head-open canvas.matrix").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowLeft")
    assert "row=3" in page.url
    assert "column=1" in page.url


def test_the_answer_is_shown_at_the_token_that_is_chosen(page, studio):
    text = "ROMEO: what"
    page.goto_view("text", model="shakespeare", text=text)
    found = studio.ask("attend", {"model": "shakespeare", "text": text})["answer"]
    for position in (10, 3):  # the last token, and another one
        if position == 3:
            page.get_by_role("button", name="token 3: E").click()
        page.get_by_text(f"({position}), the next token").wait_for()
        shown = page.get_by_role("group", name="answers").locator(".bar-number").all_inner_texts()
        assert shown == [printed_share(p) for p in found["probs"][position]]


def test_an_unknown_character_is_answered_in_a_sentence(page):
    open_text(page)
    page.get_by_label("text", exact=True).fill("abz")
    alert = page.get_by_role("alert")
    alert.wait_for()
    assert "'z' at index 2" in alert.inner_text()
    assert page.locator(f".stale {CHIPS}").count() == T  # those of the text before it
    page.get_by_label("text", exact=True).fill("ab|a")
    wait_for(page, CHIPS, ["[CLS]", "a", "b", "|", "a"])
    page.locator(".stale").wait_for(state="detached")
    assert alert.count() == 0
    page.expected.append("status of 400")


def test_a_text_unlike_training_has_a_note(page):
    open_text(page, text="ab|b")
    page.get_by_text("Note: the haystack has 2 letters").wait_for()


def test_a_token_may_hold_anything_and_is_shown_as_text(page):
    page.goto_view("text", model="shakespeare", text="&amp;\n x")
    wait_for(page, CHIPS, ["&", "a", "m", "p", ";", "⏎", "·", "x"])


def test_a_saved_page_shows_all_of_one_answer_without_a_server(browser, lecture, tmp_path):
    from clearhead.studio.look import view_page

    path = view_page(lecture, "substring", TEXT).save(tmp_path / "page.html")
    context = browser.new_context()
    page, faults = context.new_page(), []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("console", lambda message: faults.append(message.text))
    page.goto(path.as_uri())
    page.wait_for_selector(".heads .head")
    page.get_by_role("button", name="layer 1 head 2").click()
    click_cell(page, 8, 4)
    assert len(read_table(page, 3)) == T
    assert page.get_by_text("saved without its model").is_visible()
    assert not page.get_by_role("button", name="silence this head").is_visible()
    why = page.get_by_role("region", name="Why this answer?")
    why.get_by_text("layer 0").first.wait_for()
    other = why.get_by_role("button", name="the logit as a sum")  # asks for a new computation
    assert other.count() == 0 or not other.is_visible()
    context.close()
    assert faults == []


def test_a_model_of_the_address_that_is_not_open_is_named(page):
    page.goto_view("text", model="nosuch", text=TEXT)
    page.wait_for_selector("text=The model nosuch is not open in this studio. This is substring.")
    page.goto_view("generate", model="substring")
    page.wait_for_selector("text=The model substring does not fit this view. This is shakespeare.")


def test_a_view_is_found_as_it_was_left(page):
    open_text(page, text="cab|ab", layer=1, head=2)
    wait_for(page, CHIPS, ["[CLS]", "c", "a", "b", "|", "a", "b"])
    views = page.get_by_role("navigation")
    views.get_by_role("button", name="Picture").click()
    page.wait_for_selector("[data-view=picture]")
    views.get_by_role("button", name="Text").click()
    wait_for(page, CHIPS, ["[CLS]", "c", "a", "b", "|", "a", "b"])
    page.get_by_text("layer 1 · head 2 (of 0–3)").wait_for()
    page.get_by_label("model", exact=True).select_option("shakespeare")
    wait_for(page, CHIPS, list("ROMEO:"))
    page.get_by_label("model", exact=True).select_option("substring")
    wait_for(page, CHIPS, ["[CLS]", "c", "a", "b", "|", "a", "b"])
    views.get_by_role("button", name="Text").click()  # the button of the open view resets it
    page.get_by_text("layer 0 · head 3 (of 0–3)").wait_for()


def test_another_view_opens_with_the_same_model_if_it_fits(page, studio):
    runs = studio.folder / "runs"
    shutil.copytree(GOLDEN / "dialogue-0001", runs / "other-0008")
    try:
        open_text(page, model="other-0008", text="the")
        page.get_by_role("navigation").get_by_role("button", name="Generate").click()
        page.wait_for_selector("[data-view=generate] .bar-row")
        assert page.get_by_label("model", exact=True).input_value() == "other-0008"
        page.get_by_role("navigation").get_by_role("button", name="Picture").click()
        page.wait_for_selector("[data-view=picture]")
        assert page.get_by_text("does not fit this view").count() == 0
    finally:
        shutil.rmtree(runs)


def test_a_run_of_the_address_is_opened(page, studio):
    runs = studio.folder / "runs"
    shutil.copytree(GOLDEN / "substring-0001", runs / "other-0007")
    try:
        open_text(page, model="other-0007", text="ab|a")
        assert page.get_by_label("model").input_value() == "other-0007"
        assert page.get_by_text("is not open").count() == 0
    finally:
        shutil.rmtree(runs)


def test_the_built_in_models_say_what_they_do_and_open_a_head_that_shows_it(page, studio):
    models = {model["id"]: model for model in studio.ask("list_models")["models"]}
    assert all(models[id]["task"] for id in ("substring", "shakespeare", "digits", "dates"))
    page.goto_view("text", model="substring")
    page.get_by_text("substring: Does the part after | occur in the part before it?").wait_for()
    assert "layer 0 · head 3 (of 0–3)" in page.get_by_role("region", name="One head").inner_text()
    page.goto_view("text", model="substring", layer=1)
    page.get_by_text("layer 1 · head 0 (of 0–3)").wait_for()


def save(page, form, panel="All heads"):
    """The file that the panel saves."""
    with page.expect_download() as download:
        page.get_by_role("region", name=panel).get_by_role("button", name=f"save as {form}").click()
    return download.value.path()


def read_texts(path):
    """The texts of a saved SVG, in their order."""
    return [node.text for node in ET.parse(path).iter("{http://www.w3.org/2000/svg}text")]


def test_saved_pictures_keep_bars_and_numbers(page, studio, answer):
    open_text(page)
    yes, no = (printed_share(p) for p in answer["answer"]["probs"])
    assert read_texts(save(page, "SVG", "The answer")) == ["yes", yes, "no", no]
    found = studio.ask("measure_heads", {"model": "substring", "text": TEXT})["effect"].ravel()
    numbers = ["0" if abs(x) < 0.005 else printed(x, 2) for x in found]
    page.get_by_text("Measured: the logit of yes").wait_for()
    assert read_texts(save(page, "SVG", "Why this answer?"))[: len(numbers)] == numbers
    page.get_by_role("button", name="what each layer would say").click()
    page.get_by_text("If the model ended after a layer").wait_for()
    assert "probability" in read_texts(save(page, "SVG", "Why this answer?"))


def test_the_saved_heads_keep_their_rows_columns_and_names(page):
    open_text(page, other="abccab|ccc")
    page.wait_for_selector("[aria-label='all heads of B'] .head")
    picture = ET.parse(save(page, "SVG")).getroot()
    svg = "{http://www.w3.org/2000/svg}"
    grids = picture.findall(f"{svg}svg")
    heads, layers = [str(h) for h in range(4)], [f"layer {layer}" for layer in range(3)]
    for grid, title in zip(grids, ("all heads", "all heads of B"), strict=True):
        texts = [text.text for text in grid.iter(f"{svg}text")]
        assert texts == [title, *heads, *layers]
        places = [(float(map.get("x")), float(map.get("y"))) for map in grid.iter(f"{svg}image")]
        columns, rows = (sorted(set(each)) for each in zip(*places, strict=True))
        assert places == [(x, y) for y in rows for x in columns]
        assert (len(rows), len(columns)) == (3, 4)
    with Image.open(save(page, "PNG")) as image:
        assert image.height < 2 * image.width


def touch(session, kind, *points):
    places = [{"x": x, "y": y, "id": i} for i, (x, y) in enumerate(points)]
    session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": places})


def test_a_swipe_over_a_matrix_scrolls_the_page_and_two_fingers_zoom(page):
    page.set_viewport_size({"width": 390, "height": 800})
    open_text(page)
    canvas = page.locator(".head-open canvas.matrix")
    canvas.scroll_into_view_if_needed()
    style = "(canvas) => getComputedStyle(canvas).touchAction"
    assert canvas.evaluate(style) == "pan-y"
    page.get_by_role("button", name="forbid").click()
    page.wait_for_selector(".head-open canvas.matrix[style*='touch-action: none']")
    page.get_by_role("button", name="off", exact=True).click()
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    session = page.context.new_cdp_session(page)
    session.send("Emulation.setTouchEmulationEnabled", {"enabled": True, "maxTouchPoints": 2})
    touch(session, "touchStart", (x - 20, y), (x + 20, y))
    for spread in (30, 40, 50):
        touch(session, "touchMove", (x - spread, y), (x + spread, y))
    touch(session, "touchEnd")
    page.wait_for_function(
        "document.querySelector('.head-open canvas.matrix').matrix.zoom.size > 1.2"
    )
    assert canvas.evaluate("({ matrix }) => matrix.fingers.size") == 0
    assert canvas.evaluate(style) == "none"
    session.send("Emulation.setTouchEmulationEnabled", {"enabled": False})
