"""Which names are safe for one file, on every system.

A name begins with a letter or a digit; letters and digits of any script, `.`, `_`, `-`, `+`, `=`
and single inner spaces may follow. So it cannot be a path (`..`, `/`, `C:`), an option (`-rf`), a
hidden file (`.git`) or several lines. Names of Windows devices (`nul`) are refused too.
"""

import unicodedata

from clearhead.files.reading import BadFile, quote

MAX_LENGTH = 100  # characters: leaves room for a suffix below the 255 bytes that disks allow
DEVICES = {"con", "prn", "aux", "nul", "conin$", "conout$", "clock$"}
DEVICES |= {f"{port}{digit}" for port in ("com", "lpt") for digit in "0123456789¹²³"}


def check_file_name(name: str, what: str = "name") -> str:
    """Return the name if it is safe as the name of one file or folder; else BadFile."""
    if not isinstance(name, str):
        raise TypeError(f"{what} must be a word, got {name!r:.80} of type {type(name).__name__}")
    fault = _find_fault(name)
    if fault:
        raise BadFile(
            f"{what} {quote(repr(name))} {fault}; use letters, digits, '.', '_', '-', with a "
            "letter or digit first"
        )
    return name


def _find_fault(name: str) -> str | None:
    if not name:
        return "is empty"
    if len(name) > MAX_LENGTH or len(name.encode("utf-8", "surrogatepass")) > 200:
        return f"is longer than {MAX_LENGTH} characters or 200 bytes"
    wrong = [character for character in name if not (character.isalnum() or character in "._-+= ")]
    if wrong:
        return f"holds {wrong[0]!r}"
    if not name[0].isalnum():
        return f"begins with {name[0]!r}"
    if name[-1] in ". " or "  " in name or ".." in name:
        return "ends with a dot or space, or has two in a row"
    if unicodedata.normalize("NFC", name) != name:
        return "is not in the usual Unicode form (NFC)"
    if name.split(".")[0].strip().lower() in DEVICES:
        return "is the name of a device on Windows"
    return None
