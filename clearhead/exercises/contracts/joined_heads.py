"""Heads from a list: their outputs side by side, then a linear layer over all of them.

The heads are built beside the student's code by `helpers`. They stand in for attention modules:
each is linear in every token, which is enough to see how their outputs are joined. They behave as
the SelfAttention of the same file does, if there is one: attributes, and a tuple as output.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from clearhead.exercises.draw import Draw
from clearhead.exercises.exercise import Answer, Case, Exercise, mistake
from clearhead.exercises.weights import Assignment, Linear, Role

N_HEADS = 3
MODULES = "modules attentions attention_modules attention_heads head_modules"
JOIN = ("cat", "stack", "concat")


def start_value(number: int, d_output: int, d_input: int) -> Tensor:
    """The initial weight of a head; a head that is not registered keeps it."""
    return torch.cos(torch.arange(d_output * d_input) + number).view(d_output, d_input)


class JoinedHeads(Exercise):
    name = "joined_heads"
    title = "Heads from a list"
    formula = "[head_1(x) … head_H(x)] W_O"
    signature = "MultiHeadedAttention(modules, output_dim)(x)"
    page = "attention.md#heads"
    names = (
        f"MultiHeadedAttention with {MODULES} output_dim",
        "JoinedHeads",
        f"MultiHeadAttention with {MODULES} output_dim",
        f"MultiHead with {MODULES} output_dim",
    )
    terms = {
        "register": "the heads, kept in an nn.ModuleList",
        "attend": "the output of each head",
        "join": "the heads side by side, along the last axis",
        "finish": "the output layer W_O",
    }
    parameters = {"x": "x inputs input hidden"}
    constructor = {
        "modules": f"{MODULES} heads layers",
        "d_output": "output_dim d_output d_out out_dim d_model dim output_size",
    }
    helpers = """
import torch as _torch


class _ClearheadHead(_torch.nn.Module):
    def __init__(self, number, d_input, d_output):
        super().__init__()
        self.__dict__["own"] = [_clearhead_own(d_input, d_output)]
        weight = _torch.cos(_torch.arange(d_output * d_input) + number).view(d_output, d_input)
        layer = _torch.nn.Linear(d_input, d_output, bias=False)  # its width may be asked for
        layer.weight.data = weight
        self.add_module(f"head{number}", layer)
        self.number = number
        for name in ("output_dim", "d_output", "d_out", "out_dim", "value_dim", "d_v", "dim_v"):
            setattr(self, name, d_output)
        for name in ("input_dim", "d_input", "d_in"):
            setattr(self, name, d_input)

    def forward(self, x, *rest, **more):
        y = getattr(self, f"head{self.number}")(x)
        gives_tuple = self.own[0] is not None and isinstance(self.own[0](x), tuple)
        return (y, x @ x.mT) if gives_tuple else y

    def __getattr__(self, name):
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self.__dict__["own"][0], name)


def _clearhead_own(d_input, d_output):
    try:
        return SelfAttention(d_input, 2, d_output)
    except Exception:
        return None
"""

    def roles(self, modules: Any, d_output: int) -> dict[str, Role]:
        _, d_input, d_head = modules[0]["args"]
        return {
            **{
                f"head{i}": Role("linear", (d_head, d_input), f"head{i}", optional=True)
                for i in range(N_HEADS)
            },
            "out": Role("linear", (d_output, N_HEADS * d_head), "", optional=True),
            "narrow": Role("linear", (d_output, d_head), "", optional=True),
        }

    def assign(self, parameters: Sequence[Any], sizes: Mapping[str, Any]) -> Sequence[Assignment]:
        """Find the heads by the names of their parameters alone."""
        found = super().assign(parameters, sizes)
        heads = [f"head{i}" for i in range(N_HEADS)]
        kept = [a for a in found if all(n not in a or a[n].name.endswith(n) for n in heads)]
        return sorted(kept, key=lambda a: -len(a))[:1] or [{}]

    def ask(self, student: Any, case: Case) -> Answer | None:
        """Also ask whether the heads are registered as submodules."""
        answer: Answer | None = student.ask(self, case)
        if answer is not None and answer.results is not None:
            is_registered = all(f"head{i}" in answer.choices[0] for i in range(N_HEADS))
            answer.results = {**answer.results, "registered": is_registered}
        return answer

    # The formula: x (B, T, d_input) → (B, T, d_output)

    def answer(
        self,
        x: Tensor,
        d_head: int,
        out: Linear | None = None,
        narrow: Linear | None = None,
        **heads: Linear,
    ) -> dict[str, Any]:
        start = [Linear(start_value(i, d_head, x.size(-1))) for i in range(N_HEADS)]
        layers = [heads.get(f"head{i}", start[i]) for i in range(N_HEADS)]
        joined = self.join([self.attend(x, layer) for layer in layers])
        return {"output": self.finish(joined, out, narrow), "registered": self.register()}

    def register(self) -> bool:
        return True

    def attend(self, x: Tensor, head: Linear) -> Tensor:
        return head(x)

    def join(self, outputs: Sequence[Tensor]) -> Tensor:
        return torch.cat(list(outputs), dim=-1)

    def finish(self, joined: Tensor, out: Linear | None, narrow: Linear | None) -> Tensor:
        layer = out if out is not None else narrow
        if layer is None:
            raise ValueError("there is no last layer")
        return layer(joined)

    def forms(self, case: Case) -> Iterable[Case]:
        yield Case(
            case.says, case.term, case.inputs, case.sizes, case.gradient,
            given={"x": case.inputs["x"]},
        )  # fmt: skip

    # Mistakes

    @mistake(
        "register",
        "the heads are kept in a plain list: the optimizer does not see their parameters, and they "
        "are not saved; use nn.ModuleList",
        line=("modules", "heads", "="),
    )
    def plain_list(self) -> bool:
        return False

    @mistake(
        "join",
        "the outputs are joined along time (dim=1) instead of side by side (dim=-1)",
        line=JOIN,
    )
    def joined_in_time(self, outputs: Sequence[Tensor]) -> Tensor:
        return torch.cat(list(outputs), dim=1)

    @mistake("join", "the outputs are joined along the batch (dim=0)", line=JOIN)
    def joined_in_batch(self, outputs: Sequence[Tensor]) -> Tensor:
        return torch.cat(list(outputs), dim=0)

    @mistake(
        "join",
        "the outputs of the heads are added instead of put side by side",
        line=("sum", "+"),
    )
    def heads_summed(self, outputs: Sequence[Tensor]) -> Tensor:
        return torch.stack(list(outputs)).sum(0)

    @mistake("join", "the outputs of the heads are averaged", line=("mean", "/"))
    def heads_averaged(self, outputs: Sequence[Tensor]) -> Tensor:
        return torch.stack(list(outputs)).mean(0)

    @mistake(
        "join",
        "the features of the heads are interleaved; the features of each head must stay together",
        line=("stack", "flatten", "reshape", "view"),
    )
    def interleaved_features(self, outputs: Sequence[Tensor]) -> Tensor:
        return torch.stack(list(outputs), dim=-1).flatten(-2)

    @mistake(
        "join",
        "only the last head is used: each step of the loop overwrites the result",
        line=("for ", "="),
    )
    def last_head_only(self, outputs: Sequence[Tensor]) -> Tensor:
        return outputs[-1]

    @mistake(
        "join",
        "one head is called H times instead of H different heads",
        line=("[0]", "* len", "range("),
    )
    def first_head_for_all(self, outputs: Sequence[Tensor]) -> Tensor:
        return torch.cat([outputs[0]] * len(outputs), dim=-1)

    @mistake(
        "finish",
        "the output layer W_O is missing: the heads are joined but not mixed",
        line=("return", *JOIN),
    )
    def no_output_layer(self, joined: Tensor, out: Linear | None, narrow: Linear | None) -> Tensor:
        return joined

    # Cases

    def cases(self, draw: Draw) -> Iterable[Case]:
        def case(
            says: str, term: str, B: int, T: int, d_input: int, d_head: int, d: int, **more: Any
        ) -> Case:
            inputs = {"x": draw.normal(B, T, d_input), "d_head": d_head}
            return Case(says, term, inputs, _sizes(d_input, d_head, d), **more)

        zero = case(
            "for an input of zeros the output is the last layer's bias", "finish", 2, 4, 5, 6, 7
        )
        inputs = {**zero.inputs, "x": torch.zeros(2, 4, 5)}
        yield Case(zero.says, zero.term, inputs, zero.sizes)
        yield case("the heads are side by side in the last axis", "join", 2, 4, 5, 6, 7)
        yield case("one feature for each head", "join", 4, 5, 7, 2, 3)
        yield case("the gradient reaches the input", "attend", 2, 3, 4, 5, 8, gradient=True)

    def small_cases(self, draw: Draw) -> Iterable[Case]:
        for T, d_input, d_head, d in ((1, 1, 2, 1), (2, 1, 2, 1), (2, 2, 2, 1), (2, 3, 2, 4)):
            inputs = {"x": draw.small(1, T, d_input), "d_head": d_head}
            yield Case("a small example", "join", inputs, _sizes(d_input, d_head, d))
        yield from self.cases(draw)


def _sizes(d_input: int, d_head: int, d_output: int) -> dict[str, Any]:
    heads = [{"make": "_ClearheadHead", "args": [i, d_input, d_head]} for i in range(N_HEADS)]
    return {"modules": heads, "d_output": d_output}
