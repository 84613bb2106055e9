"""Chosen members of an archive; a bad member anywhere refuses the whole, and leaves nothing."""

import os
import resource
import shutil
import stat
import tarfile
import time
import zipfile

import pytest
from archive_files import deb_of, member, packed, tar_of
from hypothesis import given, settings
from hypothesis import strategies as st

from clearhead.files import BadFile, archives, read_members

KINDS = ["tar", "tar.gz", "deb"]
FORMS = [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT]
FILES = {"package/a.txt": b"one", "package/deep/er/b.bin": bytes(range(256)) * 9, "package/c": b""}
TAR = tar_of(member(*item) for item in FILES.items())


def last_name(name):
    return name.rsplit("/", 1)[-1]


@pytest.fixture
def unpacked(tmp_path):
    """What is read from an archive of these bytes; checks that nothing is left after a refusal."""
    folder = tmp_path / "place"
    folder.mkdir()
    (folder / "victim").write_bytes(b"mine")

    def unpacked(data, wanted=last_name, **caps):
        archive = tmp_path / "archive"
        archive.write_bytes(data)
        shutil.rmtree(folder / "new", ignore_errors=True)
        try:
            found = read_members(archive, wanted, folder / "new", **caps)
        except BaseException:
            assert os.listdir(folder) == ["victim"], "something was left behind"
            assert sorted(os.listdir(tmp_path)) == ["archive", "place"], "something is outside"
            assert (folder / "victim").read_bytes() == b"mine"
            raise
        assert sorted(os.listdir(folder)) == ["new", "victim"]
        return {name: path.read_bytes() for name, path in found.items()}

    return unpacked


# What is read


NAMES = st.lists(st.text("abcdé-", max_size=5).map(lambda s: f"x{s}y"), min_size=1, max_size=3)


@settings(max_examples=50)
@given(
    st.dictionaries(NAMES.map("/".join), st.binary(max_size=999), min_size=1, max_size=5),
    st.sampled_from(FORMS),
)
def test_any_plain_archive_comes_out_as_the_library_packed_it(tmp_path_factory, files, form):
    files = {f"{i}/{name}/end": data for i, (name, data) in enumerate(files.items())}
    folder = tmp_path_factory.mktemp("archives")
    tar = tar_of([member(name, data) for name, data in files.items()], form)
    for kind in KINDS:
        (folder / "archive").write_bytes(packed(tar, kind))
        found = read_members(folder / "archive", lambda n: n.replace("/", "="), folder / kind)
        assert {n.replace("=", "/"): p.read_bytes() for n, p in found.items()} == files


@pytest.mark.parametrize("form", FORMS[:2])
def test_long_names_folders_and_a_leading_dot_are_read(unpacked, form):
    long = "./package/" + "d" * 90 + "/" + "é" * 60 + "/x"
    folders = [member(n, type=tarfile.DIRTYPE) for n in ("./", "./package", "./package/")]
    members = [*folders, member(long, b"1"), member("./package/y", b"2")]
    assert unpacked(tar_of(members, form)) == {"x": b"1", "y": b"2"}


def test_only_what_is_wanted_is_written_under_the_wanted_name(unpacked):
    wanted = {"package/a.txt": "text/first.txt", "package/c": "empty"}
    assert unpacked(TAR, wanted) == {"text/first.txt": b"one", "empty": b""}
    with pytest.raises(BadFile, match=r"archive has no member package/z$"):
        unpacked(TAR, {"package/a.txt": "a", "package/z": "z"})


def test_a_large_member_passes_in_chunks(unpacked):
    data = os.urandom(archives.CHUNK + 700)
    assert unpacked(packed(tar_of([member("a", data)]), "tar.gz")) == {"a": data}


def test_new_files_have_plain_permissions(tmp_path):
    tar = tar_of([member("run", b"x", mode=0o777, uid=4711), member("closed", b"x", mode=0)])
    (tmp_path / "a.tar").write_bytes(tar)
    found = read_members(tmp_path / "a.tar", last_name, tmp_path / "new")
    umask = os.umask(0)
    os.umask(umask)
    for path in found.values():
        assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~umask
        assert path.stat().st_uid == os.getuid()


def test_an_empty_folder_may_be_there_and_a_full_one_may_not(tmp_path):
    (tmp_path / "a.tar").write_bytes(TAR)
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    found = read_members(tmp_path / "a.tar", {"package/a.txt": "x"}, tmp_path / "link")
    assert found == {"x": tmp_path / "link" / "x"}
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real" / "x").read_bytes() == b"one"
    with pytest.raises(ValueError, match="real exists already and is not an empty folder"):
        read_members(tmp_path / "a.tar", last_name, tmp_path / "link")


def test_an_archive_that_is_not_there_makes_no_folder(tmp_path):
    with pytest.raises(BadFile, match="is not there"):
        read_members(tmp_path / "none.tar", last_name, tmp_path / "new" / "er")
    assert os.listdir(tmp_path) == []


# What reaches outside, or is not a file

BAD_NAMES = [
    *("../victim", "a/../../victim", "/etc/victim", "//victim", "..", "a/..", "a/./b", "a//b"),
    *("C:/victim", "c:victim", "..\\victim", "a\\b", "a\nb", "a\x1b[2J", "a\u202eb"),
    *("a/" * 30 + "b", "x" * 600, "a/"),
]


@pytest.mark.parametrize("bad", BAD_NAMES)
@pytest.mark.parametrize("kind", KINDS)
def test_F14_an_unsafe_name_refuses_the_whole(unpacked, bad, kind):
    data = packed(tar_of([member("good", b"fine"), member(bad, b"evil")]), kind)
    for wanted in (last_name, {"good": "good"}):  # also if it is not wanted
        with pytest.raises(BadFile, match=r"unsafe|overlong"):
            unpacked(data, wanted)


LINK = {"type": tarfile.SYMTYPE, "linkname": "../victim"}
SPECIAL = {
    "symbolic link": ([member("a", **LINK)], "a symbolic link"),
    "file through a link": ([member("a", **LINK), member("a/victim", b"evil")], "a symbolic link"),
    "hard link": ([member("a", b""), member("b", type=b"1", linkname="a")], "a hard link"),
    "hard link to a link": (
        [member("a", **LINK), member("b", type=b"1", linkname="a")],
        "a symbolic link",
    ),
    "long chain of links": (
        [member(f"{'a/' * i}a", type=b"2", linkname="a/" * 16) for i in range(16)],
        "a symbolic link",
    ),
    "long name of a link": ([member("a", type=b"2", linkname="../" * 80)], "a symbolic link"),
    "device": ([member("a", type=tarfile.CHRTYPE, devmajor=1, devminor=5)], "a device"),
    "block device": ([member("a", type=tarfile.BLKTYPE)], "a device"),
    "pipe": ([member("a", type=tarfile.FIFOTYPE)], "a pipe"),
    "setuid": ([member("a", b"x", mode=0o4755)], "setuid"),
    "setgid": ([member("a", b"x", mode=0o2755)], "setuid"),
    "contiguous file": ([member("a", b"x", type=tarfile.CONTTYPE)], "of the type b'7'"),
    "unknown type": ([member("a", b"x", type=b"Z")], "of the type b'Z'"),
    "sparse file": ([member("a", b"\0" * 512, type=tarfile.GNUTYPE_SPARSE)], "of the type b'S'"),
    "folder with bytes": ([member("a", b"x" * 3, type=tarfile.DIRTYPE)], "impossible size, 3"),
    "root of a disk": ([member("/", type=tarfile.DIRTYPE)], "unsafe name"),
    "duplicate": ([member("a", b"1"), member("a", b"2")], "share a name: a and a"),
    "duplicate by a dot": ([member("a", b"1"), member("./a", b"2")], "share a name"),
    "case": ([member("Readme", b"1"), member("README", b"2")], "share a name"),
    "case of a folder": ([member("d/a", b"1"), member("D/b", b"2")], "share a name"),
    "sharp s": ([member("straße", b"1"), member("STRASSE", b"2")], "share a name"),
    "accents": ([member("\u00e9", b"1"), member("e\u0301", b"2")], "share a name"),
    "file and folder": ([member("a", b"1"), member("a/b", b"2")], "share a name: a and a/b"),
    "folder and file": ([member("a/b", b"1"), member("a", b"2")], "share a name: a/b and a"),
    "folder, then file": ([member("a", type=b"5"), member("a", b"2")], "share a name"),
}
EXTENDED = {
    "path": ({"path": "../victim"}, "unsafe name"),
    "sparse map": ({"GNU.sparse.map": "0,1"}, "only files and folders"),
    "sparse 1.0": ({"GNU.sparse.major": "1", "GNU.sparse.minor": "0"}, "header"),
    "negative size": ({"size": "-512"}, "impossible size"),
}


@pytest.mark.parametrize("form", FORMS[:2])
@pytest.mark.parametrize("case", SPECIAL)
def test_F14_what_is_no_plain_file_refuses_the_whole(unpacked, case, form):
    members, words = SPECIAL[case]
    data = tar_of([member("good", b"fine"), *members], form)
    for archive in (data, packed(data, "tar.gz")):
        with pytest.raises(BadFile, match=words):
            unpacked(archive, {"good": "good"})


@pytest.mark.parametrize("case", EXTENDED)
def test_F14_an_extended_header_brings_nothing_in(unpacked, case):
    headers, words = EXTENDED[case]
    with pytest.raises(BadFile, match=words):
        unpacked(tar_of([member("good", b"fine"), member("a", b"x", pax_headers=headers)]))


@pytest.mark.parametrize(
    ("first", "second"),
    [("f", "f/g"), ("f/g", "f"), ("f", "F/g"), ("f/g/h", "f/g"), ("x", "X"), ("straße", "STRASSE")],
)
def test_F14_no_target_is_a_file_and_a_folder_or_differs_in_case_alone(unpacked, first, second):
    data = tar_of([member("one", b"1"), member("two", b"2")])
    for wanted in ({"one": first, "two": second}, {"one": first, "two": second}.get):
        with pytest.raises(BadFile, match=rf"targets would share a name: {first} and {second}$"):
            unpacked(data, wanted)
    assert unpacked(data, {"one": "f/g", "two": "f/h"}) == {"f/g": b"1", "f/h": b"2"}


def test_F14_two_members_with_one_target_and_an_unsafe_target_are_refused(unpacked):
    tar = tar_of([member("a/x", b"1"), member("b/x", b"2")])
    for wanted in (last_name, lambda _: "x"):
        with pytest.raises(BadFile, match=r"members whose targets would share a name: x and x$"):
            unpacked(tar, wanted)
    for target in ("../x", "/x", "a//x", "", "nul"):
        with pytest.raises(BadFile, match=r"target .*; use letters"):
            unpacked(tar, {"a/x": target})
    with pytest.raises(TypeError, match="the target of a/x must be a name, got 7"):
        unpacked(tar, {"a/x": 7})


# Bombs


def test_F15_a_bomb_of_zeros_stops_at_the_ratio(unpacked):
    blob = tar_of([member("a", b"\0" * (300 << 20))])
    bomb = packed(blob, "tar.gz")
    del blob
    assert len(bomb) < 400_000
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(BadFile, match="unpacks to more than is allowed; it may be a bomb"):
        unpacked(bomb)
    with pytest.raises(BadFile, match="may be a bomb"):
        unpacked(bomb, {})  # also if nothing of it is wanted
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000


def test_F15_a_deb_bomb_stops_too(unpacked):
    with pytest.raises(BadFile, match="may be a bomb"):
        unpacked(deb_of(tar_of([member("a", b"\0" * (20 << 20))])))


def test_F15_the_cap_on_bytes_counts_all_members(unpacked):
    with pytest.raises(BadFile, match="may be a bomb"):
        unpacked(tar_of([member("a", b"x" * 700), member("b", b"y" * 700)]), max_bytes=1300)


def test_F15_too_many_members_are_refused_in_time(unpacked):
    start = time.process_time()
    tar = tar_of([member("a", b"")])[:512]
    data = b"".join(with_header(tar, name=f"{i:06}") for i in range(20_000)) + b"\0" * 1024
    with pytest.raises(BadFile, match="has more than 10,000 members"):
        unpacked(packed(data, "tar.gz"), {}, max_ratio=10_000)
    assert time.process_time() - start < 10
    eight = tar_of([member(str(i)) for i in range(8)])
    assert len(unpacked(eight, max_members=8)) == 8
    with pytest.raises(BadFile, match="has more than 7 members"):
        unpacked(eight, max_members=7)


def with_header(block, *, name="a", kind=None, size=None):
    """The header with fields changed and its checksum put right."""
    block = bytearray(block)
    block[: len(name)] = name.encode()
    if kind is not None:
        block[156:157] = kind
    if size is not None:
        block[124:136] = size
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


@pytest.mark.parametrize("kind", [b"x", b"g", b"L", b"K"])
@pytest.mark.parametrize("fill", [b"\0", b"9", b"12 path=abc\n"])
def test_F15_a_huge_extended_header_costs_neither_memory_nor_time(unpacked, kind, fill):
    for n_bytes in (1 << 31, 1 << 20, (1 << 13) - 512):  # as told; a megabyte follows
        header = with_header(TAR[:512], kind=kind, size=b"%011o\0" % n_bytes)
        start, before = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        with pytest.raises(BadFile, match=r"header of more than 8,192 bytes|broken header"):
            unpacked(header + (fill * (1 << 20))[: 1 << 20])
        assert time.process_time() - start < 2
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 20_000


def test_F15_a_chain_of_extended_headers_ends(unpacked):
    words = b"12 path=abc\n"
    header = with_header(TAR[:512], kind=b"x", size=b"%011o\0" % len(words))
    with pytest.raises(BadFile, match="header of more than 8,192 bytes"):
        unpacked((header + words.ljust(512, b"\0")) * 2000)


def test_F15_a_sparse_map_without_end_is_not_read(unpacked):
    headers = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0"}
    data = b"99999999\n" + b"0\n" * (2 << 20)
    with pytest.raises(BadFile, match="header of more than 8,192 bytes"):
        unpacked(tar_of([member("a", data, pax_headers=headers)]))


@pytest.mark.parametrize("size", [-512, -(1 << 40), 1 << 62])
def test_F15_a_size_of_another_world_does_not_loop(unpacked, size):
    number = (size & (1 << 88) - 1).to_bytes(11, "big")  # GNU's form for large numbers
    header = with_header(TAR[:512], size=(b"\xff" if size < 0 else b"\x80") + number)
    with pytest.raises(BadFile, match=r"impossible size|cut short"):
        unpacked(header + TAR)


def test_F15_an_archive_in_an_archive_is_a_file(unpacked):
    inner = packed(tar_of([member("x", b"\0" * (20 << 20))]), "tar.gz")
    assert unpacked(tar_of([member("inner.tgz", inner)])) == {"inner.tgz": inner}


# Broken ones


@pytest.mark.parametrize("kind", KINDS)
def test_every_cut_of_an_archive_is_refused(unpacked, kind):
    data = packed(TAR, kind)
    end = len(TAR.rstrip(b"\0")) if kind == "tar" else len(data)
    for cut in range(0, end, 97 if kind == "tar" else 7):
        with pytest.raises(BadFile):
            unpacked(data[:cut])


ONE = tar_of([member("a", b"1")])
PAX = with_header(ONE[:512], kind=b"x", size=b"%011o\0" % 9)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "not an archive that is read here"),
        (b"hello" * 300, "not an archive that is read here"),
        (b"7z\xbc\xaf\x27\x1c" + b"\0" * 600, "not an archive that is read here"),
        (b"PK\3\4" + b"\0" * 600, r"not an archive that is read here \(tar, tar.gz, deb\)"),
        (b"\x1f\x8b" + b"\0" * 100, "broken or cut short"),
        (packed(ONE, "tar.gz")[:-5] + b"\1" * 5, "broken or cut short"),  # its checksum
        (b"!<arch>\n", "has no data.tar.xz"),
        (deb_of(tar_of([])).replace(b"data.tar.xz ", b"data.tar.zst"), "has no data.tar.xz"),
        (ONE + b"hidden", "continues after its end"),
        (ONE[:1024] + b"\1" * 512, "broken header, or ends too early"),
        (ONE[:1024] + ONE.replace(b"a\0", b"b\0", 1), "broken header, or ends too early"),
        (ONE.replace(b"a\0", b"b\0", 1), "broken header: bad checksum"),
        (ONE[:1024], "broken header, or ends too early"),
        (tar_of([member("ü")], tarfile.USTAR_FORMAT).replace(b"\xbc", b"\xff"), "broken header"),
        (PAX + b"0 path=../".ljust(512, b"\0") + ONE, "broken header"),
        (PAX + b"9 path=a\n".ljust(512, b"\0") + b"\0" * 1024, "broken header"),
    ],
)
def test_what_is_no_whole_archive_is_refused(unpacked, data, words):
    with pytest.raises(BadFile, match=words) as refusal:
        unpacked(data)
    assert str(refusal.value).isprintable()


def test_a_zip_is_no_archive_that_is_read(unpacked, tmp_path):
    with zipfile.ZipFile(tmp_path / "archive", "w") as file:
        file.writestr("a", b"1")
    with pytest.raises(BadFile, match="not an archive that is read here"):
        unpacked((tmp_path / "archive").read_bytes())


def test_a_full_disk_is_said_and_leaves_nothing(unpacked, monkeypatch):
    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        unpacked(TAR)


def test_an_interruption_leaves_nothing(unpacked):
    def interrupt(name):
        if name.endswith("b.bin"):
            raise KeyboardInterrupt
        return last_name(name)

    with pytest.raises(KeyboardInterrupt):
        unpacked(packed(TAR, "tar.gz"), interrupt)
