"""What is drawn, not only what is printed: pixels of canvases, ends of lines, lengths of bars."""

import re

import numpy as np
import pytest
import torch
from page_numbers import printed, wait_for
from playwright.sync_api import expect

from clearhead.runs.folder import RunFolder
from clearhead.studio.listing import LECTURE

expect.set_options(timeout=60_000)
TEXT = "abccab|cca"
LARGE = ".head-open canvas.matrix"


@pytest.fixture
def answer(studio):
    return studio.ask("attend", {"model": "substring", "text": TEXT})


def open_text(page, **state):
    page.goto_view("text", model="substring", text=TEXT, **state)
    page.wait_for_selector(".heads .head")
    page.wait_for_selector(LARGE)


def brightness(pixels):
    """Of RGBA bytes (..., 4)."""
    return np.array(pixels).reshape(-1, 4)[:, :3] @ (0.299, 0.587, 0.114)


def read_small_maps(page):
    """The brightness of each pixel of each small map."""
    found = page.locator(".heads .head canvas").evaluate_all(
        "(all) => all.map((c) => [...c.getContext('2d')"
        ".getImageData(0, 0, c.width, c.height).data])"
    )
    return [brightness(pixels) for pixels in found]


def read_cells(page, selector):
    """The brightness of each cell of a large matrix, beside its number."""
    pixels = page.locator(selector).evaluate(
        "({ matrix: m }) => { const { width, height } = m.canvas, found = [];"
        " const all = m.canvas.getContext('2d').getImageData(0, 0, width, height).data;"
        " const place = (start, i) => Math.floor(start + (i + 0.15) * m.cell);"
        " for (let t = 0; t < m.T; t += 1) for (let s = 0; s < m.S; s += 1) {"
        " const i = 4 * (place(m.top, t) * width + place(m.left, s));"
        " found.push(...all.slice(i, i + 4)); } return found; }"
    )
    return brightness(pixels)


def is_darker_for_more(values, shades, least=0.0):
    """Whether a larger value is never brighter, and the largest is clearly darker."""
    values = np.asarray(values).ravel()
    order = np.argsort(values, kind="stable")
    falls = np.diff(shades[order]) <= 3  # rounding of colours
    return bool(falls.all()) and shades[values.argmin()] - shades[values.argmax()] > least


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_darkest_cells_have_the_largest_weights(page, answer, scheme):
    page.emulate_media(color_scheme=scheme)
    open_text(page, layer=1, head=2)
    sign = 1 if scheme == "light" else -1  # on a dark screen the brightest
    maps = [head for layer in answer["layers"] for head in layer["weights"]]
    shown = read_small_maps(page)
    assert len(shown) == len(maps) == 12
    for weights, shades in zip(maps, shown, strict=True):
        assert is_darker_for_more(weights, sign * shades, least=100)
    assert is_darker_for_more(maps[6], sign * read_cells(page, LARGE), least=50)
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (brightness([*map(int, re.findall(r"\d+", paper)[:3]), 0])[0] > 128) == (sign > 0)


def test_the_wheel_and_keys_zoom_towards_the_mouse(page):
    open_text(page)
    canvas = page.locator(LARGE)
    canvas.scroll_into_view_if_needed()
    canvas.focus()
    box = canvas.bounding_box()
    x, y = box["x"] + 0.7 * box["width"], box["y"] + 0.6 * box["height"]
    cell = "({ matrix }, [x, y]) => matrix.cellAt({ clientX: x, clientY: y })"
    size = "({ matrix }) => matrix.zoom.size"
    before = canvas.evaluate(cell, [x, y])
    page.mouse.move(x, y)
    page.mouse.wheel(0, -90)
    page.wait_for_function(f"document.querySelector('{LARGE}').matrix.zoom.size > 1.3")
    assert canvas.evaluate(cell, [x, y]) == before
    sizes = [canvas.evaluate(size)]
    for key in "-+0":
        canvas.press(key)
        sizes.append(canvas.evaluate(size))
    assert sizes == pytest.approx([sizes[0], sizes[0] / 1.3, sizes[0], 1])


def test_lines_end_at_the_rows_of_their_tokens(page, answer):
    open_text(page, layer=1, head=1)
    weights = answer["layers"][1]["weights"][1]
    rows = page.locator(".lines-token rect").evaluate_all(
        "(all) => all.map((r) => +r.getAttribute('y') + r.getAttribute('height') / 2)"
    )
    queries, keys = rows[: len(weights)], rows[len(weights) :]
    found = page.locator(".lines-line").evaluate_all(
        "(all) => all.map((l) => ['y1', 'y2', 'stroke-opacity'].map((n) => +l.getAttribute(n)))"
    )
    expected = [
        [queries[t], keys[s], pytest.approx(float(weights[t, s]), abs=6e-4)]
        for t, s in np.argwhere(weights >= 0.02)
    ]
    assert sorted(found, key=lambda line: line[:2]) == expected


ENDS = """(all) => all.map((path) => {
  const end = (place) => {
    const { x, y } = path.getPointAtLength(place).matrixTransform(path.getScreenCTM());
    return [x, y];
  };
  return [end(0), end(path.getTotalLength())];
})"""
BOXES = """(all) => all.map((node) => {
  const { left, right, top, bottom } = node.getBoundingClientRect();
  return [left, right, top, bottom];
})"""


def touches(point, box):
    (x, y), (left, right, top, bottom) = point, box
    return left - 3 <= x <= right + 3 and top - 3 <= y <= bottom + 3


def check_ends(page, lines, boxes):
    """Every line begins at one box and ends at another; the pairs of their indices."""
    ends = page.locator(lines).evaluate_all(ENDS)
    places = page.locator(boxes).evaluate_all(BOXES)
    assert ends
    pairs = [
        [next((i for i, box in enumerate(places) if touches(end, box)), None) for end in line]
        for line in ends
    ]
    assert all(None not in pair and pair[0] != pair[1] for pair in pairs), pairs
    return pairs


def test_the_lines_of_an_alignment_and_of_both_trees_join_their_boxes(page):
    page.goto_view("translation", model="dates", text="sep 21, 1883", beams=4)
    page.wait_for_selector(".beam-node")
    pairs = check_ends(page, ".beam-edge", ".beam-node rect")
    assert len({child for _, child in pairs}) == len(pairs)  # each ends at a box of its own
    names = page.locator(".alignment-token text").all_text_contents()
    pairs = check_ends(page, ".alignment-line", ".alignment-token rect")
    titles = page.locator(".alignment-line title").all_text_contents()
    for (source, target), title in zip(pairs, titles, strict=True):
        assert title.startswith(f"{names[target]} ← {names[source]}: ")
    page.goto_view("generate", model="shakespeare", text="ROMEO:")
    page.get_by_role("button", name="expand").click()
    page.wait_for_selector(".continuation.unvisited")
    pairs = check_ends(page, ".branch", ".continuation rect")
    n = page.locator(".continuation").count()
    assert sorted(child for _, child in pairs) == list(range(1, n))


def test_each_bar_is_as_long_as_its_number_says(page, answer):
    open_text(page, layer=2, head=0, row=6)
    found = answer["answer"]
    weights = answer["layers"][2]["weights"][0, 6]
    for name, values, most in (
        ("answers", found["probs"], 1),
        ("weights of the row", weights, None),
    ):
        check_lengths(page, name, values, most)
    page.get_by_role("button", name="logit", exact=True).click()
    wait_for(page, "[aria-label=answers] .bar-number", [printed(z, 2) for z in found["logits"]])
    check_lengths(page, "answers", found["logits"])
    page.goto_view("generate", model="shakespeare", text="ROMEO:")
    page.wait_for_selector(".bar-row")
    percents = page.locator(".bars").first.locator(".bar-number").all_inner_texts()
    numbers = [float(re.findall(r"[\d.]+", text)[-1]) for text in percents]
    fills = page.locator(".bars").first.locator(".bar-fill")
    widths = [box["width"] for box in (each.bounding_box() for each in fills.all())]
    shares = np.array(widths) / widths[0]
    assert shares == pytest.approx(np.array(numbers) / numbers[0], abs=0.02)


def check_lengths(page, name, values, most=None):
    """Bars relative to their tracks; most: the value of a full track."""
    group = page.get_by_role("group", name=name, exact=True)
    shares = group.locator(".bar-fill").evaluate_all(
        "(all) => all.map((x) => x.getBoundingClientRect().width"
        " / x.parentElement.getBoundingClientRect().width)"
    )
    values = np.abs(np.asarray(values, dtype=float))
    assert shares == pytest.approx(values / (most or values.max()), abs=0.02)


def read_axis(chart, letter):
    """From pixels to values, by the first and the last number beside the axis."""
    side = "end" if letter == "y" else "middle"
    marks = chart.locator(f".chart-number[text-anchor={side}]").evaluate_all(
        f"(all) => all.map((x) => [+x.getAttribute('{letter}'), x.textContent])"
    )
    shift = 4 if letter == "y" else 0  # the text stands below its line
    return [(place - shift, float(text.replace("−", "-"))) for place, text in marks]


def test_the_points_of_a_curve_stand_at_their_numbers(page):
    page.goto_view("runs", runs="substring")
    page.wait_for_selector(".run-chart polyline")
    metrics = RunFolder(LECTURE / "substring").read_metrics()
    for chart in page.locator(".run-chart").all():
        name = chart.get_attribute("data-metric")
        points = [(line["step"], line[name]) for line in metrics if name in line]
        drawn = chart.locator("polyline").get_attribute("points").split()
        drawn = np.array([[float(x) for x in each.split(",")] for each in drawn])
        is_log = "log scale" in chart.locator(".chart-name").last.inner_html()
        scales = []
        for letter in "xy":
            (p0, v0), *_, (p1, v1) = read_axis(chart, letter)
            if letter == "y" and is_log:
                v0, v1 = np.log10([v0, v1])
            scales.append((v0, (v1 - v0) / (p1 - p0), p0))
        for place, (step, value) in ((drawn[0], points[0]), (drawn[-1], points[-1])):
            at = [v0 + slope * (p - p0) for p, (v0, slope, p0) in zip(place, scales, strict=True)]
            wanted = [step, np.log10(value) if is_log else value]
            for found, goal, (_, slope, _) in zip(at, wanted, scales, strict=True):
                assert found == pytest.approx(goal, abs=abs(slope)), name  # one pixel
        values = [value for _, value in points]
        heights = drawn[:, 1]
        top, bottom = heights.min(), heights.max()
        v0, slope, p0 = scales[1]
        ends = [v0 + slope * (p - p0) for p in (bottom, top)]
        wanted = [min(values), max(values)]
        assert ends == pytest.approx(np.log10(wanted) if is_log else wanted, abs=abs(slope))


def test_histograms_are_as_high_as_their_counts_and_cosines_as_dark(page, lecture):
    page.goto_view("runs", runs="substring")
    panel = page.get_by_role("region", name="Weights")
    panel.get_by_role("button", name="show weights").click()
    name = "stack.blocks.1.attention.proj_k.weight"
    panel.get_by_title(name).click()
    bars = panel.locator(".histogram-large .histogram-bar")
    bars.first.wait_for()
    found = np.array(
        bars.evaluate_all("(all) => all.map((r) => ['y', 'height'].map((n) => +r.getAttribute(n)))")
    )
    model = lecture.open("substring").model
    counts, _ = np.histogram(model.get_parameter(name).detach().numpy(), bins=len(found))
    height = found.sum(axis=1)
    assert height == pytest.approx(height[0])  # they stand on one line
    assert found[:, 1] / height[0] == pytest.approx(counts / counts.max(), abs=0.03)
    panel.get_by_role("button", name="explain").click()
    expect(panel.locator(".explanation")).not_to_contain_text("− −")
    table = model.embedding.weight.detach().T
    cosines = torch.nn.functional.cosine_similarity(table[:, None], table[None], dim=-1)
    cells = ".embedding canvas.matrix"
    page.locator(cells).scroll_into_view_if_needed()
    shades = read_cells(page, cells)
    diagonal = np.eye(len(cosines), dtype=bool).ravel()
    assert shades[diagonal].max() < shades[~diagonal].min()


def test_the_search_for_a_token_finds_those_that_contain_it(page, studio):
    page.goto_view("text", model="shakespeare", text="ROMEO:")
    page.get_by_role("button", name="token 2: M").click()
    chips = ".swap .found .chip"
    page.wait_for_selector(chips)
    found = studio.ask("find_tokens", {"model": "shakespeare", "contains": "q"})["texts"]
    assert page.locator(chips).count() > len(found) > 0
    page.get_by_label("find", exact=True).fill("q")
    wait_for(page, chips, found)
