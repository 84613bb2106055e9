"""tokenizer.json, the file in which Hugging Face keeps a tokenizer.

It names the steps of a pipeline – how a text is cleaned, cut and framed – and holds a vocabulary.
The pipelines of GPT-2, BERT and Llama 2 are known here; a step that is not is refused by its name,
because leaving it out would change ids. Padding and truncation, which such a file may also ask for,
are left to the caller.
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

TO_BLANK_SIGNS = {
    "type": "Sequence",
    "normalizers": [
        {"type": "Prepend", "prepend": "▁"},
        {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
    ],
}


def read_tokenizer_json(path: str | os.PathLike[str]) -> SubwordTokenizer:
    """The tokenizer of a tokenizer.json whose pipeline is that of GPT-2, BERT or Llama 2."""
    values = read_json(path, max_bytes=MAX_BYTES)
    with prefix_errors(path):
        model = _part(values, "model")
        if model.get("type") == "WordPiece":
            return _word_pieces(values, model)
        if model.get("type") != "BPE":
            raise ValueError(f"its model is {model.get('type')!a:.40}; WordPiece and BPE are known")
        made = _scored_pairs if model.get("byte_fallback") else _byte_pairs
        return made(values, model)


def _byte_pairs(values: Mapping[str, Any], model: Mapping[str, Any]) -> BytePairTokenizer:
    """GPT-2."""
    _check(values, "normalizer", None)
    offsets = {"type": "ByteLevel", "add_prefix_space": ..., "trim_offsets": ..., "use_regex": ...}
    _check(values, "pre_tokenizer", offsets | {"add_prefix_space": False, "use_regex": True})
    _check(values, "post_processor", None, offsets)  # it changes no id
    _check_pairs(model)
    ids, specials = _vocabulary(values, model)
    return BytePairTokenizer(sort_by_id(ids), _merges(model), specials)


def _scored_pairs(values: Mapping[str, Any], model: Mapping[str, Any]) -> SentencePieceTokenizer:
    """Llama 2."""
    _check(values, "normalizer", TO_BLANK_SIGNS)
    _check(values, "pre_tokenizer", None)
    _check_pairs(model)
    _check_frame(values, ["<s>", "A"])
    tokens = sort_by_id(_vocabulary(values, model)[0])
    pieces = [token.replace("▁", " ") for token in tokens]
    return SentencePieceTokenizer(pieces, merges=_merges(model))


def _word_pieces(values: Mapping[str, Any], model: Mapping[str, Any]) -> WordPieceTokenizer:
    """BERT."""
    switches = dict.fromkeys(("handle_chinese_chars", "strip_accents", "lowercase"), ...)
    _check(values, "normalizer", {"type": "BertNormalizer", "clean_text": True, **switches})
    _check(values, "pre_tokenizer", {"type": "BertPreTokenizer"})
    _check_frame(values, ["[CLS]", "A", "[SEP]"])
    _check(model, "unk_token", "[UNK]")
    _check(model, "continuing_subword_prefix", "##")
    normalizer = values["normalizer"]
    lower, strip = normalizer.get("lowercase", True), normalizer.get("strip_accents")
    return WordPieceTokenizer(
        sort_by_id(_vocabulary(values, model)[0]),
        lower=lower,
        strip_accents=lower if strip is None else strip,
        split_ideographs=normalizer.get("handle_chinese_chars", True),
        longest_word=model.get("max_input_chars_per_word", 100),
    )


def _check(values: Mapping[str, Any], name: str, *known: Any) -> None:
    """The step of this name is one of those known, whose ... may be anything."""
    given = values.get(name)
    for step in known:
        if given == step or (
            isinstance(given, dict)
            and isinstance(step, dict)
            and given.get("type") == step["type"]
            and all(key in step and step[key] in (..., value) for key, value in given.items())
        ):
            return
    raise ValueError(
        f"{name} is {given!a:.100}, which is not known here; known is {known[-1]!a:.200}"
    )


def _check_pairs(model: Mapping[str, Any]) -> None:
    """No variant of joining pairs."""
    _check(model, "dropout", None)
    _check(model, "continuing_subword_prefix", "", None)
    _check(model, "end_of_word_suffix", "", None)
    _check(model, "ignore_merges", False, None)


def _check_frame(values: Mapping[str, Any], frame: list[str]) -> None:
    """What `encode` puts around a text, the A: specials that ours puts there too."""
    processor = _part(values, "post_processor")
    if processor.get("type") == "BertProcessing":  # {"cls": ["[CLS]", 101], "sep": …}
        steps: Any = [{"cls": processor.get("cls")}, {"text": ["A"]}, {"sep": processor.get("sep")}]
    else:  # [{"SpecialToken": {"id": "[CLS]"}}, {"Sequence": {"id": "A"}}, …]
        steps = processor.get("single")
    names = [_name(part) for step in _items(steps) for part in _items(step)]
    if names != frame:
        raise ValueError(f"a text is framed as {names!a:.80}; known is {frame}")


def _name(part: Any) -> Any:
    return part.get("id") if isinstance(part, dict) else next(iter(_items(part)), None)


def _items(values: Any) -> list[Any]:
    """The values of a list or of names and values; none of anything else."""
    if isinstance(values, dict):
        return list(values.values())
    return values if isinstance(values, list) else []


def _vocabulary(
    values: Mapping[str, Any], model: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Token → id with the specials that were added, and these alone."""
    ids, specials = dict(_part(model, "vocab")), {}
    for added in values.get("added_tokens") or []:
        token = _part({"an added token": added}, "an added token")
        name, i = str(token.get("content")), token.get("id")
        if ids.setdefault(name, i) != i:
            raise ValueError(f"the added token {name!a:.40} has two ids, {ids[name]} and {i!a:.40}")
        if token.get("special") is not True:
            raise ValueError(f"{name!a:.40} is cut out of texts before all else; not known here")
        specials[name] = i
    return ids, specials


def _merges(model: Mapping[str, Any]) -> list[str]:
    """The merges as lines; a file may have pairs instead."""
    merges = model.get("merges")
    if not isinstance(merges, list):
        raise ValueError(f"merges must be a list, got {merges!a:.40}")
    return [" ".join(map(str, line)) if isinstance(line, list) else line for line in merges]


def _part(values: Any, name: str) -> dict[str, Any]:
    part = values.get(name) if isinstance(values, dict) else None
    if not isinstance(part, dict):
        raise ValueError(f"{name} must hold names and values, got {part!a:.40}")
    return part
