"""Positions in a browser: the pictures hold PyTorch's numbers, and a chosen cell is explained."""

import math

import numpy as np
import pytest
import torch
from page_numbers import printed, wait_for
from playwright.sync_api import expect

from clearhead.positions import AlibiBias, sinusoid_table

expect.set_options(timeout=60_000)


def open_view(page, **state):
    page.goto_view("positions", **state)
    page.wait_for_function(
        "() => document.querySelector('canvas.matrix')?.matrix.data !== undefined"
    )


def read_matrix(page, label):
    """The numbers that a picture draws."""
    find = f"canvas.matrix[aria-label='{label}']"
    found = page.locator(find).evaluate("(c) => [c.matrix.T, c.matrix.S, [...c.matrix.data]]")
    return np.array(found[2]).reshape(found[:2])


def pick(page, label, row, column):
    """Click a cell of a picture."""
    canvas = page.locator(f"canvas.matrix[aria-label='{label}']")
    x, y = canvas.evaluate(
        "(canvas, [row, column]) => { const m = canvas.matrix;"
        " return [m.left + (column + 0.5) * m.cell, m.top + (row + 0.5) * m.cell]; }",
        [row, column],
    )
    canvas.click(position={"x": x, "y": y})


def set_slider(page, label, value):
    page.get_by_label(label, exact=True).evaluate(
        "(input, value) => { input.value = value; input.dispatchEvent(new Event('input')); }", value
    )


def test_the_table_of_sinusoids_follows_the_sliders(page):
    open_view(page)
    set_slider(page, "length n", 11)
    set_slider(page, "width d", 6)
    set_slider(page, "base", 2)  # 100
    wait_for(page, ".slider output", ["11", "6", "100"])
    wanted = sinusoid_table(11, 6, torch.float64, base=100.0)
    page.wait_for_function("() => document.querySelector('canvas.matrix').matrix.S === 6")
    page.wait_for_function(
        "(x) => Math.abs(document.querySelector('canvas.matrix').matrix.value(1, 2) - x) < 1e-12",
        arg=wanted[1, 2].item(),
    )
    assert np.array_equal(read_matrix(page, "The table"), wanted)
    alike = read_matrix(page, "How alike are two positions? p · p′")
    np.testing.assert_allclose(alike, wanted @ wanted.T)
    assert "only the distance counts" in page.locator(".spread").inner_text()


def test_a_cell_of_the_table_is_explained_by_its_formula(page):
    open_view(page, n=12, d=8, base=100)
    pick(page, "The table", 5, 3)
    angle = 5 / 100 ** (2 / 8)
    expect(page.locator(".equation").last).to_have_text(
        f"PE[5, 3] = cos({printed(angle)}) = {printed(math.cos(angle))}"
    )
    pick(page, "How alike are two positions? p · p′", 7, 2)
    table = sinusoid_table(12, 8, torch.float64, base=100.0)
    expect(page.locator(".equation").last).to_contain_text(f"= {printed(table[7] @ table[2])}")


def test_waves_are_drawn_for_the_chosen_dimensions(page):
    open_view(page, n=9, d=8)
    dims = page.get_by_role("group", name="dimensions")
    dims.get_by_role("button", name="0", exact=True).click()
    dims.get_by_role("button", name="7", exact=True).click()
    wait_for(
        page,
        ".legend-entry",
        [f"dimension {i}" for i in ("1 (cos)", "4 (sin)", "5 (cos)", "7 (cos)")],
    )
    titles = page.locator(".chart g title").all_text_contents()
    last = sinusoid_table(9, 8, torch.float64)[8]
    assert titles[-1] == f"dimension 7 (cos): {printed(last[7])} at 8"


def test_rotary_products_depend_only_on_the_distance(page, studio):
    open_view(page, scheme="rotary", n=10, d=8)
    answer = studio.ask("show_positions", {"scheme": "rotary", "n": 10, "d": 8})
    shown = read_matrix(page, "q at position i, k at position j: q · k")
    assert np.array_equal(shown, answer["scores"])
    np.testing.assert_allclose(shown[:-1, :-1], shown[1:, 1:])
    pick(page, "q at position i, k at position j: q · k", 6, 2)
    expect(page.locator(".equation").last).to_contain_text(f"= {printed(answer['scores'][6, 2])}")
    pick(page, "How far each pair is turned: cos(angle)", 6, 1)
    expect(page.locator(".equation").last).to_contain_text(
        f"= {printed(answer['rotated_q'][6, 5])}"
    )
    assert page.locator(".clock").count() == 4


def test_a_weight_of_toeplitz_changes_its_diagonal_and_the_attention(page):
    open_view(page, scheme="toeplitz", n=6, d=4)
    page.get_by_role("button", name="nothing").click()
    cell = page.locator("[data-cell='0,4']")  # distance −1
    expect(cell.locator("text")).to_have_text("0")
    cell.focus()
    page.keyboard.type("3")
    page.keyboard.press("Enter")
    page.wait_for_function("() => document.querySelector('canvas.matrix').matrix.value(1, 0) === 3")
    bias = read_matrix(page, "The bias: query i, key j")
    assert np.array_equal(bias, 3 * np.eye(6, k=-1))
    weights = np.exp(bias / 2)
    weights /= weights.sum(1, keepdims=True)
    np.testing.assert_allclose(read_matrix(page, "Attention by this bias alone"), weights)
    pick(page, "Attention by this bias alone", 4, 3)
    expect(page.locator(".equation").last).to_contain_text(f"= {printed(weights[4, 3])}")


@pytest.mark.parametrize("causal", [False, True])
def test_each_head_of_alibi_has_its_slope(page, causal):
    open_view(page, scheme="alibi", n=7, heads=4)
    if causal:
        page.get_by_label("only earlier tokens (causal)").check()
    page.get_by_role("button", name="head 1").click()
    expect(page.locator(".bar-row.chosen .bar-number")).to_have_text("0.0625")
    bias = AlibiBias(4).double()(7)[1].numpy()
    assert np.array_equal(read_matrix(page, "The bias: query i, key j"), bias)
    powers = np.exp(bias) * (np.tri(7) if causal else 1)
    weights = powers / powers.sum(1, keepdims=True)
    page.wait_for_function(
        "(x) => Math.abs([...document.querySelectorAll('canvas.matrix')].at(-1)"
        ".matrix.value(0, 1) - x) < 1e-9",
        arg=weights[0, 1],
    )
    np.testing.assert_allclose(read_matrix(page, "Attention by this bias alone"), weights)


def test_learned_positions_are_drawn_anew_and_no_two_are_alike(page, studio):
    open_view(page, scheme="learned", n=8, d=6)
    page.get_by_role("button", name="draw others").click()
    answer = studio.ask("show_positions", {"scheme": "learned", "n": 8, "d": 6, "seed": 1})
    page.wait_for_function(
        "(x) => document.querySelector('canvas.matrix').matrix.value(0, 0) === x",
        arg=float(answer["table"][0, 0]),
    )
    assert "not only the distance counts" in page.locator(".spread").inner_text()


def test_of_quick_changes_the_last_one_counts(page):
    open_view(page, n=7)
    for name in ("rotary", "learned", "ALiBi", "sinusoidal", "Toeplitz", "ALiBi"):
        page.get_by_role("button", name=name, exact=True).click()
    wait_for(page, ".bar-number", ["0.2500", "0.0625", "0.0156", "0.0039"])
    bias = AlibiBias(4).double()(7)[0].numpy()
    assert np.array_equal(read_matrix(page, "The bias: query i, key j"), bias)
    assert page.locator(".error").count() == 0


@pytest.mark.parametrize("scheme", ["sinusoidal", "rotary", "alibi"])
def test_explain_goes_to_the_numbers_of_the_cell(page, scheme):
    open_view(page, scheme=scheme)
    page.get_by_role("button", name="go to the equation").first.click()
    expect(page.get_by_role("region", name="This cell")).to_be_focused()


def test_an_address_with_an_unknown_word_shows_the_first_choice(page):
    page.goto_view("positions", scheme="constructor")
    expect(page.locator("canvas").first).to_be_visible()
    assert page.get_by_role("alert").count() == 0
    expect(page.get_by_role("button", name="sinusoidal", exact=True)).to_have_attribute(
        "aria-pressed", "true"
    )
