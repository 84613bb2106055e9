"""Changing a model in a browser: each change does what its intervention does."""

import json

import numpy as np
import pytest
import torch
from page_numbers import printed, printed_share, wait_for

from clearhead.inspection import ablate
from clearhead.studio.views.changes import Change
from clearhead.studio.views.text import attend

TEXT, OTHER = "abccab|cca", "abccab|ccc"
LAYERS = [f"stack.blocks.{i}.attention" for i in range(3)]
CHIPS = "[aria-label=tokens] .chip"
HEADS_OF_B = "[aria-label='all heads of B'] .head"


def open_text(page, model="substring", text=TEXT, **state):
    page.goto_view("text", model=model, text=text, **state)
    page.wait_for_selector(".heads .head")


def read_answer(page):
    return page.get_by_role("group", name="answers").locator(".bar-number").all_inner_texts()


def wait_for_answer(page, studio, changes=(), **arguments):
    """Until the page shows what the studio answers with these changes; returns it."""
    question = {"model": "substring", "text": TEXT, **arguments}
    answer = studio.ask("attend", {**question, "changes": list(changes)})
    found = answer["compared"] or answer["answer"]
    texts = [printed_share(p) for p in found["probs"].reshape(-1, found["probs"].shape[-1])[-1]]
    if answer["compared"]:
        before = found["probs_before"].reshape(-1, found["probs"].shape[-1])[-1]
        texts = [f"{printed_share(p)} → {new}" for p, new in zip(before, texts, strict=True)]
    wait_for(page, "[aria-label=answers] .bar-number", texts)
    return answer


def set_slider(page, label, value):
    page.get_by_label(label, exact=True).fill(str(value))


def cell_place(page, row, column):
    """Where a cell of the large matrix is on the screen."""
    canvas = page.locator(".head-open canvas.matrix")
    canvas.scroll_into_view_if_needed()
    return canvas.evaluate(
        "(canvas, [row, column]) => {"
        " const m = canvas.matrix, box = canvas.getBoundingClientRect();"
        " const place = (start, i) => start + (i + 0.5) * m.cell;"
        " return [place(box.left + m.left, column), place(box.top + m.top, row)]; }",
        [row, column],
    )


def read_changes(page):
    return page.get_by_role("list", name="active changes").locator("li span").all_inner_texts()


def test_silencing_a_head_changes_the_answer_as_ablate_does(page, studio, lecture):
    open_text(page, layer=0, head=3)
    page.get_by_role("button", name="silence this head").click()
    change = {"kind": "silence", "layer": LAYERS[0], "head": 3}
    answer = wait_for_answer(page, studio, [change])
    opened = lecture.open("substring")
    with torch.no_grad(), ablate(opened.model, 0, 3):
        logit = opened.model(torch.tensor([opened.tokenizer.encode(TEXT)]))[0, 0, 0]
    assert float(answer["answer"]["logits"][0]) == pytest.approx(float(logit), abs=1e-4)
    assert read_changes(page) == ["layer 0 · head 3: silent"]
    assert page.get_by_text("before the change yes").count() == 1
    page.get_by_role("button", name="let it speak again").click()
    wait_for_answer(page, studio)
    assert read_changes(page) == []


def test_the_output_of_a_silent_head_is_shown_as_zero(page):
    change = {"kind": "silence", "layer": LAYERS[0], "head": 3}
    open_text(page, layer=0, head=3, changes=json.dumps([change]))
    step = page.locator(".step").last
    assert "You changed this head" in step.inner_text()
    rows = [row.locator("td").all_inner_texts() for row in step.locator("tbody tr").all()]
    assert {row[4] for row in rows} == {"0.0000"}
    box = step.locator(".table-box")
    assert box.evaluate("(node) => node.scrollWidth <= node.clientWidth")  # no column is cut


def test_the_slider_sharpens_the_open_head(page, studio):
    open_text(page, layer=1, head=0)
    set_slider(page, "sharpen", 2.5)
    change = {"kind": "sharpen", "layer": LAYERS[1], "head": 0, "factor": 2.5}
    answer = wait_for_answer(page, studio, [change])
    shown = page.locator(".head-open canvas.matrix").evaluate("(c) => [...c.matrix.data]")
    assert np.array_equal(np.float32(shown).reshape(11, 11), answer["layers"][1]["weights"][0])
    set_slider(page, "sharpen", 1)
    wait_for_answer(page, studio)


def test_painting_on_the_matrix_forbids_cells(page, studio):
    open_text(page, layer=1, head=2)
    page.get_by_role("button", name="forbid").click()
    page.mouse.move(*cell_place(page, 8, 3))
    page.mouse.down()
    page.mouse.move(*cell_place(page, 8, 4), steps=4)
    page.mouse.up()
    change = {"kind": "mask", "layer": LAYERS[1], "head": 2, "cells": [[8, 3], [8, 4]]}
    answer = wait_for_answer(page, studio, [change])
    assert answer["layers"][1]["weights"][2, 8, 3] == 0
    wait_for(page, "[aria-label='active changes'] li span", ["layer 1 · head 2: 2 cells forbidden"])
    shown = page.locator(".head-open canvas.matrix").evaluate("(c) => c.matrix.value(8, 4)")
    assert shown == 0
    page.get_by_role("heading", name="Where “c” (8) looks").wait_for()  # the painted row
    page.get_by_role("button", name="allow", exact=True).click()  # what was forbidden is free again
    page.mouse.click(*cell_place(page, 8, 3))
    wait_for_answer(page, studio, [{**change, "cells": [[8, 4]]}])


def test_a_fast_stroke_paints_every_cell_on_its_way(page, studio):
    open_text(page, layer=1, head=2)
    page.get_by_role("button", name="forbid").click()
    page.mouse.move(*cell_place(page, 8, 1))
    page.mouse.down()
    page.mouse.move(*cell_place(page, 8, 6), steps=1)
    page.mouse.up()
    cells = [[8, column] for column in range(1, 7)]
    wait_for_answer(page, studio, [{"kind": "mask", "layer": LAYERS[1], "head": 2, "cells": cells}])
    wait_for(page, "[aria-label='active changes'] li span", ["layer 1 · head 2: 6 cells forbidden"])


def test_painting_can_let_a_language_model_look_ahead(page, studio):
    open_text(page, model="shakespeare", text="ROMEO:", layer=0, head=1)
    page.get_by_role("button", name="allow", exact=True).click()
    page.mouse.click(*cell_place(page, 1, 4))
    name = "layer 0 · head 1: 1 cell allowed"
    wait_for(page, "[aria-label='active changes'] li span", [name])
    change = {"kind": "mask", "layer": LAYERS[0], "head": 1, "cells": [[1, 4]], "allow": True}
    answer = wait_for_answer(page, studio, [change], model="shakespeare", text="ROMEO:")
    assert answer["layers"][0]["weights"][1, 1, 4] > 0


def test_a_mask_is_edited_with_the_keyboard(page):
    open_text(page, layer=0, head=0, row=2, column=2)
    page.get_by_role("button", name="forbid").click()
    page.locator(".head-open canvas.matrix").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    wait_for(page, "[aria-label='active changes'] li span", ["layer 0 · head 0: 1 cell forbidden"])
    assert "[[2,3]]" in page.evaluate("decodeURIComponent(location.hash)")


def test_a_token_is_swapped_for_another_of_the_vocabulary(page, studio):
    open_text(page)
    page.get_by_role("button", name="token 10: a").click()
    page.locator(".swap").get_by_role("button", name="c", exact=True).click()
    wait_for(page, CHIPS, ["[CLS]", *"abccab|ccc"])
    ids = studio.ask("attend", {"model": "substring", "text": OTHER})["tokens"]
    wait_for_answer(page, studio, tokens=ids)
    assert read_changes(page) == ["token 10 is now “c”"]
    page.get_by_role("button", name="remove: token 10").click()
    wait_for(page, CHIPS, ["[CLS]", *TEXT])


def test_the_temperature_changes_the_probabilities(page, studio):
    open_text(page, model="shakespeare", text="ROMEO:")
    set_slider(page, "temperature", 2)
    wait_for_answer(page, studio, model="shakespeare", text="ROMEO:", temperature=2.0)
    assert read_changes(page) == ["temperature 2.0"]


def test_a_head_is_copied_from_another_sentence_by_dragging(page, studio):
    open_text(page, other=OTHER)
    page.wait_for_selector(HEADS_OF_B)
    page.locator(HEADS_OF_B).nth(6).drag_to(page.locator(".heads").first)
    change = {"kind": "patch", "layer": LAYERS[1], "head": 2, "from_text": OTHER}
    answer = wait_for_answer(page, studio, [change])
    assert answer["answer"]["probs"][1] > 0.9  # the answer of B: no
    assert read_changes(page) == [f"layer 1 · head 2: copied from “{OTHER}”"]


def test_a_token_is_copied_from_another_sentence_by_dragging(page, studio):
    open_text(page, other=OTHER, layer=1)
    page.wait_for_selector(HEADS_OF_B)
    page.get_by_role("button", name="token 3 of B").drag_to(
        page.get_by_role("button", name="token 3: c")
    )
    change = {"kind": "patch", "layer": "stack.blocks.1", "position": 3, "from_position": 3}
    wait_for_answer(page, studio, [{**change, "from_text": OTHER}])
    assert read_changes(page) == [f"after layer 1: copied from “{OTHER}” at position 3"]


def test_copying_works_without_a_mouse(page, studio):
    open_text(page)
    page.get_by_role("button", name="a second sentence B").press("Enter")
    page.get_by_label("sentence B", exact=True).fill("ccab|c")
    page.wait_for_selector(HEADS_OF_B)
    page.get_by_role("button", name="token 2 of B").press("Enter")
    page.get_by_label("onto token").select_option("5")
    page.get_by_label("its state").select_option("0")
    page.get_by_role("button", name="copy to A").press("Enter")
    change = {"kind": "patch", "layer": "stack.blocks.0", "position": 5, "from_position": 2}
    wait_for_answer(page, studio, [{**change, "from_text": "ccab|c"}])
    words = "after layer 0: copied from “ccab|c” at position 5, from position 2"
    assert read_changes(page) == [words]


def test_the_heat_map_shows_the_effect_of_each_head_and_opens_it(page, studio):
    open_text(page)
    region = page.get_by_role("region", name="Why this answer?")
    found = studio.ask("measure_heads", {"model": "substring", "text": TEXT})
    canvas = region.locator("canvas.matrix")
    canvas.wait_for()
    shown = np.float32(canvas.evaluate("(c) => [...c.matrix.data]")).reshape(3, 4)
    assert np.array_equal(shown, found["effect"])
    assert f"now {printed(found['unchanged'])}" in region.inner_text()
    canvas.scroll_into_view_if_needed()
    x, y = canvas.evaluate("({ matrix: m }) => [m.left + 3.5 * m.cell, m.top + 1.5 * m.cell]")
    canvas.click(position={"x": x, "y": y})
    page.wait_for_function("location.hash.includes('layer=1') && location.hash.includes('head=3')")


def test_other_measures_show_the_numbers_of_the_studio(page, studio):
    open_text(page, other=OTHER)
    region = page.get_by_role("region", name="Why this answer?")
    region.get_by_role("button", name="copy each head from B").click()
    region.get_by_text("for A and").wait_for()
    found = studio.ask("sweep_patches", {"model": "substring", "text": TEXT, "other": OTHER})
    shown = np.float32(region.locator("canvas.matrix").evaluate("(c) => [...c.matrix.data]"))
    assert np.array_equal(shown.reshape(3, 4), found["recovered"])
    region.get_by_role("button", name="the logit as a sum").click()
    region.get_by_text("sum of all parts").wait_for()
    found = studio.ask("attribute", {"model": "substring", "text": TEXT})
    assert printed(found["total"]) in region.inner_text()
    region.get_by_role("button", name="what each layer would say").click()
    region.get_by_text("after layer 2").wait_for()
    found = studio.ask("read_layers", {"model": "substring", "text": TEXT})["answer"]
    assert printed_share(found["probs"][0].max()) in region.inner_text()


def read_equation(region):
    """The numbers after the last = of each line of the explanation."""
    lines = region.locator(".explanation .equation").inner_text().splitlines()
    return [line.rpartition("= ")[2] for line in lines if "= " in line]


def test_explain_shows_how_each_effect_is_computed(page, studio):
    open_text(page, other=OTHER, layer=1, head=2)
    region = page.get_by_role("region", name="Why this answer?")
    region.get_by_text("Measured: the logit").wait_for()
    region.get_by_text("explain", exact=True).click()
    found = studio.ask("measure_heads", {"model": "substring", "text": TEXT})
    silent, effect = found["values"][1, 2], found["effect"][1, 2]
    assert read_equation(region) == [printed(x) for x in (found["unchanged"], silent, effect)]
    question = {"model": "substring", "text": TEXT, "other": OTHER}
    for tab, over, i in (("head", "head", 2), ("token", "position", 4)):
        region.get_by_role("button", name=f"copy each {tab} from B").click()
        page.get_by_role("button", name="token 4: c").click()  # the row
        found = studio.ask("sweep_patches", {**question, "over": over})
        ends = [found["unchanged"], found["goal"], found["values"][1, i], found["recovered"][1, i]]
        region.get_by_text(f"m_B = {printed(ends[1])}").wait_for()
        assert read_equation(region) == [printed(x) for x in ends]


def test_explain_shows_how_the_answer_follows_from_the_logits(page, studio):
    open_text(page)
    region = page.get_by_role("region", name="The answer")
    region.get_by_text("explain", exact=True).click()
    found = studio.ask("attend", {"model": "substring", "text": TEXT})["answer"]
    assert read_equation(region) == [printed(found["logits"][0]), printed(found["probs"][0])]
    open_text(page, model="shakespeare", text="ROMEO:", temperature=0.5)
    region.get_by_text("explain", exact=True).click()
    question = {"model": "shakespeare", "text": "ROMEO:", "temperature": 0.5}
    found = studio.ask("attend", question)["compared"]
    rows = [row.locator("td").all_inner_texts() for row in region.locator("tbody tr").all()]
    assert [row[1] for row in rows] == [printed(x) for x in found["logits"][-1]]
    assert [row[3] for row in rows] == [printed(x) for x in found["probs"][-1]]


def test_the_changes_are_in_the_address(page, studio):
    changes = [
        {"kind": "silence", "layer": LAYERS[2], "head": 0},
        {"kind": "sharpen", "layer": LAYERS[0], "head": 1, "factor": 0.5},
    ]
    open_text(page, changes=json.dumps(changes), layer=2, head=1)
    wait_for_answer(page, studio, changes)
    assert len(read_changes(page)) == 2
    page.get_by_role("button", name="logit", exact=True).click()
    page.reload()
    page.locator(".tab[aria-pressed=true]", has_text="logit").wait_for()
    page.get_by_role("button", name="probability", exact=True).click()
    wait_for_answer(page, studio, changes)
    page.get_by_role("button", name="remove all changes").click()
    wait_for_answer(page, studio)
    assert "changes" not in page.url


def test_copy_as_python_gives_lines_that_compute_the_same(page, studio):
    change = {"kind": "silence", "layer": LAYERS[1], "head": 0}
    open_text(page, changes=json.dumps([change]))
    page.evaluate("navigator.clipboard.writeText = async (text) => { window.copied = text; }")
    region = page.get_by_role("region", name="Change something")
    region.get_by_role("button", name="copy as Python").click()
    page.wait_for_function("window.copied !== undefined")
    variables = {}
    exec(page.evaluate("window.copied"), variables)
    answer = wait_for_answer(page, studio, [change])
    assert float(variables["probs"]) == pytest.approx(float(answer["answer"]["probs"][0]), abs=1e-5)


def test_a_changed_model_writes_in_generate(page, lecture):
    open_text(page, model="shakespeare", text="ROMEO:", layer=1, head=0)
    go_on = page.get_by_role("button", name="write with these changes")
    assert not go_on.is_visible()
    page.get_by_role("button", name="silence this head").click()
    go_on.click()
    page.get_by_text("The model is changed (1)").wait_for()
    opened = lecture.open("shakespeare")
    tokens = torch.tensor([opened.tokenizer.encode("ROMEO:")])
    with torch.no_grad(), ablate(opened.model, 1, 0):
        probs = opened.model(tokens)[0, -1].softmax(-1)
    shares = [f"{100 * p:.2f} %" for p in probs.topk(12).values.tolist()]
    wait_for(page, "[aria-label='probabilities of the next token'] .bar-number", shares)
    page.get_by_role("navigation").get_by_role("button", name="Text").click()
    wait_for(page, "[aria-label='active changes'] li span", ["layer 1 · head 0: silent"])


def test_a_broken_change_in_the_address_is_answered_in_a_sentence(page):
    change = {"kind": "silence", "layer": 9}
    page.goto_view("text", model="substring", text=TEXT, changes=json.dumps([change]))
    page.get_by_role("alert").first.wait_for()
    assert "layer must be from 0 to 2" in page.get_by_role("alert").first.inner_text()
    page.expected.append("status of 400")


def test_the_studio_and_the_library_agree(studio, lecture):
    change = Change("sharpen", 1, 2, factor=3.0)
    ours = attend(lecture, "substring", TEXT, changes=[change])["answer"]["logits"]
    plain = {"kind": "sharpen", "layer": 1, "head": 2, "factor": 3.0}
    theirs = studio.ask("attend", {"model": "substring", "text": TEXT, "changes": [plain]})
    assert np.allclose(ours.numpy(), theirs["answer"]["logits"], atol=1e-4)


def test_the_answer_after_each_layer_is_explained_with_its_logit(page, studio):
    for model, text, position in (("substring", TEXT, 0), ("shakespeare", "ROMEO:", 3)):
        page.goto_view("text", model=model, text=text, measure="layers", position=position)
        region = page.get_by_role("region", name="Why this answer?")
        region.locator("table.lens").wait_for()
        region.get_by_text("explain", exact=True).click()
        found = studio.ask("read_layers", {"model": model, "text": text})["answer"]
        at = position if model == "shakespeare" else slice(None)
        logits, probs = found["logits"][:, at], found["probs"][:, at]
        assert read_equation(region)[-len(probs) :] == [printed(x) for x in probs[:, 0]]
        words = region.locator(".explanation .equation").inner_text()
        assert all(f"z = {printed(z)}, p(" in words for z in logits[:, 0])
