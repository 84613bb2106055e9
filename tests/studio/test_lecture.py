"""The ten minutes of a lecture in docs/studio.md, step by step, in a browser.

The first line of each test is the title of its step.
"""

import ast
import re
from pathlib import Path

from playwright.sync_api import expect

expect.set_options(timeout=60_000)
PAGE = Path(__file__).parents[2] / "docs" / "studio.md"


def open_text(page, text="abccab|cca", **state):
    page.goto_view("text", model="substring", text=text, **state)
    page.wait_for_selector(".heads .head")


def test_step_1(page):
    """A model answers."""
    page.goto_view("text")
    expect(page.get_by_label("model")).to_have_value("substring")
    page.get_by_label("text", exact=True).fill("abccab|cca")
    expect(page.get_by_text("At [CLS], the model answers yes")).to_be_visible()
    page.get_by_label("text", exact=True).fill("abccab|ccc")
    expect(page.get_by_text("At [CLS], the model answers no")).to_be_visible()


def test_step_2(page):
    """A head is a map."""
    open_text(page)
    page.locator(".heads .head").nth(3).click()
    expect(page.get_by_text("layer 0 · head 3").first).to_be_visible()
    canvas = page.locator(".head-open canvas.matrix")
    weights = canvas.evaluate("(c) => [...c.matrix.data]")
    T = len("abccab|cca") + 1
    after = [weights[t * T + t + 1] for t in range(1, T - 1)]
    assert sum(weight > 0.5 for weight in after) >= len(after) - 1


def test_step_3(page):
    """A weight is four steps."""
    open_text(page, layer=0, head=3)
    canvas = page.locator(".head-open canvas.matrix")
    x, y = canvas.evaluate(
        "({ matrix }) => [matrix.left + 3.5 * matrix.cell, matrix.top + 2.5 * matrix.cell]"
    )
    canvas.click(position={"x": x, "y": y})
    expect(page.get_by_text("How much does “b” (2) attend to “c” (3)")).to_be_visible()
    titles = ["Compare: q · k", "Scale: ÷ √Dh", "Share out: softmax", "Take: × v"]
    expect(page.locator(".step h3")).to_contain_text(titles)


def test_step_4(page):
    """A head has a purpose."""
    open_text(page, layer=0, head=3)
    page.get_by_role("button", name="silence this head").click()
    expect(page.get_by_text("the model answers no")).to_be_visible()
    page.get_by_role("button", name="let it speak again").click()
    expect(page.get_by_text("the model answers yes")).to_be_visible()


def test_step_5(page):
    """Which heads matter."""
    open_text(page)
    panel = page.get_by_role("region", name="Why this answer?")
    canvas = panel.locator("canvas.matrix")
    expect(canvas).to_be_visible()
    effects = [abs(x) for x in canvas.evaluate("(c) => [...c.matrix.data]")]
    assert sorted(effects)[-2] > 4 * sorted(effects)[-4]


def test_step_6(page):
    """A language model chooses."""
    page.goto_view("generate", model="shakespeare", text="ROMEO:")
    expect(page.get_by_text("Entropy 0.5")).to_be_visible()
    for n in (1, 2, 3):
        page.get_by_role("button", name="draw next: ").click()
        expect(page.locator(".taken-chip")).to_have_count(n)
    page.get_by_role("button", name="back").click()
    expect(page.locator(".taken-chip")).to_have_count(2)
    page.locator("button.bar-row").nth(4).click()
    expect(page.locator(".taken-chip")).to_have_count(3)
    boxes = page.get_by_role("region", name="Branches").locator("svg rect")
    expect(boxes).to_have_count(5)  # the prompt, two tokens, and two branches


def test_step_7(page):
    """A picture is patches."""
    page.goto_view("picture", model="digits", number=0)
    expect(page.get_by_text("It says 1, with probability 0.99")).to_be_visible()
    page.goto_view("picture", model="digits", number=0, covered="[5,6,9,13]")
    expect(page.locator(".class-bars .bar-number").nth(1)).to_contain_text("→")
    before, after = page.locator(".class-bars .bar-number").nth(1).inner_text().split(" → ")
    assert float(after) < float(before)


def test_step_8(page):
    """Attention aligns."""
    page.goto_view("translation", model="dates", text="sep 21, 1883")
    expect(page.get_by_text("1883-09-21").first).to_be_visible()
    expect(page.get_by_text("at position 10. That is where it looked most.")).to_be_visible()


def test_step_9(page):
    """A transformer by hand."""
    page.goto_view("smallest", rule="identity")
    expect(page.get_by_text("sequences of up to")).to_be_visible()
    right, total = re.findall(r"\d+", page.locator(".count").inner_text())[:2]
    assert right == total
    page.locator("[data-matrix=Km] [data-cell='0,0']").click()
    page.keyboard.type("0")
    page.keyboard.press("Enter")
    expect(page.locator(".count")).not_to_contain_text(f"{total} of {total}")
    page.get_by_role("button", name="train 100 steps").click()
    expect(page.get_by_role("region", name="Training").locator("polyline")).to_be_visible()


def test_step_10(page):
    """Your own code."""
    page.goto_view("check", seed=5)
    page.get_by_role("button", name="try an example with a mistake").click()
    expect(page.locator(".part-sentence")).to_contain_text("the mask is inverted")
    code = page.get_by_role("textbox", name="code")
    code.fill(code.input_value().replace("masked_fill(mask", "masked_fill(~mask"))
    page.get_by_role("button", name="check", exact=True).click()
    expect(page.locator(".part .verdict")).to_have_text("passed")


def test_every_step_of_the_page_has_its_test():
    script = PAGE.read_text().partition("## Ten minutes in a lecture")[2].partition("\n## ")[0]
    titles = dict(re.findall(r"^(\d+)\. \*\*(.+?)\*\*", script, re.M))
    tests = {
        node.name.removeprefix("test_step_"): ast.get_docstring(node)
        for node in ast.parse(Path(__file__).read_text()).body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_step_")
    }
    assert tests == titles
    assert len(titles) == 10
