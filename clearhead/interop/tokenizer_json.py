"""tokenizer.json, the tokenizer file of Hugging Face.

It names the steps of a pipeline – how a text is normalized, split and given special tokens – and
holds a vocabulary. The pipelines of GPT-2, BERT and Llama 2, and single characters, are read by our
own classes; any other step is refused by its name, because leaving it out would change ids.
`tokenizer_files.find_tokenizer` then uses the `tokenizers` library. Padding and truncation, for
which such a file may also have settings, are left to the caller.
"""

import os
from collections.abc import Mapping
from typing import Any

from clearhead.data.tokenizers.byte_pairs import BytePairTokenizer
from clearhead.data.tokenizers.characters import CharTokenizer
from clearhead.data.tokenizers.sentence_pieces import SentencePieceTokenizer
from clearhead.data.tokenizers.subword_tokenizer import sort_by_id
from clearhead.data.tokenizers.tokenizer import MAX_BYTES, SPELLING, Tokenizer
from clearhead.data.tokenizers.word_pieces import WordPieceTokenizer
from clearhead.files import BadFile, read_json
from clearhead.files.reading import prefix_errors, quote

SPACES_AS_SIGNS = {  # each space becomes ▁ (U+2581), as in SentencePiece
    "type": "Sequence",
    "normalizers": [
        {"type": "Prepend", "prepend": "▁"},
        {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
    ],
}
ONE_CHARACTER = {
    "type": "Split",
    "pattern": {"Regex": r"[\s\S]"},
    "behavior": "Isolated",
    "invert": False,
}


class UnsupportedStep(ValueError):
    """A tokenizer.json asks for a step that our own tokenizers do not have."""


class UnsupportedTokenizer(BadFile):
    """A tokenizer.json with such a step; the `tokenizers` library may read it."""


def read_tokenizer_json(path: str | os.PathLike[str]) -> Tokenizer:
    """Read a tokenizer.json with the pipeline of GPT-2, BERT or Llama 2, or of characters."""
    values = read_json(path, max_bytes=MAX_BYTES)
    with prefix_errors(path):
        try:
            return _build_tokenizer(values, _get_part(values, "model"))
        except UnsupportedStep as step:
            raise UnsupportedTokenizer(f"{quote(path)}: {step}") from None


def _build_tokenizer(values: Mapping[str, Any], model: Mapping[str, Any]) -> Tokenizer:
    match model.get("type"):
        case "WordPiece":
            return _build_word_pieces(values, model)
        case "WordLevel":
            return _build_characters(values, model)
        case "BPE" if model.get("byte_fallback"):
            return _build_sentence_pieces(values, model)
        case "BPE":
            return _build_byte_pairs(values, model)
        case kind:
            raise UnsupportedStep(f"its model is {kind!r:.40}; WordPiece and BPE are supported")


def _build_byte_pairs(values: Mapping[str, Any], model: Mapping[str, Any]) -> BytePairTokenizer:
    """GPT-2. In the steps that are compared, `...` stands for any value."""
    _check_step(values, "normalizer", None)
    offsets = {"type": "ByteLevel", "add_prefix_space": ..., "trim_offsets": ..., "use_regex": ...}
    _check_step(values, "pre_tokenizer", offsets | {"add_prefix_space": False, "use_regex": True})
    _check_step(values, "post_processor", None, offsets)  # it changes no id
    _check_plain_pairs(model)
    ids, specials = _read_vocabulary(values, model)
    return BytePairTokenizer(sort_by_id(ids), _read_merges(model), specials)


def _build_sentence_pieces(
    values: Mapping[str, Any], model: Mapping[str, Any]
) -> SentencePieceTokenizer:
    """Llama 2."""
    _check_step(values, "normalizer", SPACES_AS_SIGNS)
    _check_step(values, "pre_tokenizer", None)
    _check_plain_pairs(model)
    _check_frame(values, ["<s>", "A"])
    tokens = sort_by_id(_read_vocabulary(values, model)[0])
    pieces = [token.replace("▁", " ") for token in tokens]
    return SentencePieceTokenizer(pieces, merges=_read_merges(model))


def _build_word_pieces(values: Mapping[str, Any], model: Mapping[str, Any]) -> WordPieceTokenizer:
    """BERT."""
    switches = dict.fromkeys(("handle_chinese_chars", "strip_accents", "lowercase"), ...)
    _check_step(values, "normalizer", {"type": "BertNormalizer", "clean_text": True, **switches})
    _check_step(values, "pre_tokenizer", {"type": "BertPreTokenizer"})
    _check_frame(values, ["[CLS]", "A", "[SEP]"])
    _check_step(model, "unk_token", "[UNK]")
    _check_step(model, "continuing_subword_prefix", "##")
    normalizer = values["normalizer"]
    lower, strip = normalizer.get("lowercase", True), normalizer.get("strip_accents")
    return WordPieceTokenizer(
        sort_by_id(_read_vocabulary(values, model)[0]),
        lower=lower,
        strip_accents=lower if strip is None else strip,
        split_ideographs=normalizer.get("handle_chinese_chars", True),
        longest_word=model.get("max_input_chars_per_word", 100),
    )


def _build_characters(values: Mapping[str, Any], model: Mapping[str, Any]) -> CharTokenizer:
    """Ours, as tokenizer_export.py writes it: special tokens first, then single characters."""
    _check_step(values, "normalizer", None)
    _check_step(values, "pre_tokenizer", ONE_CHARACTER)
    ids, specials = _read_vocabulary(values, model)
    tokens, around = sort_by_id(ids), _list_frame(values)
    roles = {role: name in specials for role, name in SPELLING.items() if role != "unk"}
    alphabet = tokens[len(specials) :]
    if tokens[: len(specials)] != [SPELLING[role] for role, is_there in roles.items() if is_there]:
        raise UnsupportedStep(f"its special tokens are {[*specials]!r:.80}, which differ from ours")
    if any(len(token) != 1 for token in alphabet):
        raise UnsupportedStep("its tokens are words; single characters are supported")
    cls = SPELLING["cls"] in around if roles.pop("cls") else None
    tokenizer = CharTokenizer("".join(alphabet), cls=cls, **roles)
    frame = tokenizer.spell(tokenizer.encode(""), specials=True)
    _check_frame(values, [*frame[: len(frame) - tokenizer.end], "A", *["<end>"] * tokenizer.end])
    return tokenizer


def _check_step(values: Mapping[str, Any], name: str, *supported: Any) -> None:
    """Refuse a step that is none of the supported ones, where ... stands for any value."""
    given = values.get(name)
    for step in supported:
        if given == step or (
            isinstance(given, dict)
            and isinstance(step, dict)
            and given.get("type") == step["type"]
            and all(key in step and step[key] in (..., value) for key, value in given.items())
        ):
            return
    raise UnsupportedStep(
        f"{name} is {given!r:.100}, which is not supported; supported is {supported[-1]!r:.200}"
    )


def _check_plain_pairs(model: Mapping[str, Any]) -> None:
    """Refuse variants of byte-pair encoding."""
    _check_step(model, "dropout", None)
    _check_step(model, "continuing_subword_prefix", "", None)
    _check_step(model, "end_of_word_suffix", "", None)
    _check_step(model, "ignore_merges", False, None)


def _check_frame(values: Mapping[str, Any], expected: list[str]) -> None:
    """Refuse special tokens around a text, "A", other than those our tokenizer adds."""
    if (names := _list_frame(values)) != expected:
        raise UnsupportedStep(f"a text is encoded as {names!r:.80}; supported is {expected}")


def _list_frame(values: Mapping[str, Any]) -> list[Any]:
    """The names of the special tokens around a text, "A"."""
    if values.get("post_processor") is None:
        return ["A"]
    processor = _get_part(values, "post_processor")
    if processor.get("type") == "BertProcessing":  # {"cls": ["[CLS]", 101], "sep": …}
        steps: Any = [{"cls": processor.get("cls")}, {"text": ["A"]}, {"sep": processor.get("sep")}]
    else:  # [{"SpecialToken": {"id": "[CLS]"}}, {"Sequence": {"id": "A"}}, …]
        steps = processor.get("single")
    return [_get_name(part) for step in _list_items(steps) for part in _list_items(step)]


def _get_name(part: Any) -> Any:
    return part.get("id") if isinstance(part, dict) else next(iter(_list_items(part)), None)


def _list_items(values: Any) -> list[Any]:
    """The values of a list or a mapping; anything else has none."""
    if isinstance(values, dict):
        return list(values.values())
    return values if isinstance(values, list) else []


def _read_vocabulary(
    values: Mapping[str, Any], model: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Token → id, including the special tokens that were added; and the special tokens alone."""
    ids, specials = dict(_get_part(model, "vocab")), {}
    for added in values.get("added_tokens") or []:
        token = _get_part({"an added token": added}, "an added token")
        name, i = str(token.get("content")), token.get("id")
        if ids.setdefault(name, i) != i:
            raise ValueError(f"the added token {name!r:.40} has two ids, {ids[name]} and {i!r:.40}")
        if token.get("special") is not True:
            raise UnsupportedStep(
                f"{name!r:.40} is an added token that is not special, which is not supported"
            )
        specials[name] = i
    return ids, specials


def _read_merges(model: Mapping[str, Any]) -> list[str]:
    """Read the merges as lines; a file may hold pairs instead."""
    merges = model.get("merges")
    if not isinstance(merges, list):
        raise ValueError(f"merges must be a list, got {merges!r:.40}")
    return [" ".join(map(str, line)) if isinstance(line, list) else line for line in merges]


def _get_part(values: Any, name: str) -> dict[str, Any]:
    part = values.get(name) if isinstance(values, dict) else None
    if not isinstance(part, dict):
        raise ValueError(f"{name} must hold names and values, got {part!r:.40}")
    return part
