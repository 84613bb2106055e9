"""A word tokenizer: words and punctuation, a start token first, unknown words as one token."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from clearhead.exercises.draw import Draw
from clearhead.exercises.exercise import Answer, Case, Exercise, mistake
from clearhead.exercises.sandbox.supervisor import StudentError
from clearhead.exercises.student import MODULE, Student

WORDS = ("we", "know", "it", "Let", "us", "kill", "him", "bread", "corn", "price", "speak")
MARKS = (",", ".", "!", "?")
UNKNOWN = ("zebra", "quartz")
PLAIN = (
    "we know"  # words that every way of splitting knows, if the texts were passed in the right form
)

# Encode and decode in one call; ids may be a list, a tensor or an array.
HELPERS = """
def _fit(model, texts):
    for name in ("fit", "build_vocab", "build_vocabulary", "train", "fit_on_texts", "build"):
        if hasattr(model, name):
            getattr(model, name)(texts)
            return
    raise TypeError("it takes no texts: neither its constructor nor a method fit or build_vocab")

def _encode(model, text):
    encode = getattr(model, "encode", None) or getattr(model, "tokenize", None) or model
    ids = encode(text)
    ids = getattr(ids, "ids", ids)
    ids = ids["input_ids"] if isinstance(ids, dict) else ids
    ids = ids.tolist() if hasattr(ids, "tolist") else list(ids)
    return ids[0] if ids and isinstance(ids[0], list) else ids

def _tokenize_words(model, text):
    ids = _encode(model, text)
    decode = getattr(model, "decode", None)
    if decode is None:
        return ids, None, None
    return ids, [str(decode([i])) for i in ids], str(decode(ids))
"""


class WordTokenizer(Exercise):
    name = "word_tokenizer"
    title = "Words and punctuation as ids, with start, pad and unk"
    formula = "<start> We know it , we know it . → ids; an unknown word → <unk>"
    signature = (
        "WordTokenizer(texts) with encode(text) → ids and decode(ids) → text; texts: a list of "
        "texts, one text, or a list of words, also for fit(texts); the ids themselves are free"
    )
    page = "data.md"
    names = (
        "WordTokenizer",
        "WordLevelTokenizer",
        "Tokenizer",
        "SimpleTokenizer",
        "DialogueTokenizer",
        "SimpleWordTokenizer",
    )
    terms = {
        "split": "words and punctuation as tokens of their own",
        "begin": "the start token, first in every text",
        "look_up": "one id for each word, and one for all unknown words",
        "join": "decode, which joins tokens with spaces",
    }
    parameters = {"text": "text s"}
    constructor = {"texts": "texts text corpus data vocab words sentences dialogues vocabulary"}
    helpers = HELPERS

    # The formula: the tokens of a text, spelled; ids are compared through decode

    def answer(self, text: str, texts: tuple[str, ...]) -> Mapping[str, Any]:
        tokens, unknown = self.tokenize(text, texts), self.tokenize(UNKNOWN[1], texts)
        return _read_tokens((tokens, tokens, self.join(tokens)), (unknown, unknown, ""))

    def tokenize(self, text: str, texts: tuple[str, ...]) -> list[str]:
        known = {word for each in texts for word in self.split(each)}
        tokens = self.begin([self.look_up(word, known) for word in self.split(text)])
        return [word for word in tokens if word is not None]

    def split(self, text: str) -> list[str]:
        return re.findall(r"\w+|[^\w\s]", text)

    def begin(self, tokens: list[Any]) -> list[Any]:
        return ["<start>", *tokens]

    def look_up(self, word: str, known: set[str]) -> str | None:
        return word if word in known else "<unk>"

    def join(self, tokens: list[str]) -> str:
        return " ".join(tokens)

    # Mistakes

    @mistake(
        "split",
        "the text is split at spaces only, so punctuation sticks to its word: 'it,' is not 'it'",
        line=("split(",),
    )
    def split_at_spaces(self, text: str) -> list[str]:
        return text.split()

    @mistake(
        "split",
        "punctuation is dropped; each mark must be a token of its own",
        line=("findall", "sub(", "strip", "punctuation"),
    )
    def no_punctuation(self, text: str) -> list[str]:
        return re.findall(r"\w+", text)

    @mistake("split", "the text is split into characters, not words", line=("list(", "for "))
    def split_into_characters(self, text: str) -> list[str]:
        return list(text)

    @mistake(
        "split",
        "only the mark at the end of the text is split off; a full stop before the next sentence "
        "sticks to its word",
        line=("$", "[-1]", "endswith"),
    )
    def last_mark_only(self, text: str) -> list[str]:
        return re.sub(r"([^\w\s])\s*$", r" \1", text).split()

    @mistake("begin", "the start token is missing", line=("def encode", "return"))
    def no_start(self, tokens: list[Any]) -> list[Any]:
        return tokens

    @mistake("begin", "the start token comes last", line=("append", "+ ["))
    def start_last(self, tokens: list[Any]) -> list[Any]:
        return [*tokens, "<start>"]

    @mistake("begin", "the start token comes twice", line=("start", "+"))
    def start_twice(self, tokens: list[Any]) -> list[Any]:
        return ["<start>", "<start>", *tokens]

    @mistake(
        "look_up",
        "unknown words are silently dropped: each must become <unk>",
        line=("if ", "in "),
    )
    def unknown_skipped(self, word: str, known: set[str]) -> str | None:
        return word if word in known else None

    @mistake(
        "look_up",
        "unknown words get the id of the start token",
        line=("get(", "unk"),
    )
    def unknown_as_start(self, word: str, known: set[str]) -> str | None:
        return word if word in known else "<start>"

    @mistake("join", "decode joins the tokens without spaces", line=("join(",))
    def joined_without_spaces(self, tokens: list[str]) -> str:
        return "".join(tokens)

    # Cases

    def ask(self, student: Student, case: Case) -> Answer | None:
        """Give a list of texts, one text or a list of words: the first that makes PLAIN known."""
        texts = case.inputs["texts"]
        words = list(dict.fromkeys(w for each in texts for w in WordTokenizer.split(self, each)))
        plain = replace(case, inputs={"text": PLAIN, "texts": texts})
        for given in (list(texts), " ".join(texts), words):
            found = self._ask_form(student, plain, given).results or {}
            if len(set(found.get("tokens") or ()) & set(PLAIN.split())) == len(PLAIN.split()):
                return self._ask_form(student, case, given)
        return self._ask_form(student, case, list(texts))

    def _ask_form(self, student: Student, case: Case, given: Any) -> Answer:
        choices = [dict(case.inputs)]
        try:
            self._build(student, case, given)
            args = [{"make": MODULE}, case.inputs["text"]]
            probe = [{"make": MODULE}, UNKNOWN[1]]
            request = student.session.request
            reply = request("call", target="_tokenize_words", args=args, kwargs={})
            other = request("call", target="_tokenize_words", args=probe, kwargs={})
        except StudentError as error:
            return Answer(choices, error=error)
        return Answer(choices, _read_tokens(_output(reply), _output(other)))

    def _build(self, student: Student, case: Case, texts: Any) -> None:
        """Build it with the texts, or build it and then fit it to them."""
        names = student.signature(student.name)
        words = self.constructor["texts"].split()
        if any(not has_default or name.lower() in words for name, has_default in names):
            student.build(self, replace(case, sizes={"texts": texts}))
            return
        student.build(self, replace(case, sizes={}))
        args = [{"make": MODULE}, texts]
        student.session.request("call", target="_fit", args=args, kwargs={})

    def cases(self, draw: Draw) -> Iterable[Case]:
        texts = (
            "we know it, we know it.",
            "Let us kill him! bread, corn, price?",
            "we speak.",
        )
        for says, term, text in (
            ("a text begins with the start token", "begin", "we"),
            ("words are tokens", "split", draw.choose(WORDS) + " " + draw.choose(WORDS)),
            ("punctuation is a token of its own", "split", _draw_text(draw, 3)),
            (
                "a word has the same id wherever it occurs",
                "split",
                "we know it. we know us! it, us.",
            ),
            ("an unknown word becomes <unk>", "look_up", f"we {UNKNOWN[0]} it, {UNKNOWN[1]}."),
        ):
            yield Case(says, term, {"text": text, "texts": texts})

    def small_cases(self, draw: Draw) -> Iterable[Case]:
        texts = ("we know it, we know it.", "Let us kill him!")
        for text in ("we", "we know", "it.", "we know it.", "zebra", "we zebra, it. quartz"):
            yield Case("a small example", "split", {"text": text, "texts": texts})


def _draw_text(draw: Draw, n: int) -> str:
    """A few clauses, each ending with a mark."""
    words = [f"{draw.choose(WORDS)} {draw.choose(WORDS)}{draw.choose(MARKS)}" for _ in range(n)]
    return " ".join(words)


def _output(reply: Any) -> Any:
    return reply.get("output") if isinstance(reply, dict) else None


def _read_tokens(output: Any, unknown: Any) -> Mapping[str, Any]:
    """Tokens by the student's own decode; start and unk, whose spelling is free, by their ids."""
    if not isinstance(output, tuple) or len(output) != 3 or not isinstance(output[0], list):
        return {"pattern": None}
    ids, tokens, text = output
    pattern = [ids.index(each) for each in ids]
    if tokens is None or not isinstance(text, str) or not isinstance(unknown, tuple):
        return {"pattern": pattern}
    probed = unknown[0] if isinstance(unknown[0], list) else []
    names = {probed[-1]: "<unk>"} if probed else {}
    names |= {probed[0]: "<start>"} if len(probed) > 1 else {}
    spelled = [names.get(i, str(token).strip()) for i, token in zip(ids, tokens, strict=True)]
    for special in {str(t).strip() for i, t in zip(ids, tokens, strict=True) if i in names} - {""}:
        text = text.replace(special, "")
    return {"pattern": pattern, "tokens": spelled, "text": " ".join(text.split())}
