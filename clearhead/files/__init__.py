"""Files from elsewhere, checked before their content is used.

    reading.py       open a regular file within a size; BadFile, the error of every reader
    writing.py       replace a file whole or not at all
    page.py          an HTML page in one file
    lock.py          one process at a time works in a folder
    names.py         which names are safe for a file
    text.py          strict UTF-8, no NUL, no endless line; large files part by part
    strict_json.py   JSON that has only one meaning: no key twice, no NaN, no deep nesting
    tensors.py       named tensors in one file (the safetensors format)
    pictures.py      PNG and JPEG as tensors
    pickles.py       pickles read without running them
    archives.py      chosen members of a tar, tar.gz or Debian package

Every fault is a `BadFile`, a ValueError whose one sentence names the file and the fault. A reader
returns all of its result or raises. tensors.py and pictures.py import torch, so they are not
imported here: the command line answers before torch is loaded.
"""

from clearhead.files.archives import read_members
from clearhead.files.names import check_file_name
from clearhead.files.reading import BadFile
from clearhead.files.strict_json import parse_json, read_json, write_json
from clearhead.files.text import read_text
from clearhead.files.writing import replace_file

__all__ = [
    "BadFile",
    "check_file_name",
    "parse_json",
    "read_json",
    "read_members",
    "read_text",
    "replace_file",
    "write_json",
]
