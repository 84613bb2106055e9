"""Two small SWORD modules in Debian packages, for the tests."""

import hashlib
import struct
import zlib

from archive_files import deb_of, member, tar_of

from clearhead.data.fetching.catalogue import Archive, DataFile, DataSet

TEXTS = {
    "english": ["In the beginning.", "And light."],
    "spanish": ["En el principio.", "Y la luz."],
}
PAIRS = b"In the beginning.\tEn el principio.\nAnd light.\tY la luz.\n"


def testament_files(entries):
    """The three files of a testament of one block."""
    places, text = b"", b""
    for entry in entries:
        places += struct.pack("<2LH", 0, len(text), len(entry.encode()))
        text += entry.encode()
    packed = zlib.compress(text)
    return {"bzs": struct.pack("<3L", 0, len(packed), len(text)), "bzv": places, "bzz": packed}


def module_archives():
    """A data set made from two modules, and the bytes of their packages by name."""
    archives, packages = [], {}
    for name, verses in TEXTS.items():
        chapter = '<chapter osisID="Gen.1" sID="Gen.1"/>'
        files = {f"ot.{end}": data for end, data in testament_files([chapter, *verses]).items()}
        files |= {f"nt.{end}": data for end, data in testament_files([]).items()}
        file = f"{name}_1_all.deb"
        members = {f"usr/{name}/{part}": data for part, data in files.items()}
        deb = deb_of(tar_of([member(f"./{path}", data) for path, data in members.items()]))
        packages[file] = deb
        sum_ = hashlib.sha256(deb).hexdigest()
        archives.append(Archive("apt-get", name, "1", file, tuple(members), len(deb), sum_))
    kept = DataFile("pairs.tsv", "", 0, len(PAIRS), hashlib.sha256(PAIRS).hexdigest())
    return DataSet("toy", "pairs", "free", "tests", tuple(archives), (kept,)), packages
