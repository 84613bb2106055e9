"""Attention step by step on a sentence, with weights set by hand.

    the hungry dog left the crowded park

Two heads of an ordinary MultiHeadAttention. The first works by content: the query of an adjective
asks for the kind of thing it describes, and the key of a noun offers its kind. The second works by
position: a Toeplitz bias is large one step back, so each word attends to the word before it.
Nothing is random and nothing is trained.
"""

import math

import torch
from torch import Tensor

from clearhead.attention import Mask, MultiHeadAttention, loop_over_heads
from clearhead.inspection import figures, record
from clearhead.lab import EXPERIMENTS
from clearhead.lab.tools.finding import Finding, Table, format_vector
from clearhead.positions import ToeplitzBias

WORDS = ["the", "hungry", "dog", "left", "the", "crowded", "park"]
FEATURES = ("living", "place", "asks for living", "asks for place")
KINDS = {"dog": "living", "park": "place", "hungry": "asks for living", "crowded": "asks for place"}
STRENGTH = 6.0  # the score of a match, before the division by √Dh


def build() -> tuple[MultiHeadAttention, Tensor]:
    """The attention with its weights set, and the sentence (1, T, 4) as features of its words."""
    x = torch.zeros(1, len(WORDS), len(FEATURES))
    for position, word in enumerate(WORDS):
        if word in KINDS:
            x[0, position, FEATURES.index(KINDS[word])] = 1.0
    bias = ToeplitzBias(2, max_len=len(WORDS))
    attention = MultiHeadAttention(len(FEATURES), 2, bias=False, positions=bias)
    with torch.no_grad():
        for parameter in attention.parameters():
            parameter.zero_()
        for column, kind in enumerate(("living", "place")):
            attention.proj_q.weight[column, FEATURES.index(f"asks for {kind}")] = STRENGTH
            attention.proj_k.weight[column, FEATURES.index(kind)] = 1.0
        bias.weight[1, bias.max_len - 1] = STRENGTH  # one step back
        for layer in (attention.proj_v, attention.proj_out):
            layer.weight.copy_(torch.eye(len(FEATURES)))
    return attention.eval(), x


def experiment(*, seed: int = 0, full: bool = False, device: torch.device | str = "cpu") -> Finding:
    """Attention brings each word what it asks for."""
    attention, x = build()
    attention, x = attention.to(device), x.to(device)
    with torch.no_grad(), record(attention) as trace:
        output = attention(x)
        attention(x, mask=Mask.causal())
        difference = (output - loop_over_heads(attention, x)).abs().max().item()
    call, masked = trace.calls("")
    free, causal = call.weights[0].cpu(), masked.weights[0].cpu()  # (H, T, S)
    layers = {"all words are visible": free[None], "causal: no looking ahead": causal[None]}
    the, hungry, dog, left, _, crowded, park = range(len(WORDS))
    numbers = {
        "hungry_takes_from_dog": free[0, hungry, dog].item(),
        "crowded_takes_from_park": free[0, crowded, park].item(),
        "left_takes_from_each": free[0, left, the].item(),
        "causal_hungry_takes_from_the": causal[0, hungry, the].item(),
        "dog_looks_back_at_hungry": free[1, dog, hungry].item(),
        "fused_minus_written_out": difference,
    }
    return Finding(
        claim=EXPERIMENTS["attention"],
        tables=[_follow_query(call.q[0, 0, hungry].cpu(), call.k[0, 0].cpu(), free[0, hungry])],
        seen=_describe(numbers),
        numbers=numbers,
        picture=figures.attention_grid(layers, tokens=WORDS),
    )


def _follow_query(q: Tensor, k: Tensor, weights: Tensor) -> Table:
    """The query of "hungry" in every step of the equation."""
    scores, scale = k @ q, math.sqrt(q.numel())
    steps = {"q·k": scores, f"/ √{q.numel()}": scores / scale, "softmax": weights}
    caption = (
        f'"hungry" asks for something living: its query is {format_vector(q.tolist())}, the key of '
        f'"dog" is {format_vector(k[2].tolist())}.'
    )
    rows = [[name, *(f"{value:.2f}" for value in row.tolist())] for name, row in steps.items()]
    return Table(caption, ["", *WORDS], rows)


def _describe(numbers: dict[str, float]) -> str:
    percent = {name: f"{value:.0%}" for name, value in numbers.items()}
    return (
        f'So "hungry" takes {percent["hungry_takes_from_dog"]} of what it gets from "dog", and '
        f'"crowded" takes {percent["crowded_takes_from_park"]} from "park".\n'
        f'"left" asks for nothing: all scores are equal and it takes '
        f"{percent['left_takes_from_each']} from every word.\n"
        f'With a causal mask "dog" is not visible, and "hungry" takes '
        f'{percent["causal_hungry_takes_from_the"]} from "the".\n'
        f'The second head looks one word back: "dog" takes '
        f'{percent["dog_looks_back_at_hungry"]} from "hungry".\n'
        f"The fused kernel and a loop over heads differ by "
        f"{numbers['fused_minus_written_out']:.1g}."
    )
