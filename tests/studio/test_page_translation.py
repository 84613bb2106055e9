"""The translation view in a browser: what it prints is what PyTorch computes, to the last digit."""

import math
import re

import pytest
import torch
from playwright.sync_api import expect
from printed_values import agrees
from running_studio import RunningStudio

from clearhead.generation import beam_search
from clearhead.inspection import record
from clearhead.runs import load_run
from clearhead.training import find_recipe, train, with_changes

TEXT = "sep 21, 1883"
NOISE = 1e-5  # of log p: the difference of two logits of about 20 in float32
WORDS = "[aria-label='words of the translation'] .chip"
SMALL = [
    "data.n_examples=50",
    "data.n_validation=9",
    "data.n_decoded=2",
    "model.d_model=12",
    "model.n_heads=3",
    "model.n_layers=2",
    "model.d_ff=10",
    "training.steps=1",
    "training.eval_every=1",
    "training.save_every=1",
    "training.batch_size=8",
    "training.warmup=1",
]


@pytest.fixture(scope="module")
def run(lecture):
    return lecture.open("dates").run


@pytest.fixture(scope="module")
def source(run):
    return torch.tensor([run.predictor.source.encode(TEXT)])


def write(run, source, prefix=None):
    """The greedy translation, its probabilities (T, V), and the recorded attention."""
    n_tokens, forbid = run.predictor.most_tokens(run.model), run.predictor.forbid
    prefix = None if prefix is None else torch.tensor([prefix])
    written = run.model.generate(source, n_tokens, forbid=forbid, prefix=prefix)
    inputs = torch.cat((torch.tensor([[run.model.config.start_id]]), written[:, :-1]), dim=1)
    with torch.no_grad(), record(run.model) as trace:
        probs = run.model(source, inputs)[0].softmax(-1)
    return written[0].tolist(), probs, trace


def open_translation(page, **state):
    page.goto_view("translation", model="dates", **{"text": TEXT, **state})
    page.wait_for_selector(".beam-node")


def read_bars(page):
    """The words and probabilities of the open step."""
    section = page.get_by_role("region", name="One step")
    names = section.locator(".bar-name").all_inner_texts()
    return dict(zip(names, section.locator(".bar-number").all_inner_texts(), strict=True))


def test_a_sentence_is_typed_and_translated(page, run):
    open_translation(page)
    text = "march 3, 1984"
    page.get_by_label("sentence").fill(text)
    expect(page.locator(".translation-text")).to_have_text("1984-03-03")
    ids, probs, _ = write(run, torch.tensor([run.predictor.source.encode(text)]))
    assert page.locator(WORDS).all_inner_texts() == run.predictor.target.spell(ids, specials=True)
    log_p = sum(float(probs[t, word].log()) for t, word in enumerate(ids))
    p, shown = re.search(r"p = (\S+), log p = (\S+)", page.locator(".view").inner_text()).groups()
    assert agrees(p, torch.tensor(log_p).exp())
    assert agrees(shown, log_p, NOISE)
    page.get_by_label("sentence").fill("no date")
    expect(page.get_by_text("Note: the input is written like none of the dates")).to_be_visible()
    page.get_by_label("sentence").fill(" ")
    expect(page.get_by_role("alert")).to_have_text(
        "the text is empty; type a sentence to translate"
    )
    page.expected.append("status of 400")


def test_each_step_has_the_probabilities_of_the_model(page, run, source):
    open_translation(page)
    ids, probs, _ = write(run, source)
    names = run.predictor.target.spell(range(probs.size(1)), specials=True)
    for step in (0, 1):
        expect(page.get_by_text(f"step {step} of {len(ids) - 1}", exact=True)).to_be_visible()
        bits = torch.special.entr(probs[step]).sum().item() / math.log(2)
        words = page.get_by_text("Entropy").inner_text()
        assert agrees(words.partition("Entropy ")[2].partition(" bits")[0], bits)
        shown = read_bars(page)
        assert list(shown) == [names[i] for i in probs[step].topk(12).indices.tolist()]
        assert all(agrees(text, probs[step, names.index(name)]) for name, text in shown.items())
        page.get_by_role("button", name="the next step").click()


def test_a_forced_word_changes_what_follows(page, run, source):
    open_translation(page, step=2)
    ids, _, _ = write(run, source)
    names = run.predictor.target.spell(range(14), specials=True)
    other = names.index("5")
    section = page.get_by_role("region", name="One step")
    section.locator(".bar-row", has_text=re.compile("^5")).first.click()
    expect(page.locator(".chip.forced")).to_have_text("5")
    best = names[ids[2]]
    expect(section).to_contain_text("you made it write “5” (probability ")
    expect(section).to_contain_text(f"it would have written “{best}” (")
    forced, probs, _ = write(run, source, prefix=[*ids[:2], other])
    assert page.locator(WORDS).all_inner_texts() == [names[i] for i in forced]
    shown = read_bars(page)
    assert all(agrees(text, probs[2, names.index(name)]) for name, text in shown.items())
    page.get_by_role("button", name="let the model choose").click()
    expect(page.locator(".chip.forced")).to_have_count(0)
    assert page.locator(WORDS).all_inner_texts() == [names[i] for i in ids]


def test_the_alignment_holds_the_weights_and_a_cell_is_explained(page, run, source):
    open_translation(page, step=1, place=3)
    _, _, trace = write(run, source)
    calls = trace.calls("decoder.attention")
    weights = torch.cat([call.weights for call in calls], dim=-2)[0]
    matrix = page.locator("canvas.matrix")
    shown = torch.tensor(matrix.evaluate("(canvas) => [...canvas.matrix.data]"))
    torch.testing.assert_close(shown.view_as(weights), weights, rtol=1e-4, atol=1e-6)
    section = page.get_by_role("region", name="Where each word looked")
    words = section.get_by_text("Step 1, ").inner_text()
    assert agrees(re.search(r"weight (\S+) on “p” at position 3", words)[1], weights[1, 3])
    section.get_by_role("button", name="explain").click()
    expect(section.locator(".explained-weight")).to_be_visible()
    assert agrees(section.locator(".explained-weight").inner_text(), weights[1, 3])
    # Lines: strong ones belong to the word under the mouse.
    page.locator(".alignment-token[role=button]").nth(8).hover()
    n_strong = int((weights[8] >= 0.03).sum())
    expect(page.locator(".alignment-line.strong")).to_have_count(n_strong)
    page.locator(".alignment-token[role=button]").nth(8).click()
    page.wait_for_function("() => location.hash.includes('step=8')")


def test_the_beams_are_those_of_beam_search(page, run, source):
    open_translation(page, beams=3)
    section = page.get_by_role("region", name="Beam search")

    def compare(n_beams, length_penalty):
        steps = []
        found = beam_search(
            run.model,
            source,
            run.predictor.most_tokens(run.model),
            n_beams=n_beams,
            length_penalty=length_penalty,
            forbid=run.predictor.forbid,
            watch=lambda *step: steps.append(step),
        )
        log_probs = torch.cat([step[2] for step in steps]).flatten()
        log_probs = log_probs[log_probs.isfinite()]
        expect(section.locator(".beam-node[role=button]")).to_have_count(len(log_probs))
        shown = section.locator(".beam-node[role=button] .beam-number").all_text_contents()
        assert all(agrees(text, p, NOISE) for text, p in zip(shown, log_probs, strict=True))
        rows = section.locator("tbody tr")
        n_found = int((found.lengths[0] > 0).sum())
        expect(rows).to_have_count(n_found)
        for place, row in enumerate(rows.all()):
            text, log_p, length, score, _ = row.locator("td").all_inner_texts()
            words = found.tokens[0, place, : found.lengths[0, place]].tolist()
            assert text == run.predictor.decode(words)
            assert length == str(int(found.lengths[0, place]))
            assert agrees(log_p, found.log_probs[0, place], NOISE)
            assert agrees(score, found.scores[0, place], NOISE)
        return found

    found = compare(3, 1.0)
    best = int(found.lengths[0, 0])
    assert section.locator(".beam-node.on-path[role=button]").count() == best
    section.get_by_label("beams", exact=True).fill("5")
    page.wait_for_function("() => location.hash.includes('beams=5')")
    expect(section.locator("svg")).to_have_attribute("height", str(22 + 5 * 46 + 4))
    compare(5, 1.0)
    section.get_by_label("length penalty").fill("0")
    page.wait_for_function("() => location.hash.includes('penalty=0')")
    section.get_by_role("button", name="explain").click()
    expect(section.locator(".explanation")).to_contain_text("^0.0")
    compare(5, 0.0)
    # A box that lost: the path to it is drawn, and its log p is the sum of its words'.
    section.locator(".beam-node[role=button]").nth(4).click()
    expect(section.locator(".beam-node.on-path[role=button]")).to_have_count(1)
    expect(section.locator(".explanation")).to_contain_text("÷ 1^0.0")


def test_the_view_in_the_address_is_opened_again_on_a_telephone(page, run, source):
    ids, _, _ = write(run, source)
    page.set_viewport_size({"width": 390, "height": 800})
    open_translation(
        page, prefix=str([ids[0], run.predictor.target.tokens.index("7")]), step=1, beams=6
    )
    expect(page.locator(".chip.forced")).to_have_text("7")
    expect(page.get_by_label("beams", exact=True)).to_have_value("6")


@pytest.mark.slow  # a studio of its own
def test_any_layer_and_head_of_a_transformer_is_shown(browser, tmp_path):
    recipe = with_changes(find_recipe("translate-transformer"), SMALL)
    folder = train(recipe, tmp_path / "runs", threads=1).run
    studio = RunningStudio(str(folder), folder=tmp_path)
    try:
        context = browser.new_context()
        page = context.new_page()
        page.set_default_timeout(60_000)
        page.goto(studio.url)
        page.goto(f"{studio.address}/#view=translation&text={TEXT}&step=2&place=4")
        page.wait_for_selector(".beam-node")
        run = load_run(folder, device="cpu")
        ids, _, trace = write(run, torch.tensor([run.predictor.source.encode(TEXT)]))
        section = page.get_by_role("region", name="Where each word looked")
        section.get_by_label("layer").select_option("0")
        section.get_by_label("head").select_option("2")
        weights = trace["decoder.blocks.0.cross_attention"].weights[0]  # (H, T, S)
        assert weights.shape[:2] == (3, len(ids))
        words = section.get_by_text("Step 2, ").inner_text()
        assert agrees(re.search(r"weight (\S+) on", words)[1], weights[2, 2, 4])
        section.get_by_role("button", name="explain").click()
        expect(section.locator(".explained-weight")).to_be_visible()
        assert agrees(section.locator(".explained-weight").inner_text(), weights[2, 2, 4])
        section.get_by_label("head").select_option("")
        words = section.get_by_text("Step 2, ").inner_text()
        assert agrees(re.search(r"weight (\S+) on", words)[1], weights[:, 2, 4].mean())
        context.close()
    finally:
        studio.stop()
