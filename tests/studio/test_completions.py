"""The texts of /v1/completions: the tokens of generate, cut at stop strings, with their numbers."""

import asyncio
import json
import math
import shutil
from dataclasses import replace
from itertools import accumulate
from types import SimpleNamespace

import pytest
import torch
from starlette.routing import Router
from talking_model import MAX_LEN, TEMPLATE, build_tokenizer, write_talker

from clearhead.data.tokenizers import CharTokenizer, SentencePieceTokenizer
from clearhead.data.tokenizers.sentence_pieces import format_byte
from clearhead.generation import generate
from clearhead.studio import sources as sources_module
from clearhead.studio.completion_format import CompletionFormat, make_error
from clearhead.studio.completion_requests import RequestError, read_chat, read_completion
from clearhead.studio.completions import make_routes
from clearhead.studio.frames import encode_answer
from clearhead.studio.listing import LECTURE, Source
from clearhead.studio.sources import Sources
from clearhead.studio.views.chats import FORMATS, Chat, Message, NotServed, find_chat_format
from clearhead.studio.views.completion_text import (
    Candidate,
    CompletionText,
    Entry,
    count_held,
    find_stop,
    format_content,
    format_entries,
    name_candidates,
)
from clearhead.studio.views.completions import complete, complete_chat, list_writers

PROMPTS = ["the cat", "sat on the log"]  # of unequal length


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A model with a chat format, one with an unknown one, and the built-in ones."""
    folder = tmp_path_factory.mktemp("weights")
    other = write_talker(folder / "other", "<|user|> {{ message }}")
    paths = [write_talker(folder / "talker"), other, write_talker(folder / "mute", None)]
    return Sources([str(path) for path in paths], lecture=True)


def collect(pieces):
    """The whole answer of a stream: choices by index, and usage."""
    form = CompletionFormat(read_completion({"model": "talker", "prompt": "a"}))
    for piece in pieces:
        form.add(piece)
    answer = form.finish()
    return answer["choices"], answer["usage"]


def write_alone(models, prompt, n_tokens, **settings):
    """The text that generate gives for one prompt, and its tokens."""
    opened = models.open("talker")
    ids = opened.tokenizer.encode(prompt) if isinstance(prompt, str) else prompt
    forbid = range(opened.tokenizer.vocab_size, opened.model.config.vocab_size)
    stop = [opened.tokenizer.end_id]
    tokens = torch.tensor([ids])
    found = generate(opened.model, tokens, n_tokens, forbid=forbid, stop=stop, **settings)[0]
    new = found[len(ids) :].tolist()
    return opened.tokenizer.decode([*ids, *new])[len(opened.tokenizer.decode(ids)) :], new


# Texts


def test_a_text_is_that_of_generate_with_the_same_seed(models):
    for seed in range(5):
        (choice,), usage = collect(complete(models, "talker", PROMPTS[:1], 20, seed=seed))
        text, new = write_alone(models, PROMPTS[0], 20, temperature=1.0, seed=seed)
        assert choice["text"] == text
        n_prompt = len(models.open("talker").tokenizer.encode(PROMPTS[0]))
        assert usage == {
            "prompt_tokens": n_prompt,
            "completion_tokens": len(new),
            "total_tokens": n_prompt + len(new),
        }


def test_temperature_0_takes_the_most_likely_token(models):
    (choice,), _ = collect(complete(models, "talker", PROMPTS[:1], 9, temperature=0.0))
    assert choice["text"] == write_alone(models, PROMPTS[0], 9)[0]
    assert choice["finish_reason"] == "length"


def test_texts_of_several_prompts_are_those_of_each_alone(models):
    choices, usage = collect(complete(models, "talker", PROMPTS, 12, n=3, seed=40))
    assert [choice["index"] for choice in choices] == list(range(6))
    expected = [
        write_alone(models, prompt, 12, temperature=1.0, seed=40 + 3 * p + i)
        for p, prompt in enumerate(PROMPTS)
        for i in range(3)
    ]
    assert [choice["text"] for choice in choices] == [text for text, _ in expected]
    assert len({choice["text"] for choice in choices}) == 6
    assert usage["completion_tokens"] == sum(len(new) for _, new in expected)


def test_token_ids_are_a_prompt_too(models):
    ids = models.open("talker").tokenizer.encode(PROMPTS[0])
    by_ids = collect(complete(models, "talker", [ids], 9, seed=1))
    assert by_ids == collect(complete(models, "talker", PROMPTS[:1], 9, seed=1))


def test_pieces_joined_are_whole_characters(models):
    for seed in range(4):
        pieces = list(complete(models, "talker", ["déjà vu "], 30, seed=seed))
        texts = [choice["text"] for piece in pieces for choice in piece.get("choices", [])]
        assert not any("\ufffd" in text for text in texts[:-1] if len(text) == 1)
        joined = "".join(texts)
        assert joined == write_alone(models, "déjà vu ", 30, temperature=1.0, seed=seed)[0]


def test_open_streams_give_the_texts_of_each_alone(models):
    def begin(seed):
        return complete(models, "talker", PROMPTS[seed % 2 :], 10, seed=seed, n=1 + seed % 2)

    alone = [list(begin(seed)) for seed in range(6)]
    streams, together = [begin(seed) for seed in range(6)], [[] for _ in range(6)]
    for _ in range(12):
        for stream, pieces in zip(streams, together, strict=True):
            pieces += [piece for piece in [next(stream, None)] if piece is not None]
    assert together == alone


def find_ending(models, ids, end, n_tokens):
    """A seed with which a text ends by this token, and the new tokens: row r draws with seed r."""
    opened = models.open("talker")
    forbid = range(opened.tokenizer.vocab_size, opened.model.config.vocab_size)
    stop = {end, opened.tokenizer.end_id}
    rows = torch.tensor([ids]).expand(128, -1)
    texts = generate(
        opened.model, rows, n_tokens, temperature=1.0, forbid=forbid, stop=stop, seed=0
    )
    for seed, text in enumerate(texts[:, len(ids) :].tolist()):
        places = [i for i, token in enumerate(text) if token in stop]
        if places and text[places[0]] == end and places[0] > 1:
            return seed, text[: places[0] + 1]
    raise AssertionError("no text ends")


def test_a_text_that_ends_says_so(models):
    tokenizer = models.open("talker").tokenizer
    seed, new = find_ending(models, tokenizer.encode("the"), tokenizer.end_id, 30)
    (choice,), usage = collect(complete(models, "talker", ["the"], 30, seed=seed, logprobs=0))
    assert choice["finish_reason"] == "stop"
    assert choice["text"] == write_alone(models, "the", 30, temperature=1.0, seed=seed)[0]
    assert "<|endoftext|>" not in choice["text"]
    assert len(choice["logprobs"]["tokens"]) == len(new) - 1 == usage["completion_tokens"] - 1


def test_ids_that_the_tokenizer_does_not_have_are_never_written(models):
    opened = models.open("talker")
    assert opened.model.config.vocab_size == opened.tokenizer.vocab_size + 2
    opened.model.head.weight.data[-2:] += 1.0  # they would be frequent
    for seed in range(10):
        collect(complete(models, "talker", ["the"], 30, seed=seed))
    opened.model.head.weight.data[-2:] -= 1.0


def test_words_are_written_as_prose(sources):
    choices, _ = collect(complete(sources, "dialogue-0001", ["the"], 30, seed=3, n=4))
    for choice in choices:
        assert "<unk>" not in choice["text"]
        assert " ," not in choice["text"]


def test_an_apostrophe_at_the_end_waits_for_no_other_word(sources):
    tokenizer = sources.open("dialogue-0001").tokenizer
    start, quote = tokenizer.encode("the")[:2], tokenizer.tokens.index("'")
    written = CompletionText(tokenizer, start, [])
    assert written.add(quote, is_end=False, is_last=False)["text"] == ""
    assert written.add(quote, is_end=False, is_last=True)["text"].count("'") == 2


# Stop strings


@pytest.mark.parametrize(
    ("text", "stop", "place"),
    [("abcd", ["c"], 2), ("abcd", ["x"], None), ("abcd", ["d", "bc"], 1), ("", ["a"], None)],
)
def test_the_first_stop_string_counts(text, stop, place):
    assert find_stop(text, stop) == place


@pytest.mark.parametrize(
    ("text", "stop", "n"),
    [
        ("ab", ["bcd"], 1),
        ("abc", ["bcd"], 2),
        ("ab", ["cd"], 0),
        ("aaa", ["aaab"], 3),
        ("aaaa", ["aaab"], 3),
        ("", ["a"], 0),
        ("ab", [], 0),
        ("xa", ["bb", "ab"], 1),
    ],
)
def test_what_may_begin_a_stop_string_is_held_back(text, stop, n):
    assert count_held(text, stop) == n


@pytest.mark.parametrize("stop", [["t on"], ["at", "zz"], ["sat on the m"], ["n the mat"], ["the"]])
@pytest.mark.parametrize("split", [1, 2, 3, 5])
def test_no_part_of_a_stop_string_is_given_out_however_tokens_lie(stop, split):
    text = "cat sat on the mat, the"

    class Pieces:
        """A tokenizer whose token i is the i-th piece of the text."""

        def decode(self, ids):
            return "".join(text[i * split : (i + 1) * split] for i in ids)

    written = CompletionText(build_tokenizer(), [], stop)
    written.text.tokenizer = Pieces()
    given, n = "", -(-len(text) // split)
    for token in range(n):
        given += written.add(token, is_end=False, is_last=token == n - 1)["text"]
        held_back = text[: (token + 1) * split]
        assert held_back.startswith(given)
        if written.finish_reason is not None:
            break
    assert given == text[: find_stop(text, stop)]
    assert written.finish_reason == "stop"


def test_a_stop_string_that_never_comes_keeps_nothing(models):
    plain = collect(complete(models, "talker", PROMPTS, 12, seed=2))
    assert collect(complete(models, "talker", PROMPTS, 12, seed=2, stop=["§§", "🙂x"])) == plain


def test_a_text_ends_before_its_stop_string_and_the_others_go_on(models):
    choices, _ = collect(complete(models, "talker", PROMPTS, 20, seed=2))
    first, second = (choice["text"] for choice in choices)
    stop = next(first[i : i + 3] for i in range(len(first)) if first[i : i + 3] not in second)
    stopped, usage = collect(complete(models, "talker", PROMPTS, 20, seed=2, stop=[stop]))
    assert stopped[0]["text"] == first[: first.index(stop)]
    assert stopped[0]["finish_reason"] == "stop"
    assert stopped[1] == choices[1]
    assert usage["completion_tokens"] < 40


def test_tokens_are_listed_with_their_text_and_those_of_a_stop_string_are_not():
    tokenizer = CharTokenizer("abcst ", cls=None)
    written, listed = CompletionText(tokenizer, tokenizer.encode("a"), ["at s"]), []
    for token in tokenizer.encode("ca at sat"):
        entry = Entry(*name_candidates(tokenizer, [token], [-1.0]), [])
        found = written.add(token, entry, is_end=False, is_last=False)
        assert "".join(found["logprobs"]["tokens"]) == found["text"]
        listed += zip(found["logprobs"]["text_offset"], found["logprobs"]["tokens"], strict=True)
        if written.finish_reason:
            break
    assert listed == [(1, "c"), (2, "a"), (3, " ")]


# Log probabilities


def test_log_probabilities_are_the_models_own(models):
    opened = models.open("talker")
    (choice,), _ = collect(
        complete(models, "talker", PROMPTS[:1], 8, temperature=0.5, seed=3, logprobs=4, echo=True)
    )
    ids = opened.tokenizer.encode(PROMPTS[0])
    ids += write_alone(models, PROMPTS[0], 8, temperature=0.5, seed=3)[1]
    with torch.no_grad():
        expected = opened.model(torch.tensor([ids]))[0].log_softmax(-1)
    found = choice["logprobs"]
    assert found["token_logprobs"][0] is None
    assert found["top_logprobs"][0] is None
    assert found["tokens"][0] == opened.tokenizer.decode(ids[:1])
    for i in range(1, len(ids)):
        value = expected[i - 1, ids[i]].item()
        assert found["token_logprobs"][i] == pytest.approx(value, abs=1e-4)
        top = found["top_logprobs"][i]
        best = sorted(top.values(), reverse=True)[:4]
        assert best == pytest.approx(expected[i - 1].topk(4).values.tolist(), abs=1e-4)
        assert top[found["tokens"][i]] == pytest.approx(value, abs=1e-4)
        assert len(top) in (4, 5)
    assert sum(map(math.exp, found["top_logprobs"][1].values())) <= 1.0 + 1e-5


def test_offsets_say_where_each_token_begins_in_prompt_and_text(models):
    (choice,), _ = collect(
        complete(models, "shakespeare", ["ROMEO:"], 20, seed=3, logprobs=0, echo=True)
    )
    found = choice["logprobs"]
    assert "".join(found["tokens"]) == choice["text"]
    assert found["text_offset"] == [0, *accumulate(map(len, found["tokens"]))][:-1]
    (later,), _ = collect(complete(models, "shakespeare", ["ROMEO:"], 20, seed=3, logprobs=0))
    assert later["logprobs"]["text_offset"] == found["text_offset"][6:]
    assert later["text"] == choice["text"].removeprefix("ROMEO:")
    assert all(len(top) == 1 for top in later["logprobs"]["top_logprobs"])


def test_echo_without_new_tokens_only_measures_the_prompt(models):
    choices, usage = collect(
        complete(models, "talker", PROMPTS, 0, logprobs=1, echo=True, temperature=0.0)
    )
    assert [choice["text"] for choice in choices] == PROMPTS
    assert [choice["finish_reason"] for choice in choices] == ["length", "length"]
    assert usage["completion_tokens"] == 0


def test_a_long_prompt_is_repeated_in_steps_between_which_others_are_answered(models):
    *steps, last, usage = complete(models, "talker", [[65] * 590], 0, logprobs=0, echo=True)
    assert steps == [{"choices": []}] * 18  # one for each 32 tokens
    assert len(last["choices"][0]["logprobs"]["tokens"]) == 590
    assert usage["usage"]["prompt_tokens"] == 590


def test_the_bytes_of_tokens_joined_are_the_text_even_within_a_character():
    tokenizer = build_tokenizer()
    text = "déjà vu 🦉 \ufffd"
    ids = tokenizer.encode(text)
    parts = [part for part in ids if "\ufffd" in tokenizer.decode([part])]
    assert len(parts) >= 4  # the owl was not in the text that the tokenizer has learned from
    found = name_candidates(tokenizer, ids, [-1.0] * len(ids))
    assert bytes(byte for each in found for byte in each.bytes) == text.encode()
    (unknown,) = name_candidates(tokenizer, [tokenizer.vocab_size], [-1.0])
    assert (unknown.name, unknown.bytes) == (f"#{tokenizer.vocab_size}", None)


def test_a_token_of_one_byte_of_sentence_pieces_has_this_byte():
    tokens = ["<unk>", "<s>", "</s>", *(format_byte(byte) for byte in range(256)), "th", "e", "the"]
    tokenizer = SentencePieceTokenizer(tokens, [0.0] * len(tokens))
    ids = tokenizer.encode("the é")[1:]
    assert len(ids) == 5
    found = name_candidates(tokenizer, ids, [-1.0] * 5)
    assert bytes(byte for each in found for byte in each.bytes) == " the é".encode()


@pytest.mark.parametrize("n_top", [0, 1, 5])
def test_a_conversation_lists_exactly_as_many_likely_tokens_as_asked_for(models, n_top):
    pieces = complete_chat(models, "talker", HELLO, 20, seed=3, temperature=2.0, logprobs=n_top)
    (choice,), _ = collect(pieces)
    tops = [each["top_logprobs"] for each in choice["logprobs"]["content"]]
    assert [len(top) for top in tops] == [n_top] * 20
    assert all(each["bytes"] or each["token"].startswith("#") for top in tops for each in top)
    values = [each["logprob"] for top in tops for each in top]
    assert values == [x for top in tops for x in sorted((e["logprob"] for e in top), reverse=True)]


def test_two_tokens_of_one_name_are_both_listed():
    same = [Candidate(3, "a", [97], -1.0), Candidate(5, "a", [97], -2.0)]
    rows = [(0, Entry(same[1], same))]
    assert format_entries(rows)["top_logprobs"] == [{"a": -1.0, "a #5": -2.0}]
    (only,) = format_content(rows)["content"]
    assert [each["logprob"] for each in only["top_logprobs"]] == [-1.0, -2.0]


# Lengths and models


def test_W13_a_prompt_that_does_not_fit_is_refused_with_both_lengths(models):
    with pytest.raises(ValueError, match=f"prompt has {MAX_LEN + 1:,} tokens, .* most {MAX_LEN}"):
        complete(models, "talker", [[65] * (MAX_LEN + 1)], 1)
    with pytest.raises(ValueError, match=f"prompt and max_tokens are 590 \\+ 11 .* {MAX_LEN} in"):
        complete(models, "talker", [[65] * 590], 11)
    with pytest.raises(ValueError, match=f"are {MAX_LEN} \\+ 16 tokens.*at most 0"):
        complete(models, "talker", [[65] * MAX_LEN])
    with pytest.raises(ValueError, match=r"prompt\[1\] is empty; the model reads 1 to 600 tokens"):
        complete(models, "talker", ["a", ""])
    with pytest.raises(ValueError, match=r"prompt has 1,000,000 characters, .* at most 600 tokens"):
        complete(models, "talker", ["a" * 1_000_000])
    with pytest.raises(ValueError, match="prompt has '~' at index 2"):
        complete(models, "shakespeare", ["ab~"])
    with pytest.raises(ValueError, match=r"prompt.* is 999, but ids go from 0 to"):
        complete(models, "talker", [[999]])


def test_without_a_number_16_tokens_are_written_or_as_many_as_fit(models):
    assert collect(complete(models, "talker", ["a"]))[1]["completion_tokens"] == 16
    _, usage = collect(complete(models, "talker", [[65] * (MAX_LEN - 3)]))
    assert usage["completion_tokens"] == 3


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"prompts": []}, "prompts must have 1 to 4 items, got 0"),
        ({"prompts": ["a"] * 5}, "prompts must have 1 to 4 items, got 5"),
        ({"n": 0}, "n must be a whole number from 1 to 4, got 0"),
        ({"n": 1_000_000}, "n must be a whole number from 1 to 4, got 1000000"),
        ({"max_tokens": 1025}, "max_tokens must be a whole number from 0 to 1024, got 1025"),
        ({"logprobs": 6}, "logprobs must be a whole number from 0 to 5"),
        ({"stop": [""]}, "stop must hold strings of 1 to 200 characters"),
    ],
)
def test_the_limits_of_a_request_hold_for_a_question_to_the_worker(models, fields, words):
    with pytest.raises(ValueError, match=words):
        complete(models, "talker", **{"prompts": ["a"], **fields})


def test_a_conversation_without_messages_or_with_too_many_answers_is_refused(models):
    with pytest.raises(ValueError, match="messages must have 1 to 256 items, got 0"):
        complete_chat(models, "talker", [])
    with pytest.raises(ValueError, match="n must be a whole number from 1 to 4, got 5"):
        complete_chat(models, "talker", [Message("user", "hello")], n=5)


def test_a_run_that_is_new_in_the_folder_of_runs_completes_a_text(tmp_path):
    models = Sources([], runs=str(tmp_path))
    shutil.copytree(LECTURE / "shakespeare", tmp_path / "new-0001")
    (choice,), _ = collect(complete(models, "new-0001", ["ROMEO:"], 3))
    assert choice["finish_reason"] == "length"


def test_only_the_found_runs_that_were_used_last_stay_loaded(tmp_path, monkeypatch):
    monkeypatch.setattr(sources_module, "MAX_FOUND", 2)
    models = Sources([str(LECTURE / "dates")], runs=str(tmp_path))
    given = models.open("dates")
    held = models.add_loaded(replace(given, source=Source("held", "", is_run=False)))
    for i in range(3):
        shutil.copytree(LECTURE / "digits", tmp_path / f"digits-{i}")
    first, second = models.open("digits-0"), models.open("digits-1")
    assert models.open("digits-0") is first
    models.open("digits-2")
    assert list(models.listed) == ["dates", "held", "digits-0", "digits-2"]
    assert models.open("digits-0") is first
    assert models.open("digits-1") is not second  # found and loaded again
    assert models.open("dates") is given
    assert models.open(held.id).model is given.model


def test_only_models_that_write_text_are_listed(models):
    assert list_writers(models) == {"models": ["talker", "other", "mute", "shakespeare"]}
    for name, words in (("x", "there is no model 'x'"), ("digits", "is a VisionTransformer")):
        with pytest.raises(NotServed, match=words):
            complete(models, name, ["a"])


# Conversations

HELLO = [Message("system", "the log"), Message("user", "the cat<|im_end|>"), Message("user", "é")]


def test_a_conversation_is_written_in_its_chat_format(models):
    chat = find_chat_format(models.open("talker"))
    ids = chat.encode(HELLO)
    text = chat.tokenizer.decode(ids, specials=True)
    assert text == (
        "<|im_start|>system\nthe log<|im_end|>\n"
        "<|im_start|>user\nthe cat<|im_end|><|im_end|>\n"
        "<|im_start|>user\né<|im_end|>\n<|im_start|>assistant\n"
    )
    end = chat.tokenizer.tokens.index("<|im_end|>")
    assert ids.count(end) == 3  # what the message spells is not the mark
    assert chat.stop_ids == {end}


def test_a_conversation_of_llama_3_has_its_marks():
    marks = ("<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>")
    tokenizer = build_tokenizer(*marks)
    ids = Chat(FORMATS[1], tokenizer).encode([Message("user", "the cat")])
    assert tokenizer.decode(ids, specials=True) == (
        "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nthe cat<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\n"
    )


def test_an_answer_ends_where_the_message_does(models):
    chat = find_chat_format(models.open("talker"))
    (end,) = chat.stop_ids
    seed, new = find_ending(models, chat.encode(HELLO), end, 40)
    (choice,), usage = collect(complete_chat(models, "talker", HELLO, 40, seed=seed))
    assert choice["finish_reason"] == "stop"
    assert usage["completion_tokens"] == len(new)
    assert "<|im_end|>" not in choice["text"]


def test_a_model_without_a_chat_format_says_why(models):
    with pytest.raises(NotServed, match="'mute' has no chat format: there is no chat_template"):
        complete_chat(models, "mute", HELLO)
    with pytest.raises(NotServed, match="'shakespeare' has no chat format"):
        complete_chat(models, "shakespeare", HELLO)
    with pytest.raises(NotServed, match="'other' is not ChatML or Llama 3"):
        complete_chat(models, "other", HELLO)
    assert "<|im_start|>" in TEMPLATE


# Requests

GOOD = {"model": "talker", "prompt": "a"}
MESSAGES = [{"role": "user", "content": "a"}]
TEXT = {"type": "text", "text": "a"}
EXTRAS = [  # content that would be lost
    {"name": "Ada"},
    {"tool_calls": [{"id": "1"}]},
    {"role": "assistant", "audio": {"id": "1"}},
    {"content": None},
    {"content": [{"text": "a"}]},
    {"content": [{"type": "refusal", "refusal": "no"}]},
    {"content": [TEXT, {"type": "image_url", "image_url": {"url": "data:"}}]},
    {"content": [{**TEXT, "type": "input_text"}]},
    {"content": [{**TEXT, "image_url": {"url": "data:"}}]},
]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        *(({"max_tokens": value}, "max_tokens") for value in (0, -1, 10**9, 1.5, "5", True, 1025)),
        *(({"n": value}, "n") for value in (0, -1, 10**6, 5, 2.0, "1", [])),
        *(({"temperature": value}, "temperature") for value in (-1, 1e9, 2.01, "1", True)),
        *(({"temperature": value}, "temperature") for value in (math.nan, math.inf, -math.inf)),
        *(({"top_p": value}, "top_p") for value in (-1, 1.5, math.nan, "x", {})),
        *(({"stop": value}, "stop") for value in (["a"] * 5, ["a"] * 10**5, [""], "", 3, [3])),
        *(({"stop": value}, "stop") for value in (False, 0, {})),
        ({"stop": "a" * 201}, "stop"),
        *(({"seed": value}, "seed") for value in (1.5, "1", 2**63, -(2**63) - 1, True)),
        *(({"logprobs": value}, "logprobs") for value in (-1, 6, True, "2")),
        *(({"echo": value}, "echo") for value in (1, "true")),
        *(({"stream": value}, "stream") for value in (1, "true")),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"stream": True, "stream_options": 3}, "stream_options"),
        ({"stream": True, "stream_options": {"include_usage": 1}}, "include_usage"),
        ({"stream": True, "stream_options": {"include_obfuscation": True}}, "stream_options"),
        *(({"prompt": value}, "prompt") for value in (None, [], 3, {}, ["a"] * 5, ["a", 3], [1.5])),
        *(({"prompt": value}, "prompt") for value in ([[1], "a", None], [[True]], [1] * 50_001)),
        *(({"model": value}, "model") for value in (None, 3, [])),
        ({"logit_bias": {"5": 1}}, "logit_bias"),
        ({"suffix": "x"}, "suffix"),
        ({"best_of": 2}, "best_of"),
        ({"best_of": True}, "best_of"),
        ({"presence_penalty": False}, "presence_penalty"),
        ({"presence_penalty": 0.5}, "presence_penalty"),
        ({"frequency_penalty": -0.5}, "frequency_penalty"),
        ({"tools": [{}]}, "tools"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"messages": MESSAGES}, "messages"),
        ({"temprature": 1}, "temprature"),
    ],
)
def test_W12_a_value_out_of_range_is_refused_by_name(fields, param):
    with pytest.raises(RequestError, match=param) as caught:
        read_completion({**GOOD, **fields})
    assert caught.value.param == param
    assert len(caught.value.sentence) < 200


@pytest.mark.parametrize("body", [None, [], "x", 3])
def test_W12_a_body_that_is_no_object_is_refused(body):
    for read in (read_completion, read_chat):
        with pytest.raises(RequestError, match="the body must be an object"):
            read(body)


def test_fields_that_cannot_change_the_text_are_ignored():
    plain = read_completion(GOOD)
    harmless = {"user": "me", "metadata": {"a": "b"}, "store": False, "logit_bias": {}}
    neutral = {"suffix": None, "presence_penalty": 0, "frequency_penalty": 0.0, "best_of": 1}
    assert read_completion({**GOOD, **harmless, **neutral}) == plain
    nothing = dict.fromkeys(["max_tokens", "temperature", "top_p", "n", "stop", "seed", "stream"])
    assert read_completion({**GOOD, **nothing}) == plain
    assert read_completion({**GOOD, "best_of": 3, "n": 3}).arguments["n"] == 3


def test_a_misspelt_field_is_answered_with_the_nearest():
    with pytest.raises(RequestError, match="there is no field 'temprature'; did you mean temp"):
        read_completion({**GOOD, "temprature": 1})


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"messages": []}, "messages"),
        ({"messages": "hello"}, "messages"),
        ({"messages": [{"role": "robot", "content": "a"}]}, "messages"),
        ({"messages": [{"role": ["user"], "content": "a"}]}, "messages"),
        ({"messages": [{"role": "user"}]}, "messages"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages"),
        ({"messages": [{"role": "user", "content": [3]}]}, "messages"),
        ({"messages": [3]}, "messages"),
        *(({"messages": [{**MESSAGES[0], **more}]}, "messages") for more in EXTRAS),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": 6}, "top_logprobs"),
        ({"logprobs": 3}, "logprobs"),
        ({"max_completion_tokens": 0}, "max_completion_tokens"),
        ({"prompt": "a"}, "prompt"),
    ],
)
def test_W12_a_wrong_conversation_is_refused_by_name(fields, param):
    with pytest.raises(RequestError, match=param) as caught:
        read_chat({"model": "talker", "messages": MESSAGES, **fields})
    assert caught.value.param == param


def test_a_message_may_have_parts_and_other_names_of_roles():
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    messages = [{"role": "developer", "content": parts}, *MESSAGES]
    found = read_chat({"model": "talker", "messages": messages}).arguments["messages"]
    assert found == [{"role": "system", "content": "ab"}, {"role": "user", "content": "a"}]


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"name": "Ada"}, "messages[0].name is not supported here; leave it out"),
        ({"content": [TEXT, {"type": "image_url"}]}, "messages[0].content[1] must be {"),
        ({"content": [{**TEXT, "x": 1}]}, "messages[0].content[0].x is not supported here"),
    ],
)
def test_a_part_of_a_message_that_would_be_lost_is_named(more, words):
    with pytest.raises(RequestError) as caught:
        read_chat({"model": "talker", "messages": [{**MESSAGES[0], **more}]})
    assert words in caught.value.sentence


def test_an_answer_can_be_sent_back_as_a_message():
    empty = {"refusal": None, "tool_calls": None, "function_call": None, "audio": None}
    answer = {"role": "assistant", "content": "b", **empty, "annotations": []}
    found = read_chat({"model": "talker", "messages": [*MESSAGES, answer]}).arguments["messages"]
    assert found[1] == {"role": "assistant", "content": "b"}


def test_errors_have_the_format_of_openai():
    assert make_error(404, "no", "model") == {
        "error": {
            "message": "no",
            "type": "invalid_request_error",
            "param": "model",
            "code": "model_not_found",
        }
    }
    assert make_error(503, "later")["error"]["type"] == "server_error"
    assert make_error(429, "later")["error"]["type"] == "rate_limit_error"


# The client leaves


class EndlessSupervisor:
    """Answers with a stream that ends only when nobody reads it any more."""

    def __init__(self):
        self.is_left, self.n = False, 0

    async def ask(self, question, arguments):
        choice = {"index": 0, "text": "a", "logprobs": None, "finish_reason": None}
        try:
            while True:
                await asyncio.sleep(0)
                self.n += 1
                yield b"p", encode_answer({"choices": [choice]})
        finally:
            self.is_left = True


@pytest.mark.parametrize("is_stream", [True, False])
def test_W14_work_ends_between_tokens_when_the_client_leaves(is_stream):
    supervisor = EndlessSupervisor()
    body = json.dumps({**GOOD, "stream": is_stream}).encode()
    messages = [{"type": "http.request", "body": body}]

    async def receive():
        if messages:
            return messages.pop()
        while supervisor.n < 5:
            await asyncio.sleep(0)
        return {"type": "http.disconnect"}

    async def send(message):
        pass

    async def run():
        app = Router(make_routes(SimpleNamespace(supervisor=supervisor)))
        scope = {"type": "http", "method": "POST", "path": "/v1/completions", "headers": []}
        async with asyncio.timeout(60):
            await app(scope, receive, send)

    asyncio.run(run())
    assert supervisor.is_left
    assert supervisor.n < 100
