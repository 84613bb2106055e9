"""Our tokenizer as the files that `transformers` and `tokenizers` read, with equal ids.

    tokenizer.json              the pipeline and the vocabulary, the reverse of tokenizer_json.py
    tokenizer_config.json       the class to load it with, and which special token is which

Tokenizers of byte pairs, word pieces and characters can be written, and of sentence pieces if they
have merges. A WordTokenizer and sentence pieces with scores cannot. One thing differs: their
`encode` turns a text that spells a special token into that token; ours splits it like any other.
"""

from pathlib import Path
from typing import Any

from clearhead.data.tokenizers import (
    BytePairTokenizer,
    CharTokenizer,
    SentencePieceTokenizer,
    Tokenizer,
    WordPieceTokenizer,
)
from clearhead.data.tokenizers.library import LibraryTokenizer
from clearhead.data.tokenizers.tokenizer import MAX_BYTES
from clearhead.files import write_json
from clearhead.files.strict_json import parse_json
from clearhead.interop.tokenizer_json import ONE_CHARACTER, SPACES_AS_SIGNS

SPECIALS = {"start": "bos_token", "end": "eos_token", "unk": "unk_token", "pad": "pad_token"}
BYTE_LEVEL = {"add_prefix_space": False, "trim_offsets": True, "use_regex": True}


def write_tokenizer(folder: Path, tokenizer: Tokenizer, max_len: int) -> None:
    """Write tokenizer.json and tokenizer_config.json; max_len: the context of the model."""
    write_json(folder / "tokenizer.json", describe_tokenizer(tokenizer), max_bytes=MAX_BYTES)
    names = {
        theirs: tokenizer.tokens[i]
        for role, theirs in SPECIALS.items()
        if (i := getattr(tokenizer, f"{role}_id")) is not None
    }
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": max_len}
    clean_up = {"clean_up_tokenization_spaces": False}  # decode as the pipeline says
    write_json(folder / "tokenizer_config.json", config | clean_up | names)


def describe_tokenizer(tokenizer: Tokenizer) -> dict[str, Any]:
    """The content of a tokenizer.json with the same ids; ValueError if there is no such file."""
    match tokenizer:
        case LibraryTokenizer():
            values: dict[str, Any] = parse_json(tokenizer.pipeline, max_bytes=MAX_BYTES)
            return values
        case BytePairTokenizer():
            return _describe_byte_pairs(tokenizer)
        case SentencePieceTokenizer(merges=list()):
            return _describe_sentence_pieces(tokenizer)
        case WordPieceTokenizer():
            return _describe_word_pieces(tokenizer)
        case CharTokenizer():
            return _describe_characters(tokenizer)
        case _:
            raise ValueError(
                f"a tokenizer of {tokenizer.kind} cannot be written as a tokenizer.json with equal "
                f"ids; export the model alone, and save the tokenizer with tokenizer.save(…)"
            )


def _describe_byte_pairs(tokenizer: BytePairTokenizer) -> dict[str, Any]:
    return _join_parts(
        tokenizer,
        specials=tokenizer.specials.values(),
        pre_tokenizer={"type": "ByteLevel", **BYTE_LEVEL},
        decoder={"type": "ByteLevel", **BYTE_LEVEL},
        model={"type": "BPE", **_describe_merges(tokenizer.tokens, tokenizer.merges)},
    )


def _describe_sentence_pieces(tokenizer: SentencePieceTokenizer) -> dict[str, Any]:
    unknown, start = tokenizer.tokens[:2]
    pieces = [token.replace(" ", "▁") for token in tokenizer.tokens]
    pairs = _describe_merges(pieces, tokenizer.merges or [])
    steps: list[dict[str, Any]] = [
        {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
        {"type": "Strip", "content": " ", "start": 1, "stop": 0},
    ]
    return _join_parts(
        tokenizer,
        specials=range(3),
        normalizer=SPACES_AS_SIGNS,
        post_processor=_build_template([start], {start: 1}),
        decoder={"type": "Sequence", "decoders": steps},
        model={"type": "BPE", **pairs, "unk_token": unknown, "byte_fallback": True},
    )


def _describe_word_pieces(tokenizer: WordPieceTokenizer) -> dict[str, Any]:
    ids = {name: tokenizer.tokens.index(name) for name in ("[CLS]", "[SEP]")}
    return _join_parts(
        tokenizer,
        specials=sorted(tokenizer._special_ids.values()),
        normalizer={
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": tokenizer.split_ideographs,
            "strip_accents": tokenizer.strip_accents,
            "lowercase": tokenizer.lower,
        },
        pre_tokenizer={"type": "BertPreTokenizer"},
        post_processor=_build_template(["[CLS]"], ids, ["[SEP]"]),
        decoder={"type": "WordPiece", "prefix": "##", "cleanup": True},
        model={
            "type": "WordPiece",
            "unk_token": "[UNK]",
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": tokenizer.longest_word,
            "vocab": _list_ids(tokenizer.tokens),
        },
    )


def _describe_characters(tokenizer: CharTokenizer) -> dict[str, Any]:
    first = tokenizer.start_id if tokenizer.cls_id is None else tokenizer.cls_id
    before = [] if first is None or tokenizer.cls is False else [tokenizer.tokens[first]]
    after = [] if tokenizer.end_id is None else [tokenizer.tokens[tokenizer.end_id]]
    n_specials = tokenizer.vocab_size - len(tokenizer.alphabet)
    return _join_parts(
        tokenizer,
        specials=range(n_specials),
        pre_tokenizer=ONE_CHARACTER,
        post_processor=_build_template(before, _list_ids(tokenizer.tokens[:n_specials]), after),
        decoder={"type": "Fuse"},
        # "<unk>" is not in the vocabulary, so an unknown character is an error, as in ours.
        model={"type": "WordLevel", "vocab": _list_ids(tokenizer.tokens), "unk_token": "<unk>"},
    )


def _join_parts(tokenizer: Tokenizer, *, specials: Any, **parts: Any) -> dict[str, Any]:
    """A whole tokenizer.json; specials: the ids of the special tokens."""
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    added = [
        {"id": i, "content": tokenizer.tokens[i], **flags, "special": True}
        for i in sorted(set(specials))
    ]
    steps = dict.fromkeys(("normalizer", "pre_tokenizer", "post_processor", "decoder"))
    head = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added}
    return head | steps | parts


def _describe_merges(tokens: Any, merges: list[str]) -> dict[str, Any]:
    """The settings of plain byte-pair encoding."""
    empty = dict.fromkeys(("dropout", "unk_token", "continuing_subword_prefix"))
    return {
        **empty,
        "end_of_word_suffix": None,
        "fuse_unk": False,
        "byte_fallback": False,
        "ignore_merges": False,
        "vocab": _list_ids(tokens),
        "merges": [line.split(" ") for line in merges],
    }


def _build_template(before: list[str], ids: dict[str, int], after: list[str] | None = None) -> Any:
    """The post_processor that adds special tokens before and after a text; None without any."""
    after = after or []
    if not before + after:
        return None

    def build(*texts: str) -> list[dict[str, Any]]:
        steps: list[dict[str, Any]] = []
        for n, text in enumerate(texts):
            first = before if n == 0 else []
            steps += [{"SpecialToken": {"id": name, "type_id": n}} for name in first]
            steps += [{"Sequence": {"id": text, "type_id": n}}]
            steps += [{"SpecialToken": {"id": name, "type_id": n}} for name in after]
        return steps

    used = {
        name: {"id": name, "ids": [ids[name]], "tokens": [name]}
        for name in dict.fromkeys(before + after)
    }
    return {
        "type": "TemplateProcessing",
        "single": build("A"),
        "pair": build("A", "B"),
        "special_tokens": used,
    }


def _list_ids(tokens: Any) -> dict[str, int]:
    return {token: i for i, token in enumerate(tokens)}
