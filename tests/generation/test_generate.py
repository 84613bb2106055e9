"""generate and stream: words by hand, seeds, stops, texts, eight bits, and what is refused."""

import itertools
import math

import pytest
import torch
from torch import nn

from clearhead.data import CharTokenizer, pad_left
from clearhead.generation import Sampling, generate, step, step_fast, stream
from clearhead.generation.products import Int8Product
from clearhead.inspection import record
from clearhead.models.gpt import GPT, GPTConfig

V, MAX_LEN, D, H, L = 37, 40, 24, 6, 2
NEW = 18  # more than what is worth packing
BOTH = pytest.mark.parametrize("n_tokens", [6, NEW], ids=["modules", "packed"])
BROKEN = "gives NaN or infinity"


def build(dtype=torch.float32, seed=0, std=0.3, **changes):
    """A model with spread-out random weights, so that its words differ from step to step."""
    generator = torch.Generator().manual_seed(seed)
    sizes = {"vocab_size": V, "max_len": MAX_LEN, "d_model": D, "n_layers": L, "n_heads": H}
    model = GPT(GPTConfig(**sizes | {"tied": False} | changes)).to(dtype)
    for name, parameter in model.named_parameters():
        nn.init.normal_(parameter, std=std, generator=generator)
        parameter.data.add_(name.endswith("gain")).mul_(0.3 if name.endswith("shift") else 1)
    model.embedding.weight.data.mul_(4)  # what was said decides, so that it says many words
    return model.eval()


def follower(following, max_len=MAX_LEN):
    """A model that has learned by heart which id comes after each id."""
    n = len(following)
    model = GPT(GPTConfig(n, max_len, n, 1, 1, 1, 1, "none", norm="none", tied=False)).eval()
    for parameter in model.parameters():
        nn.init.zeros_(parameter)
    with torch.no_grad():
        model.embedding.weight.copy_(torch.eye(n))
        model.head.weight[torch.tensor(following), torch.arange(n)] = 9.0
    return model


def counter(n=12, **options):
    return follower([(i + 1) % n for i in range(n)], **options)


def ids(*shape, seed=0, high=V):
    return torch.randint(high, shape, generator=torch.Generator().manual_seed(seed))


def words(steps):
    return torch.stack([each.tokens for each in steps], dim=1)


# By hand


@BOTH
def test_a_model_that_counts_goes_on_counting(n_tokens):
    made = generate(counter(), torch.tensor([[3, 4], [0, 9]]), n_tokens)
    assert made.tolist() == [
        [3, *((4 + i) % 12 for i in range(n_tokens + 1))],
        [0, *((9 + i) % 12 for i in range(n_tokens + 1))],
    ]


@BOTH
@pytest.mark.parametrize("positions", ["learned", "rotary", "alibi"])
def test_each_word_is_the_most_likely_after_all_before_it(n_tokens, positions):
    model, tokens = build(positions=positions), ids(3, 5)
    made = generate(model, tokens, n_tokens)
    assert made.shape == (3, 5 + n_tokens)
    assert torch.equal(made[:, :5], tokens)
    with torch.no_grad():
        best = model(made).argmax(-1)
    assert torch.equal(made[:, 5:], best[:, 4:-1])


@BOTH
def test_what_it_returns_is_an_ordinary_tensor_and_nothing_else_has_changed(n_tokens):
    model, tokens = build().train(), ids(2, 5)
    before, state, dice = tokens.clone(), model.state_dict(), torch.get_rng_state()
    state = {name: x.clone() for name, x in state.items()}
    for options in ({}, {"temperature": 1.0, "seed": 3}, {"temperature": 1.0}):
        made = generate(model, tokens, n_tokens, **options)
        assert not made.is_inference()
        made[0, 0] = 0  # a copy
    assert torch.equal(tokens, before)
    assert torch.equal(torch.get_rng_state(), dice)
    assert model.training
    assert all(torch.equal(x, state[name]) for name, x in model.state_dict().items())
    assert all(p.grad is None for p in model.parameters())
    model(made).sum().backward()  # it can be learned from


@BOTH
@pytest.mark.parametrize("prefill", [1, 2, 5, 6, 7, 100])
def test_reading_the_prompt_in_parts_changes_no_word(n_tokens, prefill):
    model, tokens = build(positions="rotary", n_kv_heads=2), ids(2, 7)
    expected = generate(model, tokens, n_tokens)
    assert torch.equal(generate(model, tokens, n_tokens, prefill=prefill), expected)
    mixed = {"temperature": 1.0, "seed": 3}
    expected = generate(model, tokens, n_tokens, **mixed)
    assert torch.equal(generate(model, tokens, n_tokens, prefill=prefill, **mixed), expected)
    again = generate(model, tokens, n_tokens, prefill=prefill, cache=False, **mixed)
    assert torch.equal(again, expected)


@BOTH
def test_N15_rows_of_unequal_length_each_give_what_they_give_alone(n_tokens):
    model = build()
    rows = [ids(n, seed=n).tolist() for n in (3, 9, 1, 6)]
    tokens, real = pad_left(rows, 5)
    made = generate(model, tokens, n_tokens, token_mask=real)
    for row, whole in zip(rows, made, strict=True):
        alone = generate(model, torch.tensor([row]), n_tokens)
        assert torch.equal(whole[9 - len(row) :], alone[0])
    padding = tokens.clone()
    padding[~real] = 0
    again = generate(model, padding, n_tokens, token_mask=real)
    assert torch.equal(again[:, 9:], made[:, 9:])


@pytest.mark.parametrize("dtype", [torch.int32, torch.int16, torch.uint8])
def test_a_prompt_of_another_whole_type_is_continued_by_the_same_words(dtype):
    model, tokens = counter(300), torch.tensor([[7, 250], [7, 100]])
    for n_tokens in (6, NEW):
        expected = generate(model, tokens, n_tokens)
        assert int(expected.max()) == 250 + n_tokens  # at last more than 8 bits hold
        assert torch.equal(generate(model, tokens.to(dtype), n_tokens).long(), expected)


def test_bfloat16_runs_by_the_modules():
    model, tokens = build(torch.bfloat16), ids(2, 5)
    assert torch.equal(generate(model, tokens, NEW)[:, :5], tokens)


# How many


def test_as_many_as_there_is_room_for():
    made = generate(counter(), torch.tensor([[0, 1, 2]]), None)
    assert made.shape == (1, MAX_LEN)
    assert generate(counter(max_len=3), torch.tensor([[0, 1, 2]]), None).tolist() == [[0, 1, 2]]


def test_none_at_all():
    tokens = torch.tensor([[0, 1, 2]])
    made = generate(counter(), tokens, 0)
    assert made.tolist() == [[0, 1, 2]]
    assert made.data_ptr() != tokens.data_ptr()
    assert list(stream(counter(), tokens, 0)) == []


@pytest.mark.parametrize(
    ("n_tokens", "kind", "words"),
    [
        (
            38,
            ValueError,
            "tokens has length 3 and n_tokens is 38, but max_len is 40; .* at most 37",
        ),
        (-1, ValueError, "n_tokens must not be negative, got -1"),
        (True, TypeError, "n_tokens must be a whole number, got True"),
        (False, TypeError, "n_tokens must be a whole number, got False"),
        (2.0, TypeError, r"n_tokens must be a whole number, got 2\.0"),
        (0.0, TypeError, r"n_tokens must be a whole number, got 0\.0"),
        (math.nan, TypeError, "n_tokens must be a whole number, got nan"),
        ("5", TypeError, "n_tokens must be a whole number, got '5'"),
    ],
)
def test_N18_a_wrong_number_of_tokens_is_refused(n_tokens, kind, words):
    with pytest.raises(kind, match=words):
        generate(counter(), torch.tensor([[0, 1, 2]]), n_tokens)


def test_N18_the_last_place_is_used():
    model, tokens = build(), ids(1, 10)
    made = generate(model, tokens, MAX_LEN - 10)
    assert made.shape == (1, MAX_LEN)
    with pytest.raises(ValueError, match="ask for at most 30"):
        generate(model, tokens, MAX_LEN - 9)


@pytest.mark.parametrize(
    ("tokens", "kind", "words"),
    [
        (
            torch.zeros(1, 0, dtype=torch.long),
            ValueError,
            "tokens is empty; begin with at least one",
        ),
        (ids(1, 41, high=12), ValueError, "tokens has length 41 but max_len is 40"),
        (torch.tensor([[1, 12]]), ValueError, r"tokens\[0, 1\] is 12, but ids go from 0 to 11"),
        (torch.tensor([[-1, 1]]), ValueError, r"tokens\[0, 0\] is -1, but ids go from 0 to 11"),
        (torch.tensor([1, 2]), ValueError, r"tokens must have shape \(B, T\), got \(2,\)"),
        (torch.tensor([[1.0]]), TypeError, "tokens must hold integers"),
        ([[1, 2]], TypeError, r"tokens must be a torch\.Tensor of integers, got list"),
        ("abc", TypeError, r"tokens must be a torch\.Tensor of integers, got str"),
    ],
    ids=lambda x: str(x)[:30],
)
def test_N27_a_wrong_prompt_is_refused(tokens, kind, words):
    with pytest.raises(kind, match=words):
        generate(counter(), tokens, 2)


@pytest.mark.parametrize("options", [{}, {"temperature": 1.0}, {"repetition_penalty": 2.0}])
def test_N23_no_rows_give_no_rows(options):
    nobody = torch.zeros(0, 4, dtype=torch.long)
    for n_tokens in (0, 3, NEW):
        assert generate(build(), nobody, n_tokens, **options).shape == (0, 4 + n_tokens)
    real = torch.zeros(0, 4, dtype=torch.bool)
    assert generate(build(), nobody, 3, token_mask=real, prefill=2, **options).shape == (0, 7)


@pytest.mark.parametrize("options", [{}, {"temperature": 1.0}, {"cache": False}])
def test_N23_of_no_rows_all_have_stopped(options):
    nobody = torch.zeros(0, 4, dtype=torch.long)
    for n_tokens in (0, 3, NEW, None):
        assert generate(build(), nobody, n_tokens, stop=[2], **options).shape == (0, 4)
    assert list(stream(build(), nobody, 3, stop=[2])) == []


def test_N23_no_rows_in_8_bits():
    nobody = torch.zeros(0, 4, dtype=torch.long)
    assert generate(build(), nobody, 3, weights="int8").shape == (0, 7)


# Masks


@pytest.mark.parametrize(
    ("mask", "kind", "words"),
    [
        ([[True, True, False]], ValueError, "token_mask must be padded on the left.*pad_left"),
        ([[True, False, True]], ValueError, "token_mask must be padded on the left"),
        ([[False, False, False]], ValueError, "token_mask must be padded on the left"),
        ([[0.0, 1.0, 1.0]], TypeError, "token_mask must be a boolean tensor, True = real"),
        ([[0, 1, 1]], TypeError, "token_mask must be a boolean tensor"),
        ([True, True, True], ValueError, r"the shape of tokens, \(1, 3\), got \(3,\)"),
        ([[True, True]], ValueError, r"the shape of tokens, \(1, 3\), got \(1, 2\)"),
    ],
)
def test_a_wrong_token_mask_is_refused(mask, kind, words):
    with pytest.raises(kind, match=words):
        generate(counter(), torch.tensor([[0, 1, 2]]), 2, token_mask=torch.tensor(mask))
    with pytest.raises(TypeError, match="token_mask must be a boolean tensor"):
        generate(counter(), torch.tensor([[0, 1, 2]]), 2, token_mask=[[True, True, True]])


# Stops


@BOTH
def test_rows_stop_one_by_one_and_are_filled_up(n_tokens):
    tokens = torch.tensor([[3], [1], [5]])
    made = generate(counter(), tokens, n_tokens, stop=[6])
    assert made.tolist() == [
        [3, 4, 5, 6, 6, 6],
        [1, 2, 3, 4, 5, 6],
        [5, 6, 6, 6, 6, 6],
    ]


@BOTH
def test_any_of_several_stops_ends_a_row_and_a_stop_in_the_prompt_does_not(n_tokens):
    tokens = torch.tensor([[6, 3], [6, 6]])
    for stop in ([5, 7], {7, 5}, (7, 5, 7), {5: 1, 7: 2}):
        made = generate(counter(), tokens, n_tokens, stop=stop)
        assert made.tolist() == [[6, 3, 4, 5], [6, 6, 7, 7]]


@BOTH
def test_without_a_stop_all_tokens_are_made(n_tokens):
    made = generate(counter(), torch.tensor([[3]]), n_tokens, stop=[2])
    assert made.shape == (1, min(1 + n_tokens, 12))
    assert generate(counter(), torch.tensor([[3]]), n_tokens).shape == (1, 1 + n_tokens)
    last = generate(counter(), torch.tensor([[3]]), 3, stop=[6])
    assert last.tolist() == [[3, 4, 5, 6]]


def test_the_steps_say_who_is_still_running():
    steps = list(stream(counter(), torch.tensor([[3], [1]]), 9, stop=[5]))
    assert [each.tokens.tolist() for each in steps] == [[4, 2], [5, 3], [5, 4], [5, 5]]
    running = [[True, True], [True, True], [False, True], [False, True]]
    assert [each.running.tolist() for each in steps] == running


@BOTH
def test_a_stopped_row_disturbs_no_other(n_tokens):
    model, tokens = build(), ids(4, 3)
    free = generate(model, tokens, n_tokens, temperature=1.0, seed=0)
    stop = int(free[1, 4])
    made = generate(model, tokens, n_tokens, temperature=1.0, seed=0, stop=[stop])
    for row, whole in zip(made, free, strict=True):
        new = whole[3:].tolist()
        end = new.index(stop) + 1 if stop in new else len(new)
        end = min(end, made.size(1) - 3)
        assert torch.equal(row[: 3 + end], whole[: 3 + end])
        assert bool((row[3 + end :] == stop).all())


@pytest.mark.parametrize(
    ("stop", "kind", "words"),
    [
        ([12], ValueError, "stop must hold ids from 0 to 11, got 12"),
        ([3, -1], ValueError, "stop must hold ids from 0 to 11, got -1"),
        ([True], ValueError, "stop must hold ids from 0 to 11, got True"),
        ([2.0], ValueError, r"stop must hold ids from 0 to 11, got 2\.0"),
        (["a"], ValueError, "stop must hold ids from 0 to 11, got 'a'"),
        (5, TypeError, "stop"),
    ],
)
def test_a_wrong_stop_is_refused(stop, kind, words):
    with pytest.raises(kind, match=words):
        generate(counter(), torch.tensor([[0]]), 2, stop=stop)


# Chance and seeds


MIXED = {"temperature": 1.0, "top_k": 20, "top_p": 0.95, "min_p": 0.001}


@BOTH
def test_a_seed_gives_the_same_words_and_another_gives_others(n_tokens):
    model, tokens = build(), ids(3, 4)
    one = generate(model, tokens, n_tokens, seed=7, **MIXED)
    assert torch.equal(generate(model, tokens, n_tokens, seed=7, **MIXED), one)
    assert not torch.equal(generate(model, tokens, n_tokens, seed=8, **MIXED), one)
    assert torch.equal(generate(model, tokens, n_tokens, seed=7, cache=False, **MIXED), one)


@BOTH
@pytest.mark.parametrize("seed", [0, 41, -3])
def test_row_r_draws_as_alone_with_seed_plus_r(n_tokens, seed):
    model = build()
    rows = [ids(n, seed=n).tolist() for n in (3, 5, 1, 5)]
    tokens, real = pad_left(rows, 0)
    made = generate(model, tokens, n_tokens, seed=seed, token_mask=real, **MIXED)
    for r, row in enumerate(rows):
        alone = generate(model, torch.tensor([row]), n_tokens, seed=seed + r, **MIXED)
        assert torch.equal(made[r, 5 - len(row) :], alone[0])


def test_equal_rows_of_a_batch_draw_differently():
    made = generate(build(), ids(1, 4).expand(6, 4), NEW, temperature=1.0, seed=0)
    assert len({tuple(row) for row in made.tolist()}) == 6


def test_without_a_seed_two_calls_differ():
    model, tokens = build(), ids(2, 4)
    one, other = (generate(model, tokens, NEW, temperature=1.0) for _ in range(2))
    assert not torch.equal(one, other)


def test_the_seed_does_not_depend_on_the_generator_of_the_program():
    model, tokens, made = build(), ids(2, 4), []
    for other in (1, 2):
        torch.manual_seed(other)
        made.append(generate(model, tokens, NEW, temperature=1.0, seed=5))
    assert torch.equal(*made)


@pytest.mark.parametrize("seed", [1.5, "x", True, [1], 2**64])
def test_a_wrong_seed_is_refused_by_its_name(seed):
    kind = ValueError if seed == 2**64 else TypeError
    for temperature in (0.0, 1.0):
        with pytest.raises(kind, match=r"^seed"):
            generate(counter(), torch.tensor([[0]]), 2, temperature=temperature, seed=seed)


def test_greedy_needs_no_seed_and_ignores_it():
    model, tokens = build(), ids(2, 4)
    assert torch.equal(generate(model, tokens, NEW, seed=1), generate(model, tokens, NEW))
    one = generate(model, tokens, NEW, temperature=2.0, top_k=1, seed=1)
    assert torch.equal(one, generate(model, tokens, NEW))


def test_draws_have_the_frequencies_of_the_model():
    model, prompt = build(std=0.2), ids(1, 3)
    n = 3000
    made = generate(model, prompt.expand(n, 3), 1, temperature=0.7, seed=0)[:, 3]
    with torch.no_grad():
        probs = (model(prompt)[0, -1] / 0.7).softmax(-1)
    shares = torch.bincount(made, minlength=V) / n
    # Five standard deviations of a share, for each word.
    assert bool(((shares - probs).abs() <= 5 * (probs * (1 - probs) / n).sqrt() + 1e-3).all())


@BOTH
def test_the_penalty_counts_the_prompt_and_new_words_but_not_padding(n_tokens):
    model = counter()
    with torch.no_grad():
        model.head.weight += 5.0  # every word 5, the next one 14; what was said has a third of it
    heavy = {"repetition_penalty": 3.0}
    made = generate(model, torch.tensor([[9, 11, 10]]), 2, **heavy)
    # 11 has been said: 14 / 3 is less than 5, and of the others the first, 0, wins; then 1 follows.
    assert made.tolist() == [[9, 11, 10, 0, 1]]
    parrot = follower(list(range(12)))  # says its last word again
    with torch.no_grad():
        parrot.head.weight += 5.0
    made = generate(parrot, torch.tensor([[4]]), 8, **heavy)
    assert made.tolist() == [[4, 0, 1, 2, 3, 5, 6, 7, 8]]
    tokens, real = pad_left([[10], [1, 2]], 11)
    padded = generate(model, tokens, n_tokens, token_mask=real, **heavy)
    alone = generate(model, torch.tensor([[10]]), n_tokens, **heavy)
    assert alone[0, 1] == 11
    assert torch.equal(padded[0, 1:], alone[0])


def test_bad_choices_are_refused_by_their_names():
    for options, words in (
        ({"temperature": -1}, "temperature must be a finite number from 0, got -1"),
        ({"top_p": 2}, "top_p must be a finite number from 0 to 1, got 2"),
        ({"top_k": 0}, "top_k must be at least 1, got 0"),
        ({"prefill": 0}, "prefill must be at least 1, got 0"),
        ({"weights": "int4"}, "weights must be one of 'float', 'int8', got 'int4'"),
    ):
        with pytest.raises(ValueError, match=words):
            generate(counter(), torch.tensor([[0]]), 2, **options)
    with pytest.raises(TypeError, match="prefill must be a whole number, got True"):
        generate(counter(), torch.tensor([[0]]), 2, prefill=True)


@pytest.mark.parametrize("model", [nn.Linear(2, 2), None, GPT])
def test_a_model_of_another_kind_is_refused(model):
    with pytest.raises(TypeError, match=r"model must be a GPT, got .*; a translator has its own"):
        generate(model, torch.tensor([[0]]), 2)


# The stream


def test_everything_is_checked_before_the_first_step_is_asked_for():
    for options in ({"stop": [99]}, {"prefill": -1}, {"weights": "x"}, {"n_tokens": 99}):
        with pytest.raises(ValueError, match=r"stop|prefill|weights|n_tokens"):
            stream(counter(), torch.tensor([[0]]), **{"n_tokens": 3} | options)


@pytest.mark.parametrize("n_tokens", [6, NEW])
@pytest.mark.parametrize("keep_logits", [True, False])
def test_the_model_runs_no_further_than_asked(n_tokens, keep_logits, monkeypatch):
    read = []
    for reader in (step.Reader, step_fast.Reader):
        hidden = reader.hidden

        def noted(self, tokens, _hidden=hidden):
            read.append(tokens.size(1))
            return _hidden(self, tokens)

        monkeypatch.setattr(reader, "hidden", noted)
    steps = stream(counter(), torch.tensor([[3, 4, 5]]), n_tokens, keep_logits=keep_logits)
    assert read == []
    assert next(steps).tokens.tolist() == [6]
    assert read == [3]
    assert next(steps).tokens.tolist() == [7]
    assert read == [3, 1]
    assert len(list(itertools.islice(steps, 3))) == 3
    assert read == [3, 1, 1, 1, 1]
    steps.close()
    assert list(steps) == []


def test_two_streams_of_one_model_do_not_disturb_each_other():
    model = build()
    a, b = ids(2, 5, seed=1), ids(2, 5, seed=2)
    pairs = list(zip(stream(model, a, NEW), stream(model, b, NEW), strict=True))
    assert torch.equal(words([one for one, _ in pairs]), generate(model, a, NEW)[:, 5:])
    assert torch.equal(words([other for _, other in pairs]), generate(model, b, NEW)[:, 5:])


@BOTH
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_probabilities_are_those_of_the_model_before_any_filter(n_tokens, temperature):
    model = build(soft_cap=5.0)
    rows = [ids(n, seed=n).tolist() for n in (3, 5)]
    tokens, real = pad_left(rows, 0)
    sampling = Sampling(temperature, top_k=2, repetition_penalty=1.3)
    steps = list(stream(model, tokens, n_tokens, sampling=sampling, seed=1, token_mask=real))
    steps_kept = stream(
        model, tokens, n_tokens, sampling=sampling, seed=1, token_mask=real, keep_logits=True
    )
    assert torch.equal(words(steps_kept), words(steps))
    so_far = [torch.tensor([row]) for row in rows]
    for each in steps:
        assert each.texts is None
        assert each.probs.shape == (2, V)
        assert torch.allclose(each.probs.sum(-1), torch.ones(2), rtol=0, atol=1e-6)
        for r in range(2):
            with torch.no_grad():
                logits = model(so_far[r])[0, -1]
            assert torch.allclose(each.logits[r], logits, rtol=0, atol=2e-5)
            assert torch.allclose(each.probs[r], logits.softmax(-1), rtol=0, atol=1e-5)
            so_far[r] = torch.cat((so_far[r], each.tokens[r].view(1, 1)), dim=1)


@BOTH
def test_logits_of_a_step_stay_as_they_are(n_tokens):
    steps = list(stream(build(), ids(2, 3), n_tokens, keep_logits=True))
    assert len({float(each.logits[0, 0]) for each in steps}) > n_tokens // 2
    assert not steps[0].logits.is_inference()
    assert torch.equal(words(steps), torch.stack([s.logits.argmax(-1) for s in steps], dim=1))


def test_a_step_without_logits_says_how_to_get_them():
    (each,) = stream(counter(), torch.tensor([[3]]), 1)
    assert each.logits is None
    with pytest.raises(ValueError, match="kept no logits; ask for them with keep_logits=True"):
        _ = each.probs


@BOTH
def test_keeping_logits_changes_no_word(n_tokens):
    model, tokens = build(), ids(3, 4)
    kept = words(stream(model, tokens, n_tokens, keep_logits=True))
    assert torch.equal(kept, generate(model, tokens, n_tokens)[:, 4:])


def test_a_stream_made_in_inference_mode_goes_on_outside():
    model, tokens = build(), ids(2, 4)
    for sampling in (Sampling(), Sampling(repetition_penalty=1.5), Sampling(1.0)):
        expected = words(stream(model, tokens, NEW, sampling=sampling, seed=0))
        with torch.inference_mode():
            steps = stream(model, tokens, NEW, sampling=sampling, seed=0)
        assert torch.equal(words(steps), expected)


# Texts


class Bytes:
    """UTF-8 as it is: a character may need several tokens."""

    def decode(self, ids):
        assert isinstance(ids, list)
        return bytes(ids).decode("utf-8", errors="replace")


def speller(text):
    """A model that spells this text, byte by byte; no byte may occur twice."""
    spelt = text.encode()
    assert len(set(spelt)) == len(spelt)
    following = list(range(256))
    for one, after in itertools.pairwise(spelt):
        following[one] = after
    return follower(following)


TEXT = "aé€😀!"  # 1, 2, 3, 4 bytes and 1


@BOTH
def test_characters_of_several_tokens_appear_when_they_are_whole(n_tokens):
    tokens = torch.tensor([list(TEXT.encode()[:1])])
    steps = list(stream(speller(TEXT), tokens, n_tokens, tokenizer=Bytes()))
    expected = ["", "é", "", "", "€", "", "", "", "😀", "!"][
        : n_tokens - 1
    ]  # the last hides nothing
    assert [each.texts[0] for each in steps[:-1]][:10] == expected


@pytest.mark.parametrize("n_tokens", range(1, 11))
def test_the_texts_join_to_the_text_of_the_whole(n_tokens):
    """Also where the end cuts a character: what was held back comes with the last step."""
    tokens = torch.tensor([list(TEXT.encode()[:1])])
    steps = list(stream(speller(TEXT), tokens, n_tokens, tokenizer=Bytes()))
    whole = [*tokens[0].tolist(), *words(steps)[0].tolist()]
    assert "a" + "".join(each.texts[0] for each in steps) == Bytes().decode(whole)


@pytest.mark.parametrize("cut", range(1, 11))
def test_a_prompt_that_ends_inside_a_character_is_finished(cut):
    tokens = torch.tensor([list(TEXT.encode()[:cut])])
    steps = list(stream(speller(TEXT), tokens, 11 - cut, tokenizer=Bytes()))
    begun = Bytes().decode(tokens[0].tolist()).rstrip("\ufffd")
    assert begun + "".join(each.texts[0] for each in steps) == TEXT


def test_texts_of_letters_join_to_what_the_tokenizer_says():
    tokenizer = CharTokenizer("abcdefgh", cls=False)
    model = build(vocab_size=8)
    rows = [tokenizer.encode(text) for text in ("abba", "h", "feed")]
    tokens, real = pad_left(rows, 0)
    steps = list(stream(model, tokens, NEW, tokenizer=tokenizer, token_mask=real))
    made = words(steps)
    for r, row in enumerate(rows):
        text = "".join(each.texts[r] for each in steps)
        assert tokenizer.decode(row) + text == tokenizer.decode([*row, *made[r].tolist()])
        assert len(text) == NEW


class Digits:
    def decode(self, ids):
        return " ".join(map(str, ids))


def test_the_tokenizer_never_sees_padding():
    class Strict(Digits):
        def decode(self, ids):
            assert 11 not in ids
            return super().decode(ids)

    tokens, real = pad_left([[3], [1, 2, 3]], 11)
    steps = list(stream(counter(), tokens, 3, tokenizer=Strict(), token_mask=real))
    assert [each.texts for each in steps] == [[" 4", " 4"], [" 5", " 5"], [" 6", " 6"]]


def test_a_stopped_row_adds_no_text():
    steps = list(stream(counter(), torch.tensor([[3], [1]]), 9, stop=[5], tokenizer=Digits()))
    assert [each.texts for each in steps] == [[" 4", " 2"], [" 5", " 3"], ["", " 4"], ["", " 5"]]


def test_a_word_without_text_adds_none():
    tokenizer = CharTokenizer("ab", cls=False, start=True, end=True)
    following = [0] * tokenizer.vocab_size
    a, b = tokenizer.encode("ab")[1:3]
    following[tokenizer.start_id], following[a], following[b] = a, b, tokenizer.end_id
    steps = stream(
        follower(following),
        torch.tensor([[tokenizer.start_id]]),
        5,
        stop=[tokenizer.end_id],
        tokenizer=tokenizer,
    )
    assert [each.texts for each in steps] == [["a"], ["b"], [""]]


# Eight bits


def test_8_bits_give_nearly_the_same_logits_and_mostly_the_same_words():
    # As trained models are: numbers of one size, some words clearly before the others.
    model = build(d_model=96, n_heads=6, std=0.15, vocab_size=200)
    tokens = ids(4, 6)
    exact = list(stream(model, tokens, NEW, keep_logits=True))
    rough = list(stream(model, tokens, NEW, keep_logits=True, weights="int8"))
    one, other = exact[0].logits, rough[0].logits  # of the prompt, before any word differs
    assert not torch.equal(one, other)
    assert float((one - other).norm() / one.norm()) < 0.03
    firsts = exact[0].tokens == rough[0].tokens
    assert int(firsts.sum()) >= 3
    assert torch.equal(words(rough), generate(model, tokens, NEW, weights="int8")[:, 6:])


@pytest.mark.parametrize("n_tokens", [1, NEW])
def test_8_bits_in_a_batch_are_the_8_bits_of_a_row_alone(n_tokens):
    for positions in ("learned", "rotary", "alibi", "toeplitz"):
        model, tokens = build(positions=positions, n_kv_heads=2), ids(5, 6)
        made = generate(model, tokens, n_tokens, weights="int8")
        for r in range(5):
            alone = generate(model, tokens[r : r + 1], n_tokens, weights="int8")
            assert torch.equal(made[r], alone[0])


def test_8_bits_with_unequal_prompts_and_chance():
    model = build()
    rows = [ids(n, seed=n).tolist() for n in (3, 9, 1, 6)]
    tokens, real = pad_left(rows, 5)
    options = {"weights": "int8", "temperature": 0.8}
    made = generate(model, tokens, NEW, token_mask=real, seed=4, **options)
    for r, row in enumerate(rows):
        alone = generate(model, torch.tensor([row]), NEW, seed=4 + r, **options)
        assert torch.equal(made[r, 9 - len(row) :], alone[0])


def test_8_bits_are_not_the_same_numbers_and_float64_has_them_too():
    for dtype in (torch.float32, torch.float64):
        model, tokens = build(dtype), ids(1, 5)
        (exact,) = stream(model, tokens, 1, keep_logits=True)
        (rough,) = stream(model, tokens, 1, keep_logits=True, weights="int8")
        assert rough.logits.dtype == dtype
        assert not torch.allclose(exact.logits, rough.logits, atol=1e-4)


def test_the_table_of_words_is_in_8_bits_too():
    model = follower(list(range(19)))
    table = torch.randn(19, 19)
    model.head.weight.data.copy_(table)
    tokens = torch.tensor([[4], [7]])
    (rough,) = stream(model, tokens, 1, keep_logits=True, weights="int8")
    assert torch.equal(rough.logits, Int8Product(table, None)(torch.eye(19)[[4, 7]]))
    assert not torch.allclose(rough.logits, table.mT[[4, 7]], rtol=0, atol=1e-4)


def test_8_bits_are_refused_where_they_cannot_be():
    tokens, words = torch.tensor([[0]]), "weights='int8' needs a GPT as its config built it"
    with pytest.raises(ValueError, match=words):
        generate(build(), tokens, 2, weights="int8", cache=False)
    with pytest.raises(ValueError, match=words):
        generate(build(torch.bfloat16), tokens, 2, weights="int8")
    model = build()
    with record(model), pytest.raises(ValueError, match=words):
        generate(model, tokens, 2, weights="int8")


# Who watches, and how


@BOTH
def test_a_recorded_model_gives_the_same_words(n_tokens):
    model, tokens = build(), ids(2, 5)
    expected = generate(model, tokens, n_tokens)
    with record(model) as trace:
        assert torch.equal(generate(model, tokens, n_tokens), expected)
    calls = [name for name in trace if name.endswith("attention")]
    assert len(calls) >= L
    assert torch.equal(generate(model, tokens, n_tokens), expected)


@BOTH
@pytest.mark.parametrize("options", [{}, {"cache": False}, {"weights": "int8"}], ids=str)
def test_generating_drops_nothing_even_in_training(n_tokens, options):
    model, tokens = build(dropout=0.4), ids(3, 5)
    expected = generate(model, tokens, n_tokens, **options)
    model.train()
    model.stack.blocks[0].eval()
    before = [part.training for part in model.modules()]
    assert torch.equal(generate(model, tokens, n_tokens, **options), expected)
    assert [part.training for part in model.modules()] == before
    assert torch.equal(generate(build(), tokens, n_tokens, **options), expected)


def test_the_mode_stays_while_a_stream_is_open_and_after_an_error():
    model = build(dropout=0.4).train()
    steps = stream(model, ids(1, 3), 5)
    next(steps)
    assert all(part.training for part in model.modules())
    model.positions.weight.data[3:] = math.nan
    with pytest.raises(ValueError, match=BROKEN):
        next(steps)
    assert all(part.training for part in model.modules())


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, torch.enable_grad])
def test_N26_any_mode_gives_the_same_words(mode):
    model, tokens = build(), ids(2, 5)
    expected = generate(build(), tokens, NEW)
    with mode():
        assert torch.equal(generate(model, tokens, NEW), expected)
    assert torch.equal(generate(model, tokens, NEW), expected)
    model(tokens).sum().backward()


def test_N26_a_model_in_float64_gives_the_same_words():
    single, double = build(), build(torch.float64)
    double.load_state_dict(single.state_dict())
    tokens = ids(3, 5)
    assert torch.equal(generate(single, tokens, NEW), generate(double, tokens, NEW))


# Broken numbers


@BOTH
@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize(
    "place", ["embedding.weight", "stack.blocks.0.attention.proj_v.weight", "head.weight"]
)
@pytest.mark.parametrize("options", [{}, {"temperature": 1.0, "seed": 0}], ids=["greedy", "drawn"])
def test_a_model_with_broken_weights_says_nothing(n_tokens, value, place, options):
    model = build()
    model.state_dict()[place][3] = value
    with pytest.raises(ValueError, match=BROKEN):
        generate(model, torch.tensor([[1, 3, 2]]), n_tokens, **options)


@BOTH
def test_what_came_before_a_broken_number_is_given(n_tokens):
    model = build()
    model.positions.weight.data[6] = math.nan  # the fifth new word stands there
    steps = stream(model, ids(1, 2), n_tokens)
    made = [next(steps).tokens.item() for _ in range(5)]
    with pytest.raises(ValueError, match=BROKEN):
        next(steps)
    assert made == generate(build(), ids(1, 2), 5)[0, 2:].tolist()


def test_a_broken_row_of_a_batch_is_not_passed_over():
    model = build()
    model.embedding.weight.data[7] = math.nan
    with pytest.raises(ValueError, match=BROKEN):
        generate(model, torch.tensor([[1], [7]]), NEW)


def test_a_head_with_a_bias_of_its_own_and_another_config_are_heard():
    model, tokens = build(), ids(2, 4)
    generate(model, tokens, NEW)
    model.head = torch.nn.Linear(model.config.d_model, model.config.vocab_size)
    torch.nn.init.normal_(model.head.bias, std=30.0)
    assert torch.equal(generate(model, tokens, NEW), generate(model, tokens, NEW, cache=False))


# Models that change while they speak

PARTS = [
    "embedding.weight",
    "positions.weight",
    "stack.blocks.1.attention.positions.weight",
    "stack.blocks.0.attention.norm_q.weight",
    "stack.blocks.0.attention.norm_k.weight",
    "stack.blocks.0.attention.proj_v.bias",
    "stack.blocks.1.attention.proj_out.weight",
    "stack.blocks.0.norm_attention.gain",
    "stack.blocks.0.norm_attention.shift",
    "stack.blocks.1.feed_forward.proj_in.weight",
    "stack.blocks.1.feed_forward.proj_out.bias",
    "stack.norm.gain",
    "head.weight",
]


@pytest.mark.parametrize("weights", ["float", "int8"])
@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("rows", [1, 3])
def test_an_open_packed_stream_goes_on_with_the_weights_it_began_with(weights, tied, rows):
    for positions in ("learned", "toeplitz"):
        tokens = ids(rows, 5)
        for part in PARTS:
            model = build(positions=positions, qk_norm=True, tied=tied)
            if part not in model.state_dict():
                continue
            options = {"keep_logits": True, "weights": weights}
            expected = [each.logits for each in stream(model, tokens, NEW, **options)]
            steps = stream(model, tokens, NEW, **options)
            given = [next(steps).logits]
            model.state_dict()[part].mul_(-3.0).add_(0.5)
            given += [each.logits for each in steps]
            assert torch.equal(torch.stack(given), torch.stack(expected)), part
            changed = next(stream(model, tokens, NEW, **options)).logits
            assert not torch.equal(changed, expected[0]), part


def test_N06_a_chunk_that_ends_in_padding_may_hold_anything():
    model, clean = build(), build()
    tokens, real = pad_left([ids(2, high=30).tolist(), ids(6, high=30, seed=1).tolist()], 36)
    with torch.no_grad():
        model.embedding.weight[36] = torch.nan
        for each in (model, clean):
            each.head.weight[36] = 0
    for n_tokens in (5, NEW):
        expected = generate(clean, tokens, n_tokens, token_mask=real)
        for prefill in (1, 3):
            made = generate(model, tokens, n_tokens, token_mask=real, prefill=prefill)
            assert torch.equal(made, expected)


@BOTH
@pytest.mark.parametrize("cache", [True, False])
def test_an_open_stream_does_not_follow_the_prompt_s_tensors(n_tokens, cache):
    model = build()
    tokens, real = pad_left([ids(3).tolist(), ids(7, seed=1).tolist()], 5)
    options = {"token_mask": real, "cache": cache}
    expected = words(stream(model, tokens, n_tokens, **options))
    steps = stream(model, tokens, n_tokens, **options)
    tokens.fill_(9)
    given = [next(steps)]
    real.fill_(True)
    given += steps
    assert torch.equal(words(given), expected)
