"""The Check view, as a student uses it: a mistake is found, shown in its line, and repaired."""

import json
import re
from xml.etree import ElementTree

import pytest
from page_files import drop_file
from PIL import Image
from playwright.sync_api import expect

from clearhead.exercises.catalogue import read_entry
from clearhead.exercises.template import write_template
from clearhead.studio.checking import EXAMPLE

expect.set_options(timeout=120_000)
LINE = 1 + EXAMPLE.split("\n").index('        scores = scores.masked_fill(mask, float("-inf"))')


def test_the_example_shows_a_diagnosis_and_its_repair_passes(page, studio):
    page.goto_view("check", seed=5)
    page.get_by_role("button", name="try an example").click()
    part = page.locator(".part")
    expect(part.locator(".verdict")).to_have_text("not right yet")
    (found,) = studio.post("/api/check", {"code": EXAMPLE, "seed": 5}).json["parts"]
    expect(part.locator(".part-sentence")).to_have_text(found["sentence"])
    expect(part.locator(".part-head .muted")).to_have_text(f"{found['points']:g} of 10 points")
    expect(part.locator("dd").first).to_have_text(read_entry("attention").terms[found["term"]])
    expect(part.locator("tr.got td")).to_have_text(print_value(found["example"]["got"]))
    expect(part.locator("tr.expected td")).to_have_text(print_value(found["example"]["expected"]))
    expect(page.locator(".code-gutter .marked")).to_have_text(str(LINE))
    expect(page.get_by_text("The code ran in a sandbox with ")).to_be_visible()
    page.get_by_role("button", name="go to the equation").click()
    expect(part.locator(".part-place")).to_be_focused()

    part.get_by_role("button", name=f"line {LINE}").click()
    code = page.get_by_role("textbox", name="code")
    selected = "(node) => node.value.slice(node.selectionStart, node.selectionEnd)"
    assert "masked_fill(mask" in code.evaluate(selected)
    code.fill(EXAMPLE.replace("masked_fill(mask", "masked_fill(~mask"))
    expect(page.locator(".code-gutter .marked")).to_have_count(0)
    code.press("Control+Enter")
    expect(part.locator(".verdict")).to_have_text("passed")
    expect(page.locator(".report-sum")).to_have_text("1 of 1 parts passed, 10 of 10 points")


def test_the_box_says_how_the_keyboard_leaves_it(page):
    page.goto_view("check")
    code = page.get_by_role("textbox", name="code")
    expect(code).to_have_accessible_description(re.compile("press Escape, then Tab"))
    code.press("Tab")
    expect(code).to_have_value("    ")
    code.press("Escape")
    code.press("Tab")
    expect(code).not_to_be_focused()


def print_value(value):
    """As Python writes it; NaN stands in quotes in the report."""
    return str(next(iter(value.values()))).replace("'", "").replace(".0", "")


def test_an_exercise_shows_its_formula_and_starts_from_its_template(page):
    page.goto_view("check")
    page.get_by_label("exercise").select_option("masked_softmax")
    entry = read_entry("masked_softmax")
    expect(page.locator(".exercise-about dd")).to_contain_text([entry.formula, entry.signature])
    page.get_by_role("button", name="start from the template").click()
    code = page.get_by_role("textbox", name="code")
    expect(code).to_have_value(write_template("masked_softmax"))
    n_lines = write_template("masked_softmax").count("\n") + 1
    expect(page.locator(".code-gutter > div")).to_have_count(n_lines)
    page.get_by_role("button", name="check", exact=True).click()
    expect(page.locator(".part .verdict")).to_have_text("stopped with an error")
    expect(page.locator(".part-sentence")).to_contain_text("write masked_softmax here")
    page.goto_view("check")  # another view, or the same again, does not lose the code
    expect(code).to_have_value(write_template("masked_softmax"))


def test_a_notebook_is_opened_cell_by_cell_and_a_line_is_found_in_it(page):
    cells = [
        {"cell_type": "markdown", "source": ["# Homework"]},
        {"cell_type": "code", "source": ["%matplotlib inline\n", "x = 1"], "outputs": [{"a": 1}]},
        {"cell_type": "code", "source": EXAMPLE},
    ]
    file = {"name": "homework.ipynb", "mimeType": "application/json"}
    page.goto_view("check")
    page.get_by_label("a .py file or a notebook").set_input_files(
        {**file, "buffer": json.dumps({"cells": cells}).encode()}
    )
    code = page.get_by_role("textbox", name="code")
    expect(code).to_have_value(f"# %%\n%matplotlib inline\nx = 1\n\n# %%\n{EXAMPLE}")
    page.get_by_role("button", name="check", exact=True).click()
    expect(page.locator(".part").get_by_role("button")).to_contain_text("cell 2, line ")
    marked = int(page.locator(".code-gutter .marked").inner_text())
    assert "masked_fill(mask" in code.input_value().split("\n")[marked - 1]
    page.get_by_label("a .py file or a notebook").set_input_files({**file, "buffer": b"{}"})
    expect(page.get_by_role("alert")).to_contain_text("is not a notebook")


def test_a_dropped_file_is_read(page):
    page.goto_view("check")
    drop_file(page, ".code-box", "mine.py", b"def attention(q, k, v):\r\n    return v\r\n")
    code = page.get_by_role("textbox", name="code")
    expect(code).to_have_value("def attention(q, k, v):\n    return v\n")


def test_W21_what_code_says_is_shown_as_text(page):
    words = "<img src=x onerror=alert(1)>"
    page.goto_view("check")
    code = page.get_by_role("textbox", name="code")
    code.fill(f"def attention(q, k, v):\n    raise ValueError({words!r})")
    page.get_by_role("button", name="check", exact=True).click()
    expect(page.locator(".part-sentence")).to_contain_text(words)
    assert page.locator("[data-view='check'] img").count() == 0


def test_what_cannot_be_checked_is_one_sentence(page):
    page.goto_view("check")
    code = page.get_by_role("textbox", name="code")
    for text, words in (
        ("x = 1", "known exercise. Choose the exercise above"),
        ("", "code is missing"),
    ):
        code.fill(text)
        page.get_by_role("button", name="check", exact=True).click()
        expect(page.get_by_role("alert")).to_contain_text(words)
    page.get_by_label("seed").fill("many")
    page.get_by_role("button", name="check", exact=True).click()
    expect(page.get_by_role("alert")).to_contain_text("must be a whole number")
    page.expected.append("status of 400")


def test_the_python_of_the_page_is_the_same_check(page):
    page.goto_view("check", exercise="attention", seed=7)
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    expect(page.get_by_label("exercise")).to_have_value("attention")
    page.get_by_role("button", name="copy as Python").click()
    expect(page.locator("#status")).to_contain_text("Copied")
    copied = page.evaluate("navigator.clipboard.readText()")
    assert 'clearhead.check(path, "attention", seed=7)' in copied


@pytest.mark.parametrize("quotes", ['"""', "'''"])
@pytest.mark.parametrize("start", ["", "# %%\n%matplotlib inline\nx = '\\\\n'\n\n# %%\n"])
def test_the_python_of_the_page_gives_the_report_of_the_page(page, start, quotes):
    page.goto_view("check", exercise="attention", seed=7)
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    expect(page.get_by_label("exercise")).to_have_value("attention")
    page.get_by_role("textbox", name="code").fill(start + EXAMPLE.replace('"""', quotes))
    page.get_by_role("button", name="check", exact=True).click()
    shown = page.locator("tr.expected td")
    expect(shown).to_be_visible()
    page.get_by_role("button", name="copy as Python").click()
    expect(page.locator("#status")).to_contain_text("Copied")
    made = {}
    exec(page.evaluate("navigator.clipboard.readText()"), made)
    (part,) = made["report"].parts
    expect(page.locator(".part-sentence")).to_have_text(part.sentence)
    expect(shown).to_have_text(print_value(part.example["expected"]))


def test_the_text_of_a_notebook_becomes_its_cells(page):
    cells = [
        {"cell_type": "markdown", "source": "# Homework"},
        {"cell_type": "code", "source": ["x = 1"]},
        {"cell_type": "code", "source": EXAMPLE},
    ]
    page.goto_view("check")
    code = page.get_by_role("textbox", name="code")
    code.fill(json.dumps({"cells": cells, "nbformat": 4}))
    expect(code).to_have_value(f"# %%\nx = 1\n\n# %%\n{EXAMPLE}")
    code.fill('{"cells": 3}')
    expect(code).to_have_value('{"cells": 3}')


def test_a_line_that_is_not_python_is_marked(page):
    page.goto_view("check")
    page.get_by_role("textbox", name="code").fill("x = 1\n\ndef attention(q, k, v:\n    pass")
    page.get_by_role("button", name="check", exact=True).click()
    expect(page.get_by_role("alert")).to_contain_text("cannot be read as Python")
    expect(page.locator(".code-gutter .marked")).to_have_text("3")
    page.expected.append("status of 400")


def test_code_of_very_many_lines_is_shown_and_refused_in_a_sentence(page):
    page.goto_view("check")
    code = page.get_by_role("textbox", name="code")
    fill = "(node, text) => { node.value = text; node.dispatchEvent(new Event('input')); }"
    code.evaluate(fill, "x = 1\n" * 200_000)
    expect(page.locator(".code-gutter > div")).to_have_count(20_000)
    page.get_by_role("button", name="check", exact=True).click()
    expect(page.get_by_role("alert")).to_contain_text("more than 900,000 bytes")


def test_a_report_is_saved_as_a_picture(page):
    page.goto_view("check", seed=5)
    panel = page.get_by_role("region", name="What was found")
    panel.get_by_label("save as SVG").click()
    expect(page.locator("#status")).to_contain_text("There is no picture here yet")
    page.get_by_role("button", name="try an example").click()
    expect(page.locator(".part-sentence")).to_be_visible()
    with page.expect_download() as download:
        panel.get_by_label("save as SVG").click()
    tree = ElementTree.parse(download.value.path())
    lines = [node.text for node in tree.iter("{http://www.w3.org/2000/svg}text")]
    assert page.locator(".part-sentence").inner_text() in " ".join(lines)
    assert f"line {LINE}" in lines
    with page.expect_download() as download:
        panel.get_by_label("save as PNG").click()
    colours = Image.open(download.value.path()).convert("RGB").getcolors(1 << 20)
    assert len(colours) > 20  # words, not an empty sheet
