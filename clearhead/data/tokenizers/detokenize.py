"""Tokens as people write them: no blank before a comma, none after an opening bracket or quote.

Cutting a text into tokens forgets where blanks stood, so this is a set of habits and no inverse.
Ordinary prose comes back as it was; where it could have been written in two ways, one is taken:

    can not → cannot        word_rules.py cuts "cannot" in two, so two such words are joined
    --, —, @                closed on both sides; – stands free
    `` and ''               " as it opens and closes
    '                       an apostrophe in 'tis, o', boys' and goin'; else it opens and closes
"""

from collections.abc import Sequence


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


ENDS = _set(", . ; : ! ? ... ) ] } > ” » % 's 'm 'd 'll 're 've n't")
OPENS = _set("( [ { < “ „ « ‘ $ #")
CLOSED = _set("-- — ― @")  # no blank on either side
HALVES = _set("can-not d-'ye gim-me gon-na got-ta lem-me more-'n wan-na 't-is 't-was")
AFTER = _set("tis twas twere twill twould twixt em til gainst neath mongst scape")  # 'tis
BEFORE = _set("a an fa gi ha i o s t th wi 'n")  # i' the, o' the, th' other
TAILS = _set("s t m d re ve ll")  # what follows the ’ of it’s, don’t, we’ll


def detokenize(tokens: Sequence[str]) -> str:
    """The text of these tokens; "\\n" is a line break."""
    written: list[str] = []
    stuck = True  # whether the next token follows without a blank
    open_quotes: set[str] = set()
    for place, token in enumerate(tokens):
        before = tokens[place - 1] if place else "\n"
        after = tokens[place + 1] if place + 1 < len(tokens) else "\n"
        left, right = _sides(token, before, after, open_quotes)
        written += ["" if left or stuck else " ", '"' if token in ("``", "''") else token]
        stuck = right
    return "".join(written)


def _sides(token: str, before: str, after: str, open_quotes: set[str]) -> tuple[bool, bool]:
    """Whether the token stands close to the one before it, and to the one after it."""
    if token == "\n" or token in CLOSED:
        return True, True
    if token in ("``", "''", '"'):
        return _quote('"', token == "``" or (token == "''" and before in CLOSED), open_quotes)
    if token in ("'", "’"):
        return _apostrophe(token, before, after, open_quotes)
    joined = f"{before}-{token}".lower() in HALVES
    return joined or token.lower() in ENDS, token in OPENS


def _quote(mark: str, opens: bool, open_quotes: set[str]) -> tuple[bool, bool]:
    """A mark closes the quote that is open, else it opens one."""
    if mark in open_quotes and not opens:
        open_quotes.remove(mark)
        return True, False
    open_quotes.add(mark)
    return False, True


def _apostrophe(mark: str, before: str, after: str, open_quotes: set[str]) -> tuple[bool, bool]:
    """A letter left out, an owner's mark, or a quote."""
    if after.lower() in AFTER:
        return False, True
    if mark == "’":
        return True, before[-1:].isalnum() and after.lower().rstrip(".") in TAILS
    if before.lower() in BEFORE:
        return True, False
    owner = before.endswith(("s", "S")) or (before.endswith("in") and len(before) > 3)
    ends_a_word = (owner and not after[:1].isupper()) or not after[:1].isalnum()
    if mark not in open_quotes and ends_a_word:
        return True, False
    return _quote(mark, False, open_quotes)
