"""The Generate view in a browser: its numbers are PyTorch's, its tokens those of generate."""

import math

import pytest
import torch
from page_numbers import NUMBER, wait_for, wait_for_numbers
from playwright.sync_api import expect
from printed_values import agrees

from clearhead.generation import Sampling, generate, likely
from clearhead.inspection import ablate, logit_lens

expect.set_options(timeout=60_000)
TEXT = "ROMEO:"
BITS = 1 / math.log(2)


@pytest.fixture(scope="module")
def opened(lecture):
    return lecture.open("shakespeare")


@pytest.fixture(scope="module")
def prompt(opened):
    return opened.tokenizer.encode(TEXT)


def read(opened, tokens):
    """Logits (T, V)."""
    with torch.no_grad():
        return opened.model(torch.tensor([tokens]))[0]


def write(opened, prompt, n, **settings):
    """The new tokens of generate."""
    return generate(opened.model, torch.tensor([prompt]), n, **settings)[0, len(prompt) :].tolist()


def show(token):
    """As tokenName shows a character."""
    return {" ": "·", "\n": "⏎"}.get(token, token)


def names(opened, ids):
    return [show(opened.tokenizer.decode([i])) for i in ids]


def open_view(page, **state):
    page.goto_view("generate", model="shakespeare", text=TEXT, **state)
    page.wait_for_selector(".bar-row")


def wait_for_tokens(page, opened, ids):
    """Until these tokens follow the prompt and the answer for them is there."""
    wait_for(page, ".taken-chip", names(opened, ids))
    expect(page.get_by_role("button", name="draw next: ")).to_be_visible()


def press(page, name):
    page.get_by_role("button", name=name).first.click()


# The next token


def test_bars_and_entropy_are_those_of_the_model(page, opened, prompt):
    open_view(page)
    probs = read(opened, prompt)[-1].softmax(-1)
    best = probs.topk(12)
    wait_for(page, ".bar-name", names(opened, best.indices.tolist()))
    wait_for_numbers(page, ".bar-number", 100 * best.values)
    wait_for_numbers(page, ".entropy", [-(probs * probs.log()).sum() * BITS])


def test_all_bars_have_the_same_scale(page):
    open_view(page)
    rows = "els => els.map(e => e.querySelector('.bar-track').getBoundingClientRect().width)"
    widths = page.locator(".bar-row").evaluate_all(rows)
    assert len(widths) == 12
    assert max(widths) - min(widths) < 0.01


def test_settings_change_what_is_drawn_from(page, opened, prompt):
    open_view(page, temperature=0.5, top_p=0.95)
    page.get_by_label("top-k").fill("3")
    logits = read(opened, prompt)[-1:]
    best = logits[0].softmax(-1).topk(12)
    after = likely(logits, Sampling(0.5, 3, 0.95))[0]
    pairs = torch.stack((best.values, after[best.indices]), dim=1)  # before → after
    wait_for_numbers(page, ".bar-number", 100 * pairs.flatten())
    page.get_by_label("temperature").focus()
    page.keyboard.press("Home")
    expect(page.get_by_text("At temperature 0 the most likely token is taken")).to_be_visible()
    assert "temperature=0" in page.url
    assert "top_k=3" in page.url


def test_next_takes_the_tokens_of_generate_with_this_seed(page, opened, prompt):
    open_view(page, temperature=0.8, seed=3)
    for _ in range(6):  # without waiting for the answers
        page.get_by_role("button", name="draw next").click()
    expected = write(opened, prompt, 6, temperature=0.8, seed=3)
    wait_for_tokens(page, opened, expected)
    logits = read(opened, prompt + expected).log_softmax(-1)
    for i, token in enumerate(expected, start=len(prompt)):
        title = page.locator(".surprise-row .chip").nth(i).get_attribute("title")
        start, bits = title.split(": ")
        assert start == f"token {i}, {names(opened, [token])[0]}"
        assert agrees(bits.removesuffix(" bits"), -logits[i - 1, token] * BITS)


def test_explain_shows_where_the_draw_falls(page, opened, prompt):
    open_view(page, temperature=0.8, seed=3)
    page.locator(".panel", has_text="The next token").get_by_text("explain").click()
    generator = torch.Generator().manual_seed(3)
    draw = torch.rand((), generator=generator)
    after = likely(read(opened, prompt)[-1:], Sampling(0.8))[0].double()
    (token,) = write(opened, prompt, 1, temperature=0.8, seed=3)
    start, end = after[:token].sum(), after[: token + 1].sum()
    words = page.locator(".explanation").first.inner_text().partition("the draw ")[2]
    assert all(map(agrees, NUMBER.findall(words), (draw, start, end)))
    assert start <= draw <= end


# Branches


def test_branches_stay_and_each_node_has_its_probabilities(page, opened, prompt):
    open_view(page, temperature=0)
    best = read(opened, prompt)[-1].topk(12).indices.tolist()
    page.locator(".bar-row").nth(1).click()
    wait_for_tokens(page, opened, [best[1]])
    following = read(opened, [*prompt, best[1]])[-1].topk(12).indices.tolist()
    page.locator(".bar-row").nth(1).click()
    wait_for_tokens(page, opened, [best[1], following[1]])
    press(page, "← back")
    wait_for_tokens(page, opened, [best[1]])
    page.locator(".bar-row").nth(0).click()
    wait_for_tokens(page, opened, [best[1], following[0]])
    first = read(opened, prompt).log_softmax(-1)[-1]
    second = read(opened, [*prompt, best[1]]).log_softmax(-1)[-1]
    nodes = page.locator(".continuation")
    labels = [node.get_attribute("aria-label") for node in nodes.all()]
    assert labels[0] == "the prompt"
    start = first[best[1]]
    check_label(labels[1], opened, best[1], start, start)
    for label, token in zip(labels[2:], following[:2], strict=True):
        check_label(label, opened, token, second[token], start + second[token])
    assert page.locator(".continuation.on-path").count() == 3
    nodes.nth(3).click()  # the branch that was left
    wait_for_tokens(page, opened, [best[1], following[1]])
    expect(page.locator(".node-detail")).to_have_text(f"Here: {labels[3]} of 2 tokens.")
    page.locator(".taken-chip").first.focus()
    page.keyboard.press("Enter")
    wait_for_tokens(page, opened, [best[1]])
    press(page, "remove other branches")
    expect(page.locator(".continuation")).to_have_count(2)


def check_label(label, opened, token, log_prob, joint):
    name, words = label.split(": ")
    assert name == names(opened, [token])[0]
    p, log = words.removeprefix("probability ").split(", joint log probability ")
    assert agrees(p, log_prob.exp())
    assert agrees(log, joint)


def test_expand_shows_the_likeliest_two_levels_deep(page, opened, prompt):
    open_view(page)
    press(page, "expand")
    expect(page.locator(".continuation.unvisited")).to_have_count(12)
    expected = []
    first = read(opened, prompt)[-1].softmax(-1).topk(3)
    for p, token in zip(first.values, first.indices.tolist(), strict=True):
        second = read(opened, [*prompt, token])[-1].softmax(-1).topk(3)
        expected += [p, *second.values]
    wait_for_numbers(page, ".continuation-number", [100 * p for p in expected])
    page.locator(".continuation").nth(3).press("Enter")  # the second after the first
    best = read(opened, [*prompt, first.indices[0].item()])[-1].topk(2).indices.tolist()
    wait_for_tokens(page, opened, [first.indices[0].item(), best[1]])


# Writing


def test_write_gives_the_text_of_generate(page, opened, prompt):
    open_view(page, seed=5)
    page.get_by_role("button", name="draw next").click()
    whole = write(opened, prompt, 25, temperature=1.0, seed=5)
    wait_for_tokens(page, opened, whole[:1])
    page.get_by_label("how many tokens to write").fill("24")
    press(page, "write")
    wait_for_tokens(page, opened, whole)
    expect(page.get_by_text("24 of 24 tokens")).to_be_visible()
    page.reload()  # the address knows the text
    wait_for_tokens(page, opened, whole)


def limit_download(page, rate):
    """Bytes a second that the page receives; −1: no limit."""
    page.context.new_cdp_session(page).send(
        "Network.emulateNetworkConditions",
        {"offline": False, "latency": 0, "downloadThroughput": rate, "uploadThroughput": -1},
    )


def test_stop_ends_the_writing(page, opened):
    open_view(page)
    limit_download(page, 1500)
    page.get_by_label("how many tokens to write").fill("50")
    press(page, "write")
    page.wait_for_selector(".taken-chip")
    page.get_by_role("button", name="stop").click()
    limit_download(page, -1)
    expect(page.get_by_role("button", name="stop")).to_be_hidden()
    expect(page.get_by_role("button", name="draw next: ")).to_be_enabled()
    assert 1 <= page.locator(".taken-chip").count() < 50


def test_another_prompt_ends_the_writing_and_has_no_tokens_of_it(page):
    open_view(page)
    limit_download(page, 1500)
    page.get_by_label("how many tokens to write").fill("50")
    press(page, "write")
    page.wait_for_selector(".taken-chip")
    page.get_by_role("textbox", name="prompt").fill("a b")
    expect(page.get_by_role("button", name="stop")).to_be_hidden()
    limit_download(page, -1)
    wait_for(page, ".prompt-chip", ["a", "·", "b"])
    expect(page.get_by_role("button", name="draw next: ")).to_be_enabled()
    assert page.locator(".taken-chip").count() == 0
    assert "path" not in page.url


def test_a_full_context_is_said_and_nothing_more_is_written(page, opened):
    open_view(page)
    page.get_by_label("how many tokens to write").fill("1000")
    press(page, "write")
    expect(page.locator(".node-detail")).to_contain_text("The text has 64 tokens, as many as")
    expect(page.locator(".taken-chip")).to_have_count(64 - len(TEXT))
    expect(page.get_by_role("button", name="draw next")).to_be_disabled()


# The lens and the cache


def test_the_lens_is_that_of_inspection_at_any_position(page, opened, prompt):
    open_view(page)
    probs = logit_lens(opened.model, torch.tensor([prompt]))[:, 0].softmax(-1)  # (L + 1, T, V)
    for position, key in ((len(prompt) - 1, None), (0, "Home")):
        if key:
            page.get_by_label("after token").focus()
            page.keyboard.press(key)
        best = probs[:, position].topk(6)
        flat = best.indices.flatten().tolist()
        wait_for(page, ".lens-token", names(opened, flat))
        wait_for_numbers(page, ".lens-number", 100 * best.values.flatten())
        entropy = -(probs[:, position] * probs[:, position].log()).sum(-1) * BITS
        wait_for_numbers(page, ".lens-entropy", entropy)
        answer = best.indices[-1, 0]
        assert page.locator(".lens-box.answer").count() == int((best.indices == answer).sum())
    page.reload()  # the address knows the position
    wait_for(page, ".lens-token", names(opened, flat))


def test_the_cache_holds_what_the_model_keeps(page, opened, prompt):
    open_view(page, path=",".join(map(str, prompt[:3])))
    caches = opened.model.make_caches()
    with torch.no_grad():
        opened.model(torch.tensor([prompt + prompt[:3]]), caches=caches)
    held = [[x.numel() for x in cache.read()] for cache in caches]
    wait_for(page, ".slot-bytes", [f"{4 * sum(each):,} bytes" for each in held])
    total = sum(map(sum, held))
    per_token = total // 9
    without = per_token * (6 + 7 + 8 + 9)
    numbers = [f"{4 * total:,}", f"{total:,}", f"{without:,}", f"{without / total:.1f} ×"]
    wait_for(page, ".figure b", numbers)
    expect(page.locator(".slots.new")).to_have_count(2)
    expect(page.get_by_text("with the cache", exact=True)).to_be_visible()


# Changes, mistakes, small screens


def test_the_saved_curves_keep_their_legend(page):
    open_view(page)
    page.get_by_role("button", name="draw next").click()
    cache = page.get_by_role("region", name="The cache grows")
    cache.locator(".legend").wait_for()
    with page.expect_download() as download:
        cache.get_by_role("button", name="save as SVG").click()
    saved = download.value.path().read_text()
    assert ">with the cache<" in saved
    assert ">without<" in saved


def test_changes_in_the_address_are_made_for_every_token(page, opened, prompt):
    open_view(page, changes='[{"kind": "silence", "layer": 1, "head": 2}]')
    with ablate(opened.model, 1, 2):
        best = read(opened, prompt)[-1].softmax(-1).topk(12)
    wait_for_numbers(page, ".bar-number", 100 * best.values)
    press(page, "undo")
    best = read(opened, prompt)[-1].softmax(-1).topk(12)
    wait_for_numbers(page, ".bar-number", 100 * best.values)
    assert "changes" not in page.url


def test_what_the_model_cannot_read_is_said_beside_the_text(page):
    open_view(page)
    page.get_by_role("textbox", name="prompt").fill("a~b")
    expect(page.get_by_role("alert")).to_contain_text("text has '~' at index 1")
    page.get_by_role("textbox", name="prompt").fill("")
    expect(page.get_by_role("alert")).to_contain_text("text is empty; the model reads 1 to 64")
    page.get_by_role("textbox", name="prompt").fill("a b")
    expect(page.get_by_role("alert")).to_have_count(0)
    wait_for(page, ".prompt-chip", ["a", "·", "b"])
    page.expected.append("status of 400")


def test_a_prompt_that_the_model_cannot_read_cannot_be_continued(page):
    open_view(page)
    page.get_by_role("textbox", name="prompt").fill("a~b")
    expect(page.get_by_role("alert")).to_contain_text("text has '~' at index 1")
    for name in ("draw next", "write"):
        expect(page.get_by_role("button", name=name, exact=True)).to_be_disabled()
    page.locator(".bar-row").first.click()  # a token after the old prompt
    expect(page.get_by_role("alert")).to_contain_text("text has '~' at index 1")
    assert "path" not in page.url
    page.expected.append("status of 400")


@pytest.mark.parametrize("width", [390, 1440])
def test_the_names_of_the_layers_in_the_cache_can_be_read(page, width):
    page.set_viewport_size({"width": width, "height": 800})
    open_view(page)
    names = page.locator(".slot-name, .slot-bytes")
    names.first.wait_for()
    assert min(box["height"] for box in (each.bounding_box() for each in names.all())) > 12


def test_copy_as_python_gives_lines_that_compute_the_bars(page):
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    open_view(page, temperature=0.7)
    page.locator(".panel", has_text="The next token").get_by_text("Python").click()
    page.wait_for_function("async () => (await navigator.clipboard.readText()).length > 100")
    python = {}
    exec(page.evaluate("navigator.clipboard.readText()"), python)
    best = python["probs"].topk(12)
    pairs = torch.stack((best.values, python["after"][best.indices]), dim=1)
    wait_for_numbers(page, ".bar-number", 100 * pairs.flatten())


def test_each_layer_has_the_name_that_it_has_in_other_views(page):
    open_view(page)
    page.wait_for_selector(".lens-name")
    names = page.locator(".lens-name").all_text_contents()
    assert names == ["embedding", "after layer 0", "after layer 1"]


def test_a_saved_page_asks_for_nothing_that_it_cannot_do(page, browser, tmp_path):
    open_view(page)
    page.wait_for_selector(".lens-name")
    with page.expect_download() as download:
        page.get_by_role("button", name="save page").click()
    path = tmp_path / "page.html"
    download.value.save_as(path)
    context = browser.new_context()
    saved = context.new_page()
    saved.goto(path.as_uri())
    saved.wait_for_selector(".lens-name")
    assert saved.locator(".bar-row").count() == page.locator(".bar-row").count() == 12
    words = saved.locator("#view").inner_text()
    context.close()
    for invitation in ("Click a bar", "Click a token", "Take some tokens"):
        assert invitation in page.locator("#view").inner_text()
        assert invitation not in words
