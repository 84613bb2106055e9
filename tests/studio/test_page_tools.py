"""Every view with all its panels: pictures can be opened, Python runs, equations have numbers.

PANELS is the list of the panels of each view and of their tools; a tool that is missing, or one
more, fails here.
"""

import ast
import functools
import re
import xml.etree.ElementTree as ET

import pytest
from PIL import Image
from playwright.sync_api import expect

expect.set_options(timeout=60_000)
COPY = """if (navigator.clipboard)
  navigator.clipboard.writeText = async (text) => { window.copied = text; };"""
EQUATION = re.compile(r"[=÷√][\s\S]*\d")
SAVED = ("PNG", "SVG")
BOTH = (*SAVED, "Python")
ALL = (*BOTH, "explain")

# view, state, what is there when everything is drawn, {panel: its tools}
PANELS = [
    (
        "text",
        {"model": "substring", "text": "abccab|cca", "other": "abccab|ccc"},
        ["[aria-label='all heads of B'] .head", "text=Measured: the logit of yes"],
        {
            "your text": (),
            "All heads": BOTH,
            "The answer": ALL,
            "Change something": ("Python",),
            "One head": ALL,
            "This cell, number by number": ("Python",),
            "Why this answer?": ALL,
        },
    ),
    (
        "generate",
        {"model": "shakespeare", "text": "ROMEO:"},
        [".lens-name", "[aria-label^='6 of 64 tokens']"],
        {
            "text": (),
            "The next token": ALL,
            "What each layer would say": ALL,
            "Branches": BOTH,
            "The cache grows": ALL,
        },
    ),
    (
        "picture",
        {"model": "digits", "number": 3},
        [".picture-heads canvas", ".map-choices [aria-pressed=true]"],
        {
            "Choose a picture": (),
            "The answer": ALL,
            "Which patches it uses": ALL,
            "Every head": ALL,
        },
    ),
    (
        "translation",
        {"model": "dates", "text": "sep 21, 1883"},
        ["canvas.matrix", ".beam-node"],
        {
            "Translate": ("Python",),
            "Where each word looked": ALL,
            "One step": ALL,
            "Beam search": ALL,
        },
    ),
    (
        "smallest",
        {},
        ["text=Km"],
        {
            "task": (),
            "Input and output": ("Python",),
            "Training": BOTH,
            "The matrices": ALL,
            "Why this cell has its number": ("Python",),
        },
    ),
    *(
        (
            "positions",
            {"scheme": scheme},
            ["canvas.matrix"],
            {"scheme": (), **panels, "This cell": ("Python",)},
        )
        for scheme, panels in {
            "sinusoidal": {
                "The table": ALL,
                "How alike are two positions? p · p′": ALL,
                "Columns as waves": BOTH,
            },
            "rotary": {
                "How far each pair is turned: cos(angle)": ALL,
                "q at position i, k at position j: q · k": ALL,
                "q · k by distance": BOTH,
            },
            "toeplitz": {
                "The weights m by distance j − i": BOTH,
                "The bias: query i, key j": ALL,
                "Attention by this bias alone": ALL,
            },
            "alibi": {
                "The slope of each head": ("Python",),
                "The bias: query i, key j": ALL,
                "Attention by this bias alone": ALL,
            },
        }.items()
    ),
    (
        "kernels",
        {"T": 9, "D": 6},
        ["[data-figure=error]", ".chart polyline"],
        {
            "features": (),
            "Softmax, exact": ALL,
            "By features": ALL,
            "Difference": ALL,
            "This cell": ("Python",),
            "The error by the number of frequencies m": BOTH,
        },
    ),
    (
        "runs",
        {"runs": "substring,digits"},
        [".run-last tbody tr:nth-child(2)", ".run-chart polyline", ".histogram-large"],
        {
            "Runs": (),
            "Curves": ALL,
            "Start a training": ("Python",),
            "Samples": ("Python",),
            "What differs": ("Python",),
            "Weights": ALL,
        },
    ),
    (
        "check",
        {"seed": 5},
        [".verdict"],
        {"Your code": ("Python",), "What was found": (*SAVED, "explain")},
    ),
]
# Their Python is compiled, not run: it trains or measures for many seconds.
SLOW = {"The error by the number of frequencies m", "Start a training", "Training"}


def prepare(page, view):
    """What a person does until every panel has something to show."""
    if view == "smallest":
        page.get_by_role("button", name="random", exact=True).click()
        page.get_by_role("button", name=re.compile("^train")).click()
    elif view == "picture":
        for label in ("heat map", "where it looks"):
            page.get_by_role("application", name=f"{label}: choose a patch").click()
    elif view == "translation":
        page.locator("canvas.matrix").first.click()
    elif view == "runs":
        page.get_by_label("recipe").select_option("identity")
        weights = page.get_by_role("region", name="Weights")
        weights.get_by_role("button", name="substring").click()
    elif view == "check":
        page.get_by_role("button", name="try an example").click()


@pytest.mark.parametrize(("view", "state", "shown", "panels"), PANELS)
def test_a_view_fits_a_telephone_and_all_its_tools_work(page, view, state, shown, panels):
    page.add_init_script(COPY)
    page.set_viewport_size({"width": 390, "height": 800})
    page.goto_view(view, **state)
    prepare(page, view)
    for selector in shown:
        page.wait_for_selector(selector)
    expect(page.locator(".stale, .error")).to_have_count(0)
    assert page.evaluate("document.scrollingElement.scrollWidth") <= 390
    page.set_viewport_size({"width": 1440, "height": 900})
    found = page.locator("section.panel:visible")
    tools = {
        node.get_attribute("aria-label"): tuple(node.locator(".tools .tool").all_inner_texts())
        for node in found.all()
    }
    assert tools == panels
    for title, names in panels.items():
        section = page.get_by_role("region", name=title, exact=True)
        for name in names:
            USE[name](page, section, title)


def save(page, section, form):
    with page.expect_download() as download:
        section.get_by_role("button", name=f"save as {form}").click()
    assert re.fullmatch(rf"[a-z-]+\.{form.lower()}", download.value.suggested_filename)
    return download.value.path()


def check_png(page, section, title):
    with Image.open(save(page, section, "PNG")) as image:
        assert image.format == "PNG"
        assert min(image.size) > 40, title
        assert len(image.convert("RGB").getcolors(2**24)) > 5, f"{title}: nothing is drawn"


def check_svg(page, section, title):
    root = ET.parse(save(page, section, "SVG")).getroot()
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert len(root) > 1, f"{title}: there is only the background"
    assert all(len(part) for part in root[1:]), title
    assert "NaN" not in ET.tostring(root, "unicode")


def check_python(page, section, title):
    page.evaluate("window.copied = null")
    section.get_by_role("button", name="copy as Python").click()
    page.wait_for_function("window.copied !== null")
    lines = page.evaluate("window.copied")
    assert ast.parse(lines).body, title
    if title not in SLOW:
        run_once(lines)


@functools.cache
def run_once(lines):
    """Panels of one answer have the same lines."""
    exec(compile(lines, "copied", "exec"), {"__name__": "copied"})


def check_explain(page, section, title):
    section.locator(".tool", has_text="explain").click()
    own = section.locator(".explanation:visible")
    node = own if own.count() else page.locator(":focus")
    expect(node).to_contain_text(EQUATION)


USE = {"PNG": check_png, "SVG": check_svg, "Python": check_python, "explain": check_explain}
