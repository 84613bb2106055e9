"""Does the trained substring model do what a program does?

A program is a hypothesis that can be tested. The three programs of programs.py find the needle in
different ways. Three measurements show which of them is closest to the trained model.

Exchange within a model. Take two texts with different answers that differ only in the needle, or
only in the haystack. After a layer, patch one group of tokens (haystack, needle or [CLS]) with its
activations on the other text. If the answer changes to that of the other text, these tokens hold
the information that decides it. So this shows which tokens have made the comparison.

    [CLS] a b c a | c a      yes            [CLS] a b c a | c b      no

Exchange between models. After a layer, replace the residual stream of the trained model by a linear
function of the program's residual stream on the same text, fitted on other texts. If the remaining
layers still answer right, the program holds at each token all the information they use.

Alignment of heads. For each head of the program, find the head of the trained model that puts the
most weight on the keys which the program's head selects.
"""

import random
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from clearhead.inspection import ablate, patch
from clearhead.lab import EXPERIMENTS
from clearhead.lab.algorithm import report
from clearhead.lab.algorithm.programs import CANDIDATES, SIDES, Candidate
from clearhead.lab.algorithm.subjects import GROUPS, Subject, make_compiled, make_trained
from clearhead.lab.algorithm.texts import (
    NEEDLES,
    SEPARATOR,
    Pairs,
    draw_pairs,
    draw_texts,
    is_found,
)
from clearhead.lab.tools.finding import Finding
from clearhead.lab.tools.training import train_substring_model

N_PAIRS, N_TEXTS = 200, 800  # for each length of the needle
ALIGNED = ("aligned_layer", "aligned_head", "aligned_weight", "alike_weight", "right_without")
IS_SELECTED = 0.05  # weight above which a key counts as selected; unselected ones have e^-40

Numbers = dict[str, Any]


def experiment(*, seed: int = 0, full: bool = False, device: torch.device | str = "cpu") -> Finding:
    """A trained model has an algorithm of its own, which a program explains in part."""
    model, task = train_substring_model(seed, full, device)
    trained = make_trained(model, task.train.tokenizer)
    numbers = compare(trained, seed)
    program = build(CANDIDATES[int(numbers["closest"])], int(numbers["step"]), trained)
    return Finding(
        claim=EXPERIMENTS["algorithm"],
        tables=report.tabulate(numbers, program),
        seen=report.describe(numbers),
        numbers=numbers,
        picture=report.draw(numbers, trained, program),
    )


def compare(trained: Subject, seed: int = 0) -> Numbers:
    """Make all measurements: name → numbers."""
    draw = random.Random(seed)
    texts = [draw_texts(draw, n, N_TEXTS) for n in NEEDLES]
    pairs = {kind: [draw_pairs(draw, n, kind, N_PAIRS) for n in NEEDLES] for kind in GROUPS[:2]}
    numbers: Numbers = {"accuracy": [measure_accuracy(trained, batch) for batch in texts]}

    # Layer 0 is the same in all programs: each letter reads its neighbours on one side.
    for step, side in SIDES.items():
        known = read_stream(build(CANDIDATES[0], step, trained), texts, layer=0)
        numbers[f"right_{side}"] = measure_translation(known, trained, texts, layer=0)
    step = max(SIDES, key=lambda step: sum(numbers[f"right_{SIDES[step]}"]))

    # In layer 1 the programs differ.
    programs = {each.name: build(each, step, trained) for each in CANDIDATES}
    streams = {name: read_stream(program, texts, layer=1) for name, program in programs.items()}
    streams["together"] = [torch.cat(each, dim=-1) for each in zip(*streams.values(), strict=True)]
    for name, subject in {"trained": trained, **programs}.items():
        numbers |= _name(name, measure_exchange(subject, pairs))
    for name, known in streams.items():
        numbers[f"right_{name}"] = measure_translation(known, trained, texts, layer=1)
    tokens = read_stream(programs["needle"], texts, layer=None)
    for layer in (0, 1):
        numbers[f"right_alone_{layer}"] = measure_translation(tokens, trained, texts, layer)

    closest = min(CANDIDATES, key=lambda each: measure_difference(numbers, each.name))
    numbers |= {"step": float(step), "closest": float(CANDIDATES.index(closest))}
    return numbers | align_heads(programs[closest.name], closest, trained, texts[-1])


def measure_difference(numbers: Numbers, name: str) -> float:
    """The distance between a program and the model in their results of exchange after layer 1.

    The program with the smallest distance is the closest. The accuracy of exchange between models
    cannot decide this: a program in which all tokens fetch the needle holds more information than
    one in which only [CLS] fetches it, whatever the model does.
    """
    return sum(
        abs(x - y)
        for kind in GROUPS[:2]
        for x, y in zip(
            numbers[f"{name}_follows_{kind}_layer_1"],
            numbers[f"trained_follows_{kind}_layer_1"],
            strict=True,
        )
    )


def build(candidate: Candidate, step: int, trained: Subject) -> Subject:
    """Compile a program, on the device of the trained model."""
    return make_compiled(candidate.build(step), trained.model.device)


def measure_accuracy(subject: Subject, texts: Sequence[str]) -> float:
    """The share of texts that are answered right."""
    right = torch.tensor([is_found(text) for text in texts])
    return float((subject.answer(subject.encode(texts)).cpu() == right).float().mean())


# Exchange within a model


def measure_exchange(subject: Subject, pairs: dict[str, list[Pairs]]) -> dict[str, Tensor]:
    """For each kind of pair, the mean of exchange_tokens over the needle lengths: (L, groups)."""
    return {
        kind: torch.stack([exchange_tokens(subject, batch) for batch in batches]).mean(dim=0)
        for kind, batches in pairs.items()
    }


def exchange_tokens(subject: Subject, pairs: Pairs) -> Tensor:
    """Patch each group of tokens after each layer: the share of answers that become the other's.

    Returns (L, groups). Only pairs to which the model gives different answers count.
    """
    ids, others = (subject.encode(texts) for texts in zip(*pairs, strict=True))
    before, goal = subject.answer(ids), subject.answer(others)
    trace = subject.trace(others)
    rows = []
    for layer in range(subject.model.config.n_layers):
        name = f"stack.blocks.{layer}"
        for group in GROUPS:
            positions = subject.find_positions(group, ids.size(1))
            with patch(subject.model, {name: trace[name].output}, positions=positions):
                follows = subject.answer(ids) == goal
            rows.append(follows[before != goal].float().mean())
    return torch.stack(rows).view(-1, len(GROUPS)).cpu()


# Exchange between models


def measure_translation(
    known: Sequence[Tensor], trained: Subject, texts: Sequence[Sequence[str]], layer: int
) -> list[float]:
    """The accuracy with a program's stream in place of the model's, for each needle length.

    known: the program's stream for each batch of texts, (B, T, D), from read_stream. One linear
    function for [CLS] and one for all other tokens are fitted on the first half of the texts; the
    accuracy is that on the second half.
    """
    name, half = f"stack.blocks.{layer}", len(texts[0]) // 2
    wanted = [trained.trace(trained.encode(batch))[name].output for batch in texts]
    for_cls, for_others = (
        fit_linear(_join_rows(known, half, tokens), _join_rows(wanted, half, tokens))
        for tokens in (slice(0, 1), slice(1, None))
    )
    results = []
    for batch, stream in zip(texts, known, strict=True):
        translated = stream[half:] @ for_others
        translated[:, 0] = stream[half:, 0] @ for_cls
        with patch(trained.model, {name: translated.to(wanted[0])}):
            results.append(measure_accuracy(trained, batch[half:]))
    return results


def _join_rows(streams: Sequence[Tensor], half: int, tokens: slice) -> Tensor:
    """The values of these tokens in the first half of each batch, (rows, D)."""
    return torch.cat([stream[:half, tokens].flatten(0, 1) for stream in streams])


def fit_linear(inputs: Tensor, outputs: Tensor) -> Tensor:
    """The matrix W that minimizes |inputs · W − outputs|²: (N, D), (N, E) → (D, E).

    By a pseudo-inverse, because the directions of a program are linearly dependent: for example,
    the one-hot directions of the tokens always sum to 1.
    """
    outputs = outputs.to(inputs)
    gram = inputs.mT @ inputs
    return torch.linalg.pinv(gram, hermitian=True) @ (inputs.mT @ outputs)


def read_stream(
    program: Subject, texts: Sequence[Sequence[str]], layer: int | None
) -> list[Tensor]:
    """The residual stream of a program after a layer, for each batch of texts: (B, T, D + 1).

    layer=None gives the embedding. The stream at the separator, where the program answers, takes
    the position of [CLS]. A constant 1 is appended, for the bias of a linear function.
    """
    streams = []
    for batch in texts:
        trace = program.trace(program.encode(batch))
        if layer is None:
            stream = trace["stack.blocks.0"].input
        else:
            stream = trace[f"stack.blocks.{layer}"].output
        stream = torch.cat((stream[:, SEPARATOR : SEPARATOR + 1], stream[:, 1:]), dim=1)
        streams.append(torch.cat((stream, torch.ones_like(stream[..., :1])), dim=-1))
    return streams


# Alignment of heads


def align_heads(
    program: Subject, candidate: Candidate, trained: Subject, texts: Sequence[str]
) -> Numbers:
    """For each head of the program, the numbers of ALIGNED, one list each.

    The layer and number of the trained head with most weight on the keys that the program's head
    selects; this weight; the weight of uniform attention; the accuracy without the trained head.
    """
    ids = trained.encode(texts)
    weights = torch.stack(trained.trace(ids).weights())  # (L, B, H, T, T)
    selected = program.trace(program.encode(texts)).weights()
    found: dict[str, list[float]] = {name: [] for name in ALIGNED}
    for part in program.heads:
        group = candidate.readers[part.layer]
        queries = trained.find_positions(group, ids.size(1))
        program_queries = program.find_positions(group, ids.size(1))
        # For Q queries of the group: the keys that the program's head selects, (B, Q, T).
        keys = selected[part.layer][:, part.head, program_queries] > IS_SELECTED
        keys[..., 0] = False  # the start token, attended to where nothing is selected
        has_keys = keys.any(dim=-1)  # (B, Q)
        on_keys = (weights[..., queries, :] * keys[:, None]).sum(dim=-1)  # (L, B, H, Q)
        share = on_keys.movedim(2, 1)[:, :, has_keys].mean(dim=-1)  # (L, H)
        layer, head = divmod(int(share.argmax()), share.size(1))
        with ablate(trained.model, layer, head, by="mean"):
            right = measure_accuracy(trained, texts)
        uniform = float(keys.float().mean(dim=-1)[has_keys].mean())
        for name, value in zip(
            ALIGNED, (layer, head, float(share.max()), uniform, right), strict=True
        ):
            found[name].append(float(value))
    return dict(found)


def _name(name: str, exchanged: dict[str, Tensor]) -> Numbers:
    """The rows of measure_exchange by name, one for each kind of pair and layer."""
    return {
        f"{name}_follows_{kind}_layer_{layer}": row.tolist()
        for kind, table in exchanged.items()
        for layer, row in enumerate(table)
    }
