"""The programs of library.py by name, each with the vocabulary and length to compile it for.

This file does not import the programs, so the command line can list them quickly.
"""

from typing import TYPE_CHECKING, NamedTuple

from clearhead.config import suggest

if TYPE_CHECKING:
    from clearhead.programs.sequences import Sequence


class Example(NamedTuple):
    """A program and the settings to try it with.

    function: its name in library.py. about: what it computes. vocabulary, max_len: as for compile.
    sample: an example input.
    """

    function: str
    about: str
    vocabulary: str
    max_len: int
    sample: str

    def build(self) -> "Sequence":
        """Build the program."""
        from clearhead.programs import library

        program: Sequence = getattr(library, self.function)()
        return program


PROGRAMS = {
    "identity": Example("identity", "Each token, copied from equal tokens.", "abc", 6, "abcc"),
    "first": Example("first", "The first token.", "abc", 6, "cac"),
    "unique": Example(
        "unique", "+1 for a token that occurs once, −1 for a repeated one.", "abc", 6, "abb"
    ),
    "shift": Example("shift", "Each token moved one position to the right.", "abc", 6, "abca"),
    "reverse": Example("reverse", "The tokens from last to first.", "abc", 6, "abca"),
    "histogram": Example("histogram", "How often each token occurs.", "abc", 6, "abca"),
    "double-histogram": Example(
        "double_histogram", "How many different tokens occur equally often.", "abc", 6, "abcaa"
    ),
    "sort": Example("sort", "The tokens in ascending order.", "1234", 5, "3142"),
    "most-frequent": Example(
        "most_frequent",
        "The token that occurs most often; in a tie, the smallest.",
        "abc",
        6,
        "abcba",
    ),
    "balanced": Example("balanced", "Whether all brackets ( and ) match.", "()", 10, "(())()"),
    "substring": Example(
        "substring", "Whether the needle occurs in haystack|needle.", "abc|", 7, "abc|bc"
    ),
    "induction": Example(
        "induction", "The token after the last earlier occurrence of this one.", "abc", 6, "abcab"
    ),
}


def find_program(name: str) -> Example:
    """The example of this name; an unknown name is answered with the nearest one."""
    if name not in PROGRAMS:
        known, near = ", ".join(PROGRAMS), suggest(name, PROGRAMS)
        raise ValueError(f"program must be one of {known}, got {name!r}{near}")
    return PROGRAMS[name]
