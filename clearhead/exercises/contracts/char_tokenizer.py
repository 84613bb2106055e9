"""A character tokenizer: [CLS] first, then a one-hot row for each character."""

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from clearhead.exercises.draw import Draw
from clearhead.exercises.exercise import Answer, Case, Exercise, mistake
from clearhead.exercises.forms import drop_axes, to_tensor
from clearhead.exercises.student import Student

LETTERS = "abc|"
PROBE = "abc|"  # every character once: shows which column belongs to which character


class CharTokenizer(Exercise):
    name = "char_tokenizer"
    title = "Characters as one-hot rows, [CLS] first"
    formula = "[CLS] a b | c → a one-hot row for each: (n + 1, 5)"
    signature = (
        "tokenize_string(string, add_cls_token=True): (n + 1, 5) with [CLS], (n, 5) without; "
        "letters a, b, c and |, columns in any order; another character is an error"
    )
    page = "data.md"
    names = (
        "tokenize_string",
        "char_tokenizer",
        "tokenize",
        "one_hot_encode",
        "encode_string",
        "tokenise_string",
        "CharTokenizer.one_hot",
        "CharTokenizer.tokenize",
        "CharTokenizer.encode",
        "CharTokenizer.__call__",
    )
    terms = {
        "rows": "the row of [CLS], before the rows of the characters",
        "encode": "one-hot rows: a single 1 in the column of the character",
        "width": "the 5 columns, with and without [CLS]",
        "unknown": "the error for a character that is not in the alphabet",
    }
    parameters = {
        "text": "string s text x str_ sequence input_string",
        "add_cls": "add_cls_token add_cls cls use_cls with_cls",
    }
    constructor = {"alphabet": "alphabet letters vocab characters chars"}
    optional = ("add_cls", "alphabet")

    # The formula: a text of n characters → (n + 1, 5)

    def answer(self, text: str, add_cls: bool = True) -> Tensor:
        known = [self.unknown(character) for character in text]
        ids = self.rows([i for i in known if i is not None], add_cls)
        table = self.width(torch.eye(6), add_cls)
        probe = self.encode(self.rows([1, 2, 3, 4], add_cls), table)
        return order_columns(self.encode(ids, table), probe)

    def unknown(self, character: str) -> int | None:
        return 1 + LETTERS.index(character)  # 0 is [CLS]

    def rows(self, ids: list[Any], add_cls: bool) -> list[Any]:
        return [0, *ids] if add_cls else ids

    def encode(self, ids: list[int], table: Tensor) -> Tensor:
        return table[ids]

    def width(self, table: Tensor, add_cls: bool) -> Tensor:
        return table[:, :5]  # column 5 is for an unknown character

    # Mistakes

    @mistake("rows", "the [CLS] row is missing", line=("def ", "return"))
    def no_cls(self, ids: list[Any], add_cls: bool) -> list[Any]:
        return ids

    @mistake("rows", "[CLS] comes last instead of first", line=("append", "+ [", "cat", "stack"))
    def cls_last(self, ids: list[Any], add_cls: bool) -> list[Any]:
        return [*ids, 0] if add_cls else ids

    @mistake(
        "rows",
        "[CLS] is always added: add_cls_token=False changes nothing",
        line=("CLS", "cls", "return"),
    )
    def cls_always(self, ids: list[Any], add_cls: bool) -> list[Any]:
        return [0, *ids]

    @mistake(
        "rows",
        "add_cls_token works the wrong way round: False adds [CLS], True does not",
        line=("if not", "not add_cls", "if "),
    )
    def cls_inverted(self, ids: list[Any], add_cls: bool) -> list[Any]:
        return ids if add_cls else [0, *ids]

    @mistake(
        "rows",
        "[CLS] uses the column of a letter; it needs a column of its own",
        line=("CLS", "cls", "[0]"),
    )
    def cls_like_a_letter(self, ids: list[Any], add_cls: bool) -> list[Any]:
        return [1, *ids] if add_cls else ids

    @mistake(
        "rows",
        "the separator | is dropped; it is a token like the letters",
        line=("split", "replace"),
    )
    def separator_dropped(self, ids: list[Any], add_cls: bool) -> list[Any]:
        return [0, *(i for i in ids if i != 4)] if add_cls else [i for i in ids if i != 4]

    @mistake("rows", "the characters come in reverse order", line=("[::-1]", "reversed"))
    def reversed_text(self, ids: list[Any], add_cls: bool) -> list[Any]:
        return [0, *ids[::-1]] if add_cls else ids[::-1]

    @mistake(
        "rows",
        "each distinct character appears once, in the order of the alphabet: a set loses "
        "order and repetition",
        line=("set(", "unique"),
    )
    def set_of_characters(self, ids: list[Any], add_cls: bool) -> list[Any]:
        once = sorted(set(ids))
        return [0, *once] if add_cls else once

    @mistake("encode", "ids are returned instead of one-hot rows", line=("return",))
    def ids_returned(self, ids: list[int], table: Tensor) -> Tensor:
        return torch.tensor(ids)

    @mistake(
        "encode",
        "the row of [CLS] has no 1, so it looks like padding",
        line=("zeros", "CLS", "cls"),
    )
    def empty_cls_row(self, ids: list[int], table: Tensor) -> Tensor:
        return (table * (torch.arange(6) > 0).unsqueeze(1))[ids]

    @mistake(
        "encode",
        "the rows of all characters are added up: a bag of characters has no order",
        line=("sum(", "+="),
    )
    def rows_added_up(self, ids: list[int], table: Tensor) -> Tensor:
        return table[ids].sum(0)

    @mistake(
        "encode", "the matrix is transposed: it must have one row per token", line=("T", "dim")
    )
    def transposed_rows(self, ids: list[int], table: Tensor) -> Tensor:
        return table[ids].T

    @mistake(
        "width",
        "without [CLS] there are only 4 columns; the vocabulary and all ids must stay the same",
        line=("[1:]", "1:", "4", "len("),
    )
    def narrow_without_cls(self, table: Tensor, add_cls: bool) -> Tensor:
        return table[:, :5] if add_cls else table[:, 1:5]

    @mistake(
        "width",
        "there is one column too many",
        line=("one_hot", "zeros", "eye", "len("),
    )
    def wide_rows(self, table: Tensor, add_cls: bool) -> Tensor:
        return table

    @mistake(
        "unknown",
        "an unknown character is silently dropped; it must raise an error",
        line=("if ", "in "),
    )
    def unknown_skipped(self, character: str) -> int | None:
        return 1 + LETTERS.index(character) if character in LETTERS else None

    @mistake(
        "unknown",
        "an unknown character gives a row without a 1; it must raise an error",
        line=("==", "if ", "get("),
    )
    def unknown_empty_row(self, character: str) -> int | None:
        return 1 + LETTERS.index(character) if character in LETTERS else 5

    @mistake(
        "unknown",
        "an unknown character is read as | (str.find returns −1, the last column); it must "
        "raise an error",
        line=("find(", "get(", "else"),
    )
    def unknown_as_last(self, character: str) -> int | None:
        return 1 + LETTERS.index(character) if character in LETTERS else 4

    @mistake(
        "unknown",
        "an unknown character is read as [CLS]; it must raise an error",
        line=("get(", "find(", "else"),
    )
    def unknown_as_cls(self, character: str) -> int | None:
        return 1 + LETTERS.index(character) if character in LETTERS else 0

    # Cases

    def ask(self, student: Student, case: Case) -> Answer | None:
        """Also ask for a text with every character: it shows the order of the columns."""
        answer = student.ask(self, case)
        if answer is None or answer.results is None:
            return answer
        probe = student.ask(self, Case("", "rows", {**case.inputs, "text": PROBE}, case.sizes))
        output = answer.results["output"]
        if isinstance(output, Tensor) and probe and probe.results:
            known = probe.results["output"]
            output = order_columns(output, known) if isinstance(known, Tensor) else output
        answer.results = {"output": output}
        return answer

    def read(self, output: Any, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        first = output[0] if isinstance(output, tuple) else output
        if isinstance(first, list) and not first:
            first = torch.zeros(0, 5)
        if isinstance(first, list):
            try:
                first = torch.tensor(first) if not _holds_tensors(first) else torch.stack(first)
            except (ValueError, TypeError, RuntimeError):
                return {"output": first}
        return {"output": drop_axes(to_tensor(first), 2)}

    def cases(self, draw: Draw) -> Iterable[Case]:
        def case(says: str, term: str, text: str, **more: Any) -> Case:
            return Case(says, term, {"text": text, **more}, {"alphabet": LETTERS})

        yield case("the empty text is [CLS] alone", "rows", "")
        yield case("each character has its own column", "encode", "abc|")
        for length in (3, 6, 9):
            text = draw.text("abc", length) + "|" + draw.text("abc", 2)
            yield case("a row for [CLS], then one for each character", "rows", text)
        for text in ("ca|b", draw.text("abc", 5) + "|"):
            yield case("without [CLS] all ids stay the same", "width", text, add_cls=False)
            yield case("add_cls_token=True puts [CLS] first", "rows", text, add_cls=True)
        yield case("an unknown character raises an error", "unknown", "abxc|a")

    def small_cases(self, draw: Draw) -> Iterable[Case]:
        for text in ("", "a", "b", "ab", "c|", "ba|", "cab|a"):
            yield Case("a small example", "rows", {"text": text}, {"alphabet": LETTERS})
        yield from self.cases(draw)


def _holds_tensors(values: list[Any]) -> bool:
    return bool(values) and all(isinstance(each, Tensor) for each in values)


def order_columns(rows: Tensor, probe: Tensor) -> Tensor:
    """Order the columns by the row of `probe` that has its 1 there; the others follow."""
    if rows.dim() == probe.dim() == 1:
        return _order_ids(rows, probe)
    if rows.dim() != 2 or probe.dim() != 2 or rows.size(1) != probe.size(1):
        return rows
    used = [int(row.argmax()) for row in probe if bool((row != 0).any())]
    order = list(dict.fromkeys([*used, *range(probe.size(1))]))
    return rows[:, order]


def _order_ids(ids: Tensor, probe: Tensor) -> Tensor:
    """Replace each id by its index in `probe`; ids that are not in it stay."""
    places = {value: place for place, value in enumerate(probe.tolist())}
    return torch.tensor([places.get(each, each) for each in ids.tolist()])
