"""The address of a package, asked from the client of its registry.

    npm        npm view PACKAGE@VERSION dist.tarball --json
    pip        pip index versions PACKAGE -vv            lists the links of the index
    apt-get    apt-get download --print-uris PACKAGE=VERSION

So the registry, its mirrors and its settings are those the user has chosen, and this code holds no
address. Clients are only asked: `pip download`, for one, would run a package's setup to learn its
name. If the address cannot be used from here, npm and apt-get can fetch the archive themselves,
which runs nothing; pip cannot.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from clearhead.data.fetching.catalogue import Archive
from clearhead.files import BadFile, parse_json

PATIENCE = 120.0  # seconds for one question
LONG = 3600.0  # for a whole archive
ADDRESS = re.compile(r"(?:https?|file)://[^\s'\"#]+")
NO_NETWORK = re.compile(
    r"ENOTFOUND|EAI_AGAIN|ECONN\w+|ETIMEDOUT|ENETUNREACH|EHOSTUNREACH|FETCH_ERROR|ERR_SOCKET\w*|"
    r"NewConnectionError|NameResolutionError|ConnectTimeoutError|Could not resolve|"
    r"Temporary failure"
)
INSTALL = {
    "npm": "it comes with Node.js",
    "pip": "python -m ensurepip brings it",
    "apt-get": "this set comes from Debian's packages, so it needs Debian, Ubuntu or the like",
}


class NotFetched(ValueError):
    """Why a data set was not fetched, in one sentence that says what to do."""


class NotKept(NotFetched):
    """The disk is full, read-only or not writable by us."""


class Busy(NotFetched):
    """Another process is fetching it."""


class NotThisWay(NotFetched):
    """The address cannot be used from here; the client itself may be able to fetch."""


def locate(archive: Archive, folder: Path) -> str | None:
    """Find the address of an archive; None if the client knows the package but not its address."""
    package, version = archive.package, archive.version
    if archive.client == "npm":
        options = ["--json", "--fetch-retries=0", "--fetch-timeout=30000"]
        answer = _ask("npm", ["view", f"{package}@{version}", "dist.tarball", *options], folder)
        return _find_address(_parse_string(answer), archive)
    if archive.client == "pip":
        options = [
            "-vv",
            "--no-input",
            "--retries=0",
            "--timeout=30",
            "--disable-pip-version-check",
        ]
        return _find_address(_ask("pip", ["index", "versions", package, *options], folder), archive)
    answer = _ask("apt-get", ["download", "--print-uris", f"{package}={version}"], folder)
    return _find_address(answer, archive)


def fetch_by_client(archive: Archive, folder: Path) -> Path:
    """Let the client fetch the archive into a folder; no code of the package runs."""
    before = set(os.listdir(folder))
    if archive.client == "npm":
        spec = f"{archive.package}@{archive.version}"
        _ask("npm", ["pack", spec, "--ignore-scripts"], folder, LONG)
    elif archive.client == "apt-get":
        _ask("apt-get", ["download", f"{archive.package}={archive.version}"], folder, LONG)
    else:
        raise NotFetched(f"{archive.file} cannot be reached under the address that pip tells")
    new = set(os.listdir(folder)) - before
    if len(new) != 1:
        raise NotFetched(f"{archive.client} did not bring {archive.file}")
    return folder / new.pop()


def _find_address(answer: str, archive: Archive) -> str | None:
    """The first address in an answer that ends in the name of the archive."""
    ending = archive.file
    if archive.client == "npm":  # a scope is part of the address, not of the last name
        ending = f"{archive.package.rpartition('/')[2]}-{archive.version}.tgz"
    return next((found for found in ADDRESS.findall(answer) if found.endswith("/" + ending)), None)


def _parse_string(answer: str) -> str:
    try:
        word = parse_json(answer, "the answer of npm")
    except BadFile:
        return ""
    return word if isinstance(word, str) else json.dumps(word)


def _ask(client: str, arguments: list[str], folder: Path, seconds: float | None = None) -> str:
    """Run a client; its output, or NotFetched if it is missing, offline or refuses."""
    try:
        done = subprocess.run(
            [*_find_command(client), *arguments],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=seconds or PATIENCE,
            env=os.environ | {"LC_ALL": "C", "NO_COLOR": "1"},
        )
    except subprocess.TimeoutExpired:
        raise NotFetched(f"{client} did not answer in time; run this again later") from None
    except OSError as reason:
        raise NotFetched(f"{client} cannot be run: {reason.strerror}") from None
    if done.returncode == 0:
        return done.stdout + done.stderr * (client == "pip")
    words = done.stdout + done.stderr
    if found := NO_NETWORK.search(words):
        raise NotFetched(
            f"{client} cannot reach its registry ({found[0]}); run this again when you are online"
        )
    raise NotFetched(f"{client} refused: {_find_first_error(words)}")


def _find_command(client: str) -> list[str]:
    path = shutil.which(client)
    if path:
        return [path]
    if client == "pip" and find_spec("pip"):
        return [sys.executable, "-m", "pip"]
    raise NotFetched(f"{client} is not installed; {INSTALL[client]}")


def _find_first_error(words: str) -> str:
    lines = [line.strip() for line in words.splitlines() if line.strip()]
    marked = [line for line in lines if re.match(r"E:|ERROR|npm (ERR!|error)", line)]
    line = (marked or lines or ["it gave no reason"])[0]
    if line.startswith("E:"):
        line += " (apt-get update may help)"
    return "".join(sign if sign.isprintable() else "?" for sign in line[:200])
