"""Kernels in a browser: exact beside approximate, and the error as it is computed."""

import math

import numpy as np
import pytest
import torch
from page_numbers import printed, printed_share
from playwright.sync_api import expect

expect.set_options(timeout=60_000)
SIZES = {"T": 9, "D": 6, "length": 1.5}


def open_view(page, **state):
    page.goto_view("kernels", **SIZES, **state)
    page.wait_for_selector("[data-figure=error]")
    page.wait_for_selector(".chart polyline")


def read_matrix(page, label):
    find = f"canvas.matrix[aria-label='{label}']"
    found = page.locator(find).evaluate("(c) => [c.matrix.T, c.matrix.S, [...c.matrix.data]]")
    return np.array(found[2]).reshape(found[:2])


def figure(page, name):
    return page.locator(f"[data-figure={name}]")


@pytest.mark.parametrize("features", ["positive", "fourier", "elu", "quadratic"])
def test_the_matrices_and_the_error_are_those_of_pytorch(page, studio, features):
    open_view(page)
    page.get_by_role("button", name=features, exact=True).click()
    answer = studio.ask("compare_kernels", {"features": features, "m": 64, **SIZES})
    expect(figure(page, "error")).to_have_text(printed_share(answer["error"]))
    expect(figure(page, "features")).to_have_text(str(answer["n_features"]))
    names = {"Softmax, exact": "exact", "By features": "approximate", "Difference": "difference"}
    for label, name in names.items():
        assert np.array_equal(read_matrix(page, label), answer[name])


def test_each_slider_gives_the_weights_of_pytorch_for_its_size(page, studio):
    open_view(page, features="elu")
    sizes = dict(SIZES)
    for label, name, value in (
        ("tokens T", "T", 12),
        ("width D", "D", 10),
        ("length of q and k", "length", 3.5),
    ):
        before = read_matrix(page, "Softmax, exact")
        page.get_by_label(label, exact=True).fill(str(value))
        sizes[name] = value
        answer = studio.ask("compare_kernels", {"features": "elu", **sizes})
        expect(figure(page, "error")).to_have_text(printed_share(answer["error"]))
        q, k = torch.tensor(answer["q"]), torch.tensor(answer["k"])
        assert (len(q), q.shape[1]) == (sizes["T"], sizes["D"])
        exact = (q @ k.mT / math.sqrt(sizes["D"])).softmax(-1)
        shown = read_matrix(page, "Softmax, exact")
        np.testing.assert_allclose(shown, exact, atol=1e-6)
        assert not np.array_equal(shown, before)
        approximate = read_matrix(page, "By features")
        assert np.array_equal(approximate, answer["approximate"])


def test_more_frequencies_make_the_error_smaller(page, studio):
    open_view(page, features="fourier")
    errors = []
    for i, m in ((2, 4), (10, 1024)):
        page.get_by_label("frequencies m", exact=True).evaluate(
            "(x, i) => { x.value = i; x.dispatchEvent(new Event('input')); }", i
        )
        answer = studio.ask("compare_kernels", {"features": "fourier", "m": m, **SIZES})
        expect(figure(page, "error")).to_have_text(printed_share(answer["error"]))
        expect(figure(page, "similarity")).to_have_text(printed_share(answer["similarity_error"]))
        expect(figure(page, "expected")).to_have_text(printed_share(answer["expected_error"]))
        errors.append(answer["error"])
    assert errors[1] < errors[0] / 4


def test_the_curve_shows_the_measured_errors_beside_the_expected_ones(page, studio):
    open_view(page, features="positive")
    curve = studio.ask("measure_kernels", SIZES)["positive"]
    expect(page.locator(".legend-entry")).to_have_text(["positive", "expected of positive: c/√m"])
    titles = page.locator(".chart g title").all_text_contents()
    assert [title.split(": ")[-1].split(" ")[0] for title in titles] == [
        printed(curve["error"][-1]),
        printed(curve["predicted"][-1]),
    ]
    expect(page.get_by_text(f"falls as m^{printed(curve['slope'], 2)}.")).to_be_visible()


def test_a_cell_is_explained_by_both_similarities(page, studio):
    open_view(page, features="quadratic", cell="4.2")
    answer = studio.ask("compare_kernels", {"features": "quadratic", **SIZES})
    expect(page.locator(".total")).to_have_text(
        [f"weight = {printed(answer[name][4, 2])}" for name in ("exact", "approximate")]
    )
    dot = answer["q"][4] @ answer["k"][2]
    similarity = f"φ(q)·φ(k) = ({printed(dot)} + 1)² = {printed((dot + 1) ** 2)}"
    expect(page.locator(".equation").nth(2)).to_have_text(similarity)


def test_explain_goes_to_the_numbers_of_the_cell(page):
    open_view(page)
    page.get_by_role("button", name="go to the equation").last.click()
    expect(page.get_by_role("region", name="This cell")).to_be_focused()


def test_an_address_with_an_unknown_word_shows_the_first_choice(page):
    page.goto_view("kernels", features="constructor")
    expect(page.locator("canvas").first).to_be_visible()
    assert page.get_by_role("alert").count() == 0
    expect(page.get_by_role("button", name="positive", exact=True)).to_have_attribute(
        "aria-pressed", "true"
    )
