"""Tokens back to running text: no space before a comma, none after an opening bracket or quote.

Splitting a text into tokens forgets where the spaces were, so these are heuristics, not an inverse.
Ordinary prose comes back unchanged; where two spellings are possible, one is chosen:

    can not → cannot        word_rules.py splits "cannot" in two, so two such words are joined
    --, —, @                no space on either side; – has one on both
    `` and ''               " as it opens and closes
    '                       an apostrophe in 'tis, o', boys' and goin'; else it opens and closes
"""

from collections.abc import Sequence


def _list(words: str) -> frozenset[str]:
    return frozenset(words.split())


ENDS = _list(", . ; : ! ? ... ) ] } > ” » % 's 'm 'd 'll 're 've n't")
OPENS = _list("( [ { < “ „ « ‘ $ #")
TIGHT = _list("-- — ― @")  # no space on either side
HALVES = _list("can-not d-'ye gim-me gon-na got-ta lem-me more-'n wan-na 't-is 't-was")
AFTER_APOSTROPHE = _list("tis twas twere twill twould twixt em til gainst neath mongst scape")
BEFORE_APOSTROPHE = _list("a an fa gi ha i o s t th wi 'n")  # i' the, o' the, th' other
TAILS = _list("s t m d re ve ll")  # what follows the ’ of it’s, don’t, we’ll


def detokenize(tokens: Sequence[str]) -> str:
    """Join tokens to a text; "\\n" is a line break."""
    parts: list[str] = []
    attached = True  # whether the next token follows without a space
    open_quotes: set[str] = set()
    for before, token, after in zip(["\n", *tokens], tokens, [*tokens[1:], "\n"], strict=False):
        left, right = _find_attached_sides(token, before, after, open_quotes)
        parts += ["" if left or attached else " ", '"' if token in ("``", "''") else token]
        attached = right
    return "".join(parts)


def _find_attached_sides(
    token: str, before: str, after: str, open_quotes: set[str]
) -> tuple[bool, bool]:
    """Whether no space belongs before the token, and none after it."""
    if token == "\n" or token in TIGHT:
        return True, True
    if token in ("``", "''", '"'):
        return _attach_quote('"', token == "``" or (token == "''" and before in TIGHT), open_quotes)
    if token in ("'", "’"):
        return _attach_apostrophe(token, before, after, open_quotes)
    joined = f"{before}-{token}".lower() in HALVES
    return joined or token.lower() in ENDS, token in OPENS


def _attach_quote(mark: str, opens: bool, open_quotes: set[str]) -> tuple[bool, bool]:
    """A mark closes the quote that is open; without one, it opens a quote."""
    if mark in open_quotes and not opens:
        open_quotes.remove(mark)
        return True, False
    open_quotes.add(mark)
    return False, True


def _attach_apostrophe(
    mark: str, before: str, after: str, open_quotes: set[str]
) -> tuple[bool, bool]:
    """An omitted letter, a possessive, or a quote."""
    if after.lower() in AFTER_APOSTROPHE:
        return False, True
    if mark == "’":
        return True, before[-1:].isalnum() and after.lower().rstrip(".") in TAILS
    if before.lower() in BEFORE_APOSTROPHE:
        return True, False
    owner = before.endswith(("s", "S")) or (before.endswith("in") and len(before) > 3)
    ends_a_word = (owner and not after[:1].isupper()) or not after[:1].isalnum()
    if mark not in open_quotes and ends_a_word:
        return True, False
    return _attach_quote(mark, False, open_quotes)
