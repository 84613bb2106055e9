"""Each row draws by a generator of its own; the penalty counts what the row contains."""

import pytest
import torch
from language_models import V, build, counter, follower, ids

from clearhead.data import pad_left
from clearhead.generation import generate, pack

NEW = 12
MIXED = {"temperature": 1.0, "top_k": 20, "top_p": 0.95, "min_p": 0.001}
BOTH = pytest.mark.parametrize("form", [lambda model: model, pack], ids=["model", "packed"])


@BOTH
def test_a_seed_gives_the_same_words_and_another_gives_others(form):
    model, tokens = form(build()), ids(3, 4)
    one = generate(model, tokens, NEW, seed=7, **MIXED)
    assert torch.equal(generate(model, tokens, NEW, seed=7, **MIXED), one)
    assert not torch.equal(generate(model, tokens, NEW, seed=8, **MIXED), one)
    assert torch.equal(generate(build(), tokens, NEW, seed=7, cache=False, **MIXED), one)


@BOTH
@pytest.mark.parametrize("seed", [0, 41, -3])
def test_row_r_draws_as_alone_with_seed_plus_r(form, seed):
    model = form(build())
    rows = [ids(n, seed=n).tolist() for n in (3, 5, 1, 5)]
    tokens, real = pad_left(rows, 0)
    made = generate(model, tokens, NEW, seed=seed, token_mask=real, **MIXED)
    for r, row in enumerate(rows):
        alone = generate(model, torch.tensor([row]), NEW, seed=seed + r, **MIXED)
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
    expected = generate(model, tokens, NEW)
    assert torch.equal(generate(model, tokens, NEW, seed=1), expected)
    assert torch.equal(generate(model, tokens, NEW, temperature=2.0, top_k=1, seed=1), expected)


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
def test_the_penalty_counts_the_prompt_and_new_words_but_not_padding(form):
    model, heavy = counter(), {"repetition_penalty": 3.0}
    with torch.no_grad():
        model.head.weight += 5.0  # every word 5, the next one 14; a third of it once it occurs
    model = form(model)
    made = generate(model, torch.tensor([[9, 11, 10]]), 2, **heavy)
    # 11 occurs already: 14 / 3 is less than 5, and of the others the first, 0, wins; then 1.
    assert made.tolist() == [[9, 11, 10, 0, 1]]
    parrot = follower(list(range(12)))  # repeats its last word
    with torch.no_grad():
        parrot.head.weight += 5.0
    made = generate(form(parrot), torch.tensor([[4]]), 8, **heavy)
    assert made.tolist() == [[4, 0, 1, 2, 3, 5, 6, 7, 8]]
    tokens, real = pad_left([[10], [1, 2]], 11)
    padded = generate(model, tokens, NEW, token_mask=real, **heavy)
    alone = generate(model, torch.tensor([[10]]), NEW, **heavy)
    assert alone[0, 1] == 11
    assert torch.equal(padded[0, 1:], alone[0])
