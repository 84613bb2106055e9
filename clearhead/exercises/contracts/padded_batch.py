"""Rows of unequal length as one padded batch, with a mask of the real tokens."""

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from clearhead.exercises.draw import Draw
from clearhead.exercises.exercise import Answer, Case, Exercise, mistake
from clearhead.exercises.forms import Choices, ask_in_forms, change, read_parameters, to_tensor
from clearhead.exercises.student import Student

MASKS = ("input_mask", "attention_mask", "mask", "token_mask", "inp_mask", "padding_mask")
IDS = ("input_ids", "ids", "tokens", "inputs", "batch", "x")
OWN_PADS = (0, 1, 2, -1, -100)  # padding ids accepted from a function without pad_id


class PaddedBatch(Exercise):
    name = "padded_batch"
    title = "A padded batch with its mask"
    formula = "ids (B, T) padded on the right to the longest row; mask (B, T), 1 for real tokens"
    signature = (
        "pad_batch(rows, pad_id) → (ids, mask), or a dict with input_ids and input_mask; "
        "rows are lists or tensors of ids"
    )
    page = "data.md"
    names = (
        "pad_batch",
        "padded_batch",
        "pad_sequences",
        "collate",
        "collate_fn",
        "pad",
        "make_batch",
        "pad_and_mask",
        "create_batch",
        "pad_right",
        "encode_batch",
        "PadCollate",
        "Collate",
        "Collator",
        "PaddedBatch",
    )
    terms = {
        "length": "the length T, that of the longest row",
        "place": "padding on the right, after the tokens",
        "fill": "the id of the padding",
        "count": "the mask, 1 for real tokens and 0 for padding",
    }
    parameters = {
        "rows": "rows batch sequences seqs examples ids samples token_lists data lists inputs xs",
        "pad_id": "pad_id pad pad_token_id padding_value pad_token pad_idx pad_value padding_idx"
        " value pad_index",
    }
    constructor = {"pad_id": parameters["pad_id"]}
    optional = ("pad_id",)

    # The formula: lists of ids → ids (B, T) and mask (B, T)

    def answer(self, rows: list[list[int]], pad_id: int) -> dict[str, Tensor]:
        T = self.length([len(row) for row in rows])
        padding = [[self.fill(pad_id)] * max(0, T - len(row)) for row in rows]
        ids = [self.place(row[:T], pads) for row, pads in zip(rows, padding, strict=True)]
        mask = [self.place(*self.count(min(len(row), T), T)) for row in rows]
        return {"ids": torch.tensor(ids), "mask": torch.tensor(mask)}

    def length(self, lengths: list[int]) -> int:
        return max(lengths)

    def place(self, tokens: list[int], padding: list[int]) -> list[int]:
        return [*tokens, *padding]

    def fill(self, pad_id: int) -> int:
        return pad_id

    def count(self, n: int, T: int) -> tuple[list[int], list[int]]:
        """The entries of the mask for the tokens and for the padding."""
        return [1] * n, [0] * (T - n)

    # Mistakes

    @mistake(
        "count",
        "the mask is inverted: it is 1 for padding and 0 for real tokens",
        line=("== pad", "mask", "~", "1 -"),
    )
    def mask_inverted(self, n: int, T: int) -> tuple[list[int], list[int]]:
        return [0] * n, [1] * (T - n)

    @mistake("count", "the mask is 1 everywhere, for padding too", line=("ones", "mask"))
    def mask_of_ones(self, n: int, T: int) -> tuple[list[int], list[int]]:
        return [1] * n, [1] * (T - n)

    @mistake("count", "the mask ends one token early", line=("- 1", "mask", "<"))
    def mask_one_short(self, n: int, T: int) -> tuple[list[int], list[int]]:
        return [1] * (n - 1) + [0], [0] * (T - n)

    @mistake(
        "count",
        "the mask ends one token late: a padding token is marked as real",
        line=("+ 1", "<=", "mask"),
    )
    def mask_one_long(self, n: int, T: int) -> tuple[list[int], list[int]]:
        return [1] * n, ([1] + [0] * (T - n))[: T - n]

    @mistake(
        "count",
        "the mask leaves out the first token; the start token is a real token",
        line=("1:", "mask", "start"),
    )
    def first_token_masked(self, n: int, T: int) -> tuple[list[int], list[int]]:
        return [0] + [1] * (n - 1), [0] * (T - n)

    @mistake(
        "place",
        "the padding is on the left: the first token of a row no longer stands in column 0",
        line=("+", "left", "flip", "-len", "insert"),
    )
    def padded_left(self, tokens: list[int], padding: list[int]) -> list[int]:
        return [*padding, *tokens]

    @mistake(
        "fill",
        "the padding is always 0; pad_id is not used",
        line=("zeros", "[0]", "pad_sequence"),
    )
    def zero_for_pad(self, pad_id: int) -> int:
        return 0

    @mistake("fill", "the padding is −100, which is for targets; ids need pad_id", line=("100",))
    def target_padding(self, pad_id: int) -> int:
        return -100

    @mistake(
        "length",
        "the rows are cut to the shortest one: tokens are lost",
        line=("min(", "zip("),
    )
    def cut_to_shortest(self, lengths: list[int]) -> int:
        return min(lengths)

    @mistake("length", "the rows are cut to the length of the first one", line=("[0]",))
    def length_of_first(self, lengths: list[int]) -> int:
        return lengths[0]

    @mistake("length", "the batch is one column too wide", line=("+ 1", "max("))
    def one_column_more(self, lengths: list[int]) -> int:
        return max(lengths) + 1

    @mistake("length", "the longest row loses its last token", line=("- 1", "[:-1]", "max("))
    def one_column_less(self, lengths: list[int]) -> int:
        return max(lengths) - 1

    # Cases

    def ask(self, student: Student, case: Case) -> Answer | None:
        """Rows as lists or as tensors; a class is built with pad_id, and code without pad_id has a
        padding of its own."""
        forms = [case, change(case, lambda rows: [torch.tensor(row) for row in rows], "rows")]
        choices: Choices = [dict(case.inputs)]
        takes_pad = bool(set(read_parameters(student)) & set(self.parameters["pad_id"].split()))
        if not takes_pad and case.inputs["pad_id"] != 0:
            return None
        if not takes_pad:
            choices = [{**case.inputs, "pad_id": pad} for pad in OWN_PADS]
        if not takes_pad or student.is_class:
            forms = [_drop_pad(form) for form in forms]
        return ask_in_forms(self, student, forms, choices)

    def read(self, output: Any, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        """A tuple (ids, mask), or a dict with these names."""
        if isinstance(output, dict):
            found = {
                "ids": next((output[name] for name in IDS if name in output), None),
                "mask": next((output[name] for name in MASKS if name in output), None),
            }
        elif isinstance(output, tuple | list) and len(output) >= 2:
            found = {"ids": output[0], "mask": output[1]}
        else:
            found = {"ids": output, "mask": None}
        return {name: _read_numbers(value) for name, value in found.items()}

    def cases(self, draw: Draw) -> Iterable[Case]:
        def case(says: str, term: str, lengths: Iterable[int], pad_id: int) -> Case:
            rows = [draw.whole(5, 30, n).tolist() for n in lengths]
            return Case(says, term, {"rows": rows, "pad_id": pad_id})

        for pad_id in (0, 3):
            yield case("a single row needs no padding", "length", (4,), pad_id)
            yield case("rows of one length need no padding", "length", (3, 3), pad_id)
            yield case("padding has the id pad_id", "fill", (2, 5), pad_id)
            yield case("the batch is as long as its longest row", "place", (3, 1, 6, 4), pad_id)
            yield case("the first row may be the longest", "count", (7, 2, 5), pad_id)

    def small_cases(self, draw: Draw) -> Iterable[Case]:
        for rows in ([[5]], [[5, 6]], [[5], [6, 7]], [[5, 6], [7]], [[5, 6], [7, 8, 9], [5]]):
            for pad_id in (0, 3):
                yield Case("a small example", "place", {"rows": rows, "pad_id": pad_id})


def _drop_pad(case: Case) -> Case:
    given = case.inputs if case.given is None else case.given
    sizes = {"pad_id": case.inputs["pad_id"]}
    return Case(case.says, case.term, case.inputs, sizes, given={"rows": given["rows"]})


def _read_numbers(value: Any) -> Any:
    value = to_tensor(value)
    if isinstance(value, list):
        try:
            value = torch.tensor(value)
        except (ValueError, TypeError, RuntimeError):
            return value
    return value.to(torch.int64) if isinstance(value, Tensor) else value
