"""Words and punctuation by the conventions of the Penn Treebank (Marcus et al. 1993).

    They'll say "cannot" (if asked).   →   They 'll say `` can not '' ( if asked ) .

Each rule puts spaces around something that is a token of its own; in the end a line is split at
its spaces. The order of the rules matters, because some look at the spaces that others made. A full
stop is a token of its own only where a line ends, so a text is first cut into its sentences
(sentences.py), and each of them is a line for the rules.

All lines pass through a rule in one call, joined by line breaks that no rule crosses. On a play of
40,000 lines that is 10 times as fast as NLTK, which takes one line at a time; with the search for
sentences 7 times as fast as word_tokenize.

The rules are our own, because they decide which ids a text has, and with them what a trained model
reads: NLTK 3.8 and 3.9.1 split one line in 57 of a play differently from NLTK 3.10.4, whose tokens
are the same as these. A tokenizer's file keeps the VERSION it was made with:

    1    each line of a text by itself, so that a full stop inside a line stays with its word
    2    each sentence, as NLTK's word_tokenize does
"""

import re
import unicodedata
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from clearhead.data.tokenizers.sentences import END, mark_sentences

VERSION = 2  # raise it with any change that changes a token

NEWLINE = "\n"  # the token
LINE_BREAK = "\x0b"  # a line break of the text; for the rules \n ends a line
SPACE = r"[^\S\n\x1c-\x1f]"  # Unicode's white space within a line, without control characters
APART = r" \g<0> "  # what was found, between spaces


def check_version(name: str, version: Any) -> None:
    """A version of the rules that this clearhead has."""
    if type(version) is not int or not 1 <= version <= VERSION:
        raise ValueError(
            f"{name} must be a version of the word rules from 1 to {VERSION}, got {version!r:.40}; "
            f"a newer clearhead may have others"
        )


def split_texts(
    texts: Sequence[str], *, keep_newlines: bool = False, version: int = VERSION
) -> list[list[str]]:
    """The tokens of each text; keep_newlines: NEWLINE for each line break: \\n, \\r\\n or \\r."""
    if not texts:
        return []
    lines = (_hide_marks(text.replace("\r\n", "\n").replace("\r", "\n")) for text in texts)
    text = END.join(lines).replace("\n", LINE_BREAK)
    is_old = version == 1
    cut = text.replace(LINE_BREAK, f"{LINE_BREAK}\n") if is_old else mark_sentences(text)
    cut = cut.replace(END, f"\n{END}\n")
    parts = _apply_rules(f"\n{cut}\n").split(END)
    return [_keep_newlines(part) if keep_newlines else part.split() for part in parts]


def split_lines(lines: Sequence[str]) -> list[list[str]]:
    """The tokens of each line by itself; a line break inside a line counts as a space."""
    text = "\n".join(["", *(_hide_marks(line.replace("\n", " ")) for line in lines), ""])
    return [line.split() for line in _apply_rules(text).split("\n")[1:-1]]


def split_words(line: str) -> list[str]:
    """The tokens of one line."""
    return split_lines([line])[0]


def _hide_marks(text: str) -> str:
    """The text without our marks, which are white space like the tab that replaces them."""
    return text.replace(LINE_BREAK, "\t").replace(END, "\t")


def _apply_rules(text: str) -> str:
    """Put spaces around the tokens of all lines; the text begins and ends with a line break."""
    for pattern, replacement in RULES:
        text = pattern.sub(replacement, text)
    return text


def _keep_newlines(text: str) -> list[str]:
    tokens: list[str] = []
    for line in text.split(LINE_BREAK):
        tokens += [*line.split(), NEWLINE]
    return tokens[:-1]


@lru_cache(maxsize=4096)
def _is_word_character(character: str) -> bool:
    """A letter, mark, decimal digit, connector or joiner (Unicode TR 18), not ² or ½."""
    category = unicodedata.category(character) if character else ""
    if category.startswith(("L", "M")) or category in ("Nd", "Nl", "Pc"):
        return True
    return character.isupper() or character.islower() or character in ("\u200c", "\u200d")


def _open_single_quote(found: re.Match[str]) -> str:
    """'em → ' em, but 's and 'll stay whole, and so does the apostrophe inside know't."""
    ending, after = found.groups("")
    before = found.string[max(0, found.start() - 1) : found.start()]
    opens = _is_word_character(after) and not _is_word_character(before)
    return f"' {ending}" if opens else found[0]


def _cut_in_two(found: re.Match[str]) -> str:
    """cannot → can not."""
    first, second = filter(None, found.groups())
    return f" {first} {second} "


RULES = [
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        # Opening quotes: " at the start of a line, or after a space or a bracket, becomes ``.
        (r'(?m)^"', "``"),
        (r"``|[`«“‘„]", APART),
        (r"""([ (\[{<])(?:"|'')""", r"\1 `` "),
        (r"(?i)'(re|ve|ll|[mtsdn])?(?=(.?))", _open_single_quote),
        # A full stop ends a line; only closing marks may follow. *+: no search for another way.
        (rf"""(?m)(?<=[^.\n])\.([\])}}>"'»”’ ]*+)(?={SPACE}*+$)""", r" . \1 "),
        # Commas and colons, but not those of 1,000 and 12:30.
        (r"(?m)([:,])([^\d\n]|$)", r" \1 \2"),
        (r"\.{2,}|[;@#$%&?!‒–—―]", APART),
        (r"(?<=[^'\n])' ", " ' "),
        (r"--|[*\]\[(){}<>»”’]", APART),
        # Closing quotes: any other " becomes ''.
        (r"''|\"", " '' "),
        # From here on a line begins and ends with a space; no other white space but our marks.
        (r"\n", r" \n "),
        (rf"[{LINE_BREAK}{END}]", APART),
        (rf"[^\S \n{LINE_BREAK}{END}\x1c-\x1f]", " "),
        # Endings: Ann 's, boys ', we 'll, do n't.
        (r"(?<=[^' \n])'[sSmMdD]?(?= )", APART),
        (r"(?<=[^' \n])(?:'ll|'LL|'re|'RE|'ve|'VE|n't|N'T)(?= )", APART),
        # Two words written as one: can not, 't is. The look ahead makes it twice as fast.
        (
            r"(?i)\b(?=[cdglmw])(?:(?:(can)(not)|(d)('ye)|(gim)(me)|(gon)(na)|(got)(ta)|(lem)(me)"
            r"|(more)('n))\b|(wan)(na)(?=\s))",
            _cut_in_two,
        ),
        (r"(?i) ('t)(is)\b", r" \1 \2 "),
        (r"(?i) ('t)(was)\b", r" \1 \2 "),
    )
]
