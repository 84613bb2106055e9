"""forbid: ids that are never generated, by any way of choosing and any form of the model."""

import pytest
import torch
from language_models import MAX_LEN, V, build, counter, ids

from clearhead.data import pad_left
from clearhead.generation import Sampling, choose, generate, pack, stream
from clearhead.generation.fast import best_word
from clearhead.generation.fast.best_word import BestWord

FORMS = {
    "model": (lambda model: model, {}),
    "no cache": (lambda model: model, {"cache": False}),
    "packed": (pack, {}),
    "int8": (lambda model: pack(model, weights="int8"), {}),
}
EACH = pytest.mark.parametrize(("form", "options"), FORMS.values(), ids=FORMS)


@EACH
@pytest.mark.parametrize(
    "sampling",
    [
        {},
        {"repetition_penalty": 1.3},
        {"temperature": 5.0, "seed": 1},
        {"temperature": 5.0, "top_k": 9, "seed": 1},
        {"temperature": 5.0, "top_p": 0.9, "min_p": 0.001, "repetition_penalty": 2.0, "seed": 1},
    ],
)
def test_a_forbidden_id_is_never_generated(form, options, sampling):
    model, tokens = build(), ids(4, 5)
    free = generate(form(model), tokens, 30, **options, **sampling)[:, 5:]
    forbid = set(free.unique().tolist()[::2])
    made = generate(form(model), tokens, 30, forbid=forbid, **options, **sampling)[:, 5:]
    assert forbid
    assert not forbid & set(made.unique().tolist())


@EACH
def test_greedy_takes_the_likeliest_of_the_others(form, options):
    model, tokens, forbid = build(), ids(3, 5), list(range(0, V, 3))
    made = generate(form(model), tokens, 20, forbid=forbid, **options)
    logits = torch.stack(
        [s.logits for s in stream(form(model), tokens, 20, forbid=forbid, keep_logits=True)], 1
    )
    assert torch.equal(made[:, 5:], logits.index_fill(-1, torch.tensor(forbid), -1e9).argmax(-1))
    assert not torch.equal(made[:, 5:], logits.argmax(-1))  # they would have been chosen


@pytest.mark.parametrize("batch_size", [1, 3])
def test_the_exact_search_in_8_bits_finds_the_best_of_the_others(batch_size, monkeypatch):
    torch.manual_seed(0)
    table, x = torch.randn(400, 32), torch.randn(batch_size, 32)
    forbidden = (x @ table.mT).topk(5).indices.unique()
    expected = (x @ table.mT).index_fill(-1, forbidden, -torch.inf).argmax(-1)
    search = BestWord(table)
    assert torch.equal(search(x, forbidden), expected)
    assert not torch.equal(search(x), expected)
    monkeypatch.setattr(best_word, "SMALL", 1e9)  # so that all words are candidates
    assert torch.equal(search(x, forbidden), expected)


def test_a_model_that_counts_skips_nothing_else():
    model = counter()
    assert generate(model, torch.tensor([[3]]), 3, forbid=[9]).tolist() == [[3, 4, 5, 6]]
    made = generate(model, torch.tensor([[3]]), 3, forbid=[5, 5]).tolist()[0]
    assert made[:2] == [3, 4]
    assert 5 not in made


def test_the_others_share_the_probability():
    """Drawing without a forbidden id is drawing from the renormalised rest."""
    logits = torch.tensor([[1.0, 3.0, 0.5, 2.0]]).expand(2000, 4)
    draws = torch.linspace(0, 1, 2000)
    found = choose(logits, Sampling(1.0), draws, forbidden=torch.tensor([1]))
    rest = logits[0, [0, 2, 3]].softmax(-1)
    shares = torch.tensor([(found == i).float().mean() for i in (0, 2, 3)])
    assert (shares - rest).abs().max() < 1e-3
    assert not (found == 1).any()


@pytest.mark.parametrize("sampling", [{}, {"temperature": 1.0, "seed": 2}])
def test_nothing_forbidden_changes_nothing_and_an_unlikely_id_neither(sampling):
    model, tokens = build(), ids(2, 5)
    made = generate(model, tokens, 12, **sampling)
    assert torch.equal(generate(model, tokens, 12, forbid=(), **sampling), made)
    if not sampling:
        absent = next(i for i in range(V) if i not in made[:, 5:])
        assert torch.equal(generate(model, tokens, 12, forbid={absent}), made)


@EACH
def test_it_holds_past_the_context_length_and_with_padding(form, options):
    prompt, token_mask = pad_left([[1, 2, 3], [4]], 0)
    more = {"token_mask": token_mask, "roll": True, **options}
    made = generate(form(build()), prompt, MAX_LEN + 7, forbid=[0, 5, 6], **more)[:, 3:]
    assert not torch.isin(made, torch.tensor([0, 5, 6])).any()


def test_the_logits_of_a_step_are_the_model_s_own():
    model, tokens = build(), ids(1, 4)
    step = next(stream(model, tokens, 1, forbid=[0, 1], keep_logits=True))
    with torch.no_grad():
        assert torch.allclose(step.logits, model(tokens)[:, -1], atol=1e-5)


@pytest.mark.parametrize(
    ("forbid", "error", "words"),
    [
        (3, TypeError, r"forbid must be a list or set of ids, got 3; write forbid=\[3\]"),
        ([V], ValueError, f"forbid must hold ids from 0 to {V - 1}, got {V}"),
        ([-1], ValueError, "forbid must hold ids"),
        ([True], ValueError, "forbid must hold ids"),
        (range(V), ValueError, f"forbid holds all {V} ids, so none is left; leave one out"),
    ],
)
def test_what_cannot_be_forbidden_is_named(forbid, error, words):
    with pytest.raises(error, match=words):
        stream(build(), ids(1, 4), 3, forbid=forbid)
