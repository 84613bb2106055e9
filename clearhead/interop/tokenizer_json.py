"""tokenizer.json, the tokenizer file of Hugging Face.

It names the steps of a pipeline – how a text is normalized, split and given special tokens – and
holds a vocabulary. The pipelines of GPT-2, BERT and Llama 2 are supported; any other step is
refused by its name, because leaving it out would change ids. Padding and truncation, for which such
a file may also have settings, are left to the caller.
"""

import os
from collections.abc import Mapping
from typing import Any

from clearhead.data.tokenizers.byte_pairs import BytePairTokenizer
from clearhead.data.tokenizers.sentence_pieces import SentencePieceTokenizer
from clearhead.data.tokenizers.subword_tokenizer import SubwordTokenizer, sort_by_id
from clearhead.data.tokenizers.tokenizer import MAX_BYTES
from clearhead.data.tokenizers.word_pieces import WordPieceTokenizer
from clearhead.files import read_json
from clearhead.files.reading import prefix_errors

SPACES_AS_SIGNS = {
    "type": "Sequence",
    "normalizers": [
        {"type": "Prepend", "prepend": "▁"},
        {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
    ],
}


def read_tokenizer_json(path: str | os.PathLike[str]) -> SubwordTokenizer:
    """Read a tokenizer.json with the pipeline of GPT-2, BERT or Llama 2."""
    values = read_json(path, max_bytes=MAX_BYTES)
    with prefix_errors(path):
        model = _get_part(values, "model")
        if model.get("type") == "WordPiece":
            return _build_word_pieces(values, model)
        if model.get("type") != "BPE":
            raise ValueError(
                f"its model is {model.get('type')!r:.40}; WordPiece and BPE are supported"
            )
        build = _build_sentence_pieces if model.get("byte_fallback") else _build_byte_pairs
        return build(values, model)


def _build_byte_pairs(values: Mapping[str, Any], model: Mapping[str, Any]) -> BytePairTokenizer:
    """GPT-2. In what `_check_step` expects, `...` stands for any value."""
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
    _check_specials(values, ["<s>", "A"])
    tokens = sort_by_id(_read_vocabulary(values, model)[0])
    pieces = [token.replace("▁", " ") for token in tokens]
    return SentencePieceTokenizer(pieces, merges=_read_merges(model))


def _build_word_pieces(values: Mapping[str, Any], model: Mapping[str, Any]) -> WordPieceTokenizer:
    """BERT."""
    switches = dict.fromkeys(("handle_chinese_chars", "strip_accents", "lowercase"), ...)
    _check_step(values, "normalizer", {"type": "BertNormalizer", "clean_text": True, **switches})
    _check_step(values, "pre_tokenizer", {"type": "BertPreTokenizer"})
    _check_specials(values, ["[CLS]", "A", "[SEP]"])
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
    raise ValueError(
        f"{name} is {given!r:.100}, which is not supported; supported is {supported[-1]!r:.200}"
    )


def _check_plain_pairs(model: Mapping[str, Any]) -> None:
    """Refuse variants of byte-pair encoding."""
    _check_step(model, "dropout", None)
    _check_step(model, "continuing_subword_prefix", "", None)
    _check_step(model, "end_of_word_suffix", "", None)
    _check_step(model, "ignore_merges", False, None)


def _check_specials(values: Mapping[str, Any], expected: list[str]) -> None:
    """Refuse special tokens around a text, "A", other than those our tokenizer adds."""
    processor = _get_part(values, "post_processor")
    if processor.get("type") == "BertProcessing":  # {"cls": ["[CLS]", 101], "sep": …}
        steps: Any = [{"cls": processor.get("cls")}, {"text": ["A"]}, {"sep": processor.get("sep")}]
    else:  # [{"SpecialToken": {"id": "[CLS]"}}, {"Sequence": {"id": "A"}}, …]
        steps = processor.get("single")
    names = [_get_name(part) for step in _list_items(steps) for part in _list_items(step)]
    if names != expected:
        raise ValueError(f"a text is encoded as {names!r:.80}; supported is {expected}")


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
            raise ValueError(
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
