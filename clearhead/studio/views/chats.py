"""Chat formats: how a conversation is written as one text, for models trained on conversations.

ChatML     <|im_start|>user⏎Hello<|im_end|>⏎<|im_start|>assistant⏎                 SmolLM2, Qwen 3
Llama 3    <|start_header_id|>user<|end_header_id|>⏎⏎Hello<|eot_id|>…              Llama 3

The chat_template in the tokenizer_config.json beside the weights says which format a model uses. A
template is a program, and programs in files are not run here: it is only searched for the marks of
a known format. The marks are special tokens, so no message can contain them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from clearhead.data.tokenizers import Tokenizer
from clearhead.files.reading import BadFile
from clearhead.files.strict_json import read_json
from clearhead.studio.sources import Opened


class NotServed(LookupError):
    """There is no such model, or it cannot do what was asked for."""

    status = 404  # of HTTP


@dataclass(frozen=True)
class Message:
    """One message of a conversation."""

    role: Literal["system", "user", "assistant"]
    content: str


@dataclass(frozen=True)
class ChatFormat:
    """How a message is written: begin, role, between, content, end, after.

    begin, end and first, which stands before all messages, are marks: special tokens. `after` is
    text; `between` is a mark and a text.
    """

    name: str
    begin: str
    between: tuple[str, str]  # the mark may be empty
    end: str
    after: str
    first: str = ""

    @property
    def marks(self) -> list[str]:
        """The special tokens."""
        return [mark for mark in (self.first, self.begin, self.between[0], self.end) if mark]


FORMATS = [
    ChatFormat("ChatML", "<|im_start|>", ("", "\n"), "<|im_end|>", "\n"),
    ChatFormat(
        "Llama 3",
        "<|start_header_id|>",
        ("<|end_header_id|>", "\n\n"),
        "<|eot_id|>",
        "",
        first="<|begin_of_text|>",
    ),
]


@dataclass(frozen=True)
class Chat:
    """A chat format, and the tokenizer that encodes it."""

    format: ChatFormat
    tokenizer: Tokenizer

    @property
    def stop_ids(self) -> set[int]:
        """The token that ends a message."""
        return set(self._find_mark(self.format.end))

    def encode(self, messages: Sequence[Message]) -> list[int]:
        """The ids of a conversation and of the beginning of the answer that the model continues."""
        form = self.format
        ids = self._find_mark(form.first)
        for message in messages:
            ids += self._begin(message.role, message.content) + self._find_mark(form.end)
            ids += self._encode(form.after)
        return ids + self._begin("assistant", "")

    def _begin(self, role: str, content: str) -> list[int]:
        mark, text = self.format.between
        ids = self._find_mark(self.format.begin)
        if not mark:
            return ids + self._encode(role + text + content)
        return ids + self._encode(role) + self._find_mark(mark) + self._encode(text + content)

    def _find_mark(self, mark: str) -> list[int]:
        return [self.tokenizer.tokens.index(mark)] if mark else []

    def _encode(self, text: str) -> list[int]:
        """The ids of a text without start and end tokens."""
        ids = self.tokenizer.encode(text) if text else []
        first = 1 if ids[:1] == [self.tokenizer.start_id] else 0
        last = 1 if ids[first:] and ids[-1] == self.tokenizer.end_id else 0
        return ids[first : len(ids) - last]


def find_chat_format(opened: Opened) -> Chat:
    """The chat format of a model; NotServed says why it has none."""
    id, tokenizer = opened.source.id, opened.tokenizer
    assert tokenizer is not None
    template = _read_template(opened)
    if template is None:
        raise NotServed(
            f"model {id!r} has no chat format: there is no chat_template in a "
            f"tokenizer_config.json beside its weights; use /v1/completions"
        )
    known = set(tokenizer.tokens)
    for form in FORMATS:
        if form.begin in template and form.end in template and known.issuperset(form.marks):
            return Chat(form, tokenizer)
    names = " or ".join(form.name for form in FORMATS)
    raise NotServed(
        f"the chat_template of model {id!r} is not {names}, the formats known here; "
        f"use /v1/completions"
    )


def _read_template(opened: Opened) -> str | None:
    path = Path(opened.source.path) / "tokenizer_config.json"
    try:
        values: Any = read_json(path) if path.is_file() else {}
    except BadFile as fault:
        raise NotServed(f"model {opened.source.id!r} has no chat format: {fault}") from None
    template = values.get("chat_template") if isinstance(values, dict) else None
    return template if isinstance(template, str) else None
