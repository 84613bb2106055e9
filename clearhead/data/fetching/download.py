"""Download a file over HTTP, resuming after a break.

The bytes grow in NAME.part. A broken transfer, of this run or an earlier one, resumes after its
last byte (`Range: bytes=n-`, RFC 9110 section 14). The file gets its name only when it is complete
and its SHA-256 is right, so a part is never taken for a whole.
"""

import hashlib
import http.client
import os
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

from clearhead import __version__
from clearhead.data.fetching.clients import AddressUnusable, NotFetched
from clearhead.files.writing import DISK_FAULTS

CHUNK = 1 << 18
TIMEOUT = 30.0  # seconds without a byte
MAX_FAILURES = 3  # transfers in a row that bring nothing new
PAUSE = 1.0

Progress = Callable[[int, int], None]  # bytes so far, bytes in all


def download(address: str, path: Path, size: int, sha256: str, report: Progress) -> None:
    """Download the file of this size and hash, resuming from the part that exists."""
    part = path.with_name(path.name + ".part")
    if _measure_length(part) > size:
        part.unlink()
    while True:
        resumed = part.exists()
        _complete(address, part, size, report)
        if matches_checksum(part, size, sha256):
            os.replace(part, path)
            return
        part.unlink()
        if not resumed:  # else an earlier part may be the cause: try once more from the start
            raise NotFetched(f"{path.name} arrived with a wrong SHA-256 and was deleted")


def matches_checksum(path: Path, size: int, sha256: str) -> bool:
    """Whether a file exists with this size and hash."""
    try:
        with open(path, "rb") as file:
            if os.fstat(file.fileno()).st_size != size:
                return False
            return hashlib.file_digest(file, "sha256").hexdigest() == sha256
    except OSError:
        return False


def _complete(address: str, part: Path, size: int, report: Progress) -> None:
    """Transfer until the part is complete; give up after MAX_FAILURES without a new byte."""
    n_failures, reason = 0, ""
    while (done := _measure_length(part)) != size:
        if n_failures == MAX_FAILURES and not done:
            raise AddressUnusable(f"nothing came from the server ({reason}); are you online?")
        if n_failures == MAX_FAILURES:
            raise NotFetched(
                f"the transfer broke off after {done / 1e6:.1f} of {size / 1e6:.1f} MB ({reason}); "
                "run this again to resume there"
            )
        if n_failures:
            time.sleep(PAUSE * n_failures)
        try:
            _transfer(address, part, done, size, report)
            reason = "the server ended it"
        except urllib.error.HTTPError as refusal:
            if refusal.code == 416:  # there is nothing after our part: it is too long
                part.unlink()
            elif refusal.code < 500:
                words = f"the server refused: {refusal.code} {refusal.reason}"
                raise AddressUnusable(words) from None
            reason = f"{refusal.code} {refusal.reason}"
        except (OSError, http.client.HTTPException) as fault:
            if getattr(fault, "errno", None) in DISK_FAULTS:
                raise  # faults of the network come wrapped, without such an errno
            reason = str(getattr(fault, "reason", fault)) or type(fault).__name__
        n_failures = 0 if _measure_length(part) > done else n_failures + 1


def _transfer(address: str, part: Path, done: int, size: int, report: Progress) -> None:
    """Append what the server sends; start over if it does not resume where the part ends."""
    headers = {"User-Agent": f"clearhead/{__version__}", "Accept-Encoding": "identity"}
    if done:
        headers["Range"] = f"bytes={done}-"
    request = urllib.request.Request(address, headers=headers)
    with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:
        resumes = answer.headers.get("Content-Range", "").startswith(f"bytes {done}-")
        if done and not (answer.status == 206 and resumes):
            done = 0
        with open(part, "r+b" if done else "wb") as file:
            file.seek(done)
            while chunk := answer.read1(CHUNK):  # what has arrived, without waiting for more
                done += len(chunk)
                if done > size:
                    part.unlink()
                    raise NotFetched(f"the server sends more than the {size:,} bytes expected")
                file.write(chunk)
                file.flush()
                report(done, size)


def _measure_length(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
