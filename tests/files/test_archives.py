"""Chosen members of an archive; a bad member anywhere refuses the whole, and leaves nothing."""

import os
import resource
import shutil
import stat
import struct
import tarfile
import time
import zipfile

import pytest
from archive_files import deb_of, member, packed, tar_of, zip_of
from hypothesis import given, settings
from hypothesis import strategies as st

from clearhead.files import BadFile, read_members, zips

TAR_KINDS = ["tar", "tar.gz", "deb"]
FILES = {"package/a.txt": b"one", "package/deep/er/b.bin": bytes(range(256)) * 9, "package/c": b""}


def with_mode(name, mode, system=3):
    info = zipfile.ZipInfo(name)
    info.create_system, info.external_attr = system, mode << 16
    return info


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


@pytest.mark.parametrize("form", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT])
@pytest.mark.parametrize("kind", TAR_KINDS)
def test_the_files_of_a_tar_come_out_as_they_went_in(unpacked, kind, form):
    tar = tar_of([member(name, data) for name, data in FILES.items()], form)
    assert unpacked(packed(tar, kind)) == {last_name(name): data for name, data in FILES.items()}


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_the_files_of_a_zip_come_out_as_they_went_in(unpacked, method):
    found = unpacked(zip_of(FILES.items(), method))
    assert found == {last_name(name): data for name, data in FILES.items()}


@pytest.mark.parametrize("form", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT])
def test_long_names_folders_and_a_leading_dot_are_read(unpacked, form):
    long = "./package/" + "d" * 90 + "/" + "é" * 60 + "/x"
    members = [
        member("./", type=tarfile.DIRTYPE),
        member("./package", type=tarfile.DIRTYPE),
        member("./package/", type=tarfile.DIRTYPE),
        member(long, b"1"),
        member("./package/y", b"2"),
    ]
    assert unpacked(tar_of(members, form)) == {"x": b"1", "y": b"2"}


def test_a_zip_with_folders_and_utf8_names_is_read(unpacked):
    found = unpacked(zip_of([("a/", b""), ("a/ü.txt", b"1"), ("b.txt", b"2")]))
    assert found == {"ü.txt": b"1", "b.txt": b"2"}


@pytest.mark.parametrize("make", [lambda f: tar_of(member(*i) for i in f), zip_of])
def test_only_what_is_wanted_is_written_under_the_wanted_name(unpacked, make):
    wanted = {"package/a.txt": "text/first.txt", "package/c": "empty"}
    assert unpacked(make(FILES.items()), wanted) == {"text/first.txt": b"one", "empty": b""}


@pytest.mark.parametrize("make", [lambda f: tar_of(member(*i) for i in f), zip_of])
def test_a_wanted_member_that_is_not_there_is_named(unpacked, make):
    with pytest.raises(BadFile, match=r"archive has no member package/z$"):
        unpacked(make(FILES.items()), {"package/a.txt": "a", "package/z": "z"})


NAMES = st.lists(st.text("abcdé-", max_size=5).map(lambda s: f"x{s}y"), min_size=1, max_size=3)


@settings(max_examples=50)
@given(st.dictionaries(NAMES.map("/".join), st.binary(max_size=999), min_size=1, max_size=5))
def test_any_plain_archive_is_read_like_the_library_reads_it(tmp_path_factory, files):
    files = {f"{i}/{name}/end": data for i, (name, data) in enumerate(files.items())}
    folder = tmp_path_factory.mktemp("archives")
    tar = tar_of(member(name, data) for name, data in files.items())
    for i, data in enumerate([tar, packed(tar, "tar.gz"), zip_of(files.items()), deb_of(tar)]):
        (folder / "archive").write_bytes(data)
        found = read_members(folder / "archive", lambda n: n.replace("/", "="), folder / str(i))
        assert {n.replace("=", "/"): p.read_bytes() for n, p in found.items()} == files


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
    (tmp_path / "a.zip").write_bytes(zip_of(FILES.items()))
    (tmp_path / "new").mkdir()
    read_members(tmp_path / "a.zip", last_name, tmp_path / "new")
    with pytest.raises(ValueError, match="new is there already and not an empty folder"):
        read_members(tmp_path / "a.zip", last_name, tmp_path / "new")


def test_two_members_with_one_target_and_an_unsafe_target_are_refused(unpacked):
    tar = tar_of([member("a/x", b"1"), member("b/x", b"2")])
    with pytest.raises(BadFile, match=r"two members whose targets would share a name: x and x$"):
        unpacked(tar)
    for target in ("../x", "/x", "a//x", "", "nul"):
        with pytest.raises(BadFile, match=r"target .*; take letters"):
            unpacked(tar, {"a/x": target})
    with pytest.raises(TypeError, match="the target of a/x must be a name, got 7"):
        unpacked(tar, {"a/x": 7})


@pytest.mark.parametrize("make", [lambda f: tar_of(member(*i) for i in f), zip_of])
@pytest.mark.parametrize(
    ("first", "second"),
    [("f", "f/g"), ("f/g", "f"), ("f", "F/g"), ("f/g/h", "f/g"), ("x", "X"), ("straße", "STRASSE")],
)
def test_F14_no_target_is_a_file_and_a_folder_or_differs_in_case_alone(
    unpacked, make, first, second
):
    data = make([("one", b"1"), ("two", b"2")])
    for wanted in ({"one": first, "two": second}, {"one": first, "two": second}.get):
        with pytest.raises(BadFile, match=rf"targets would share a name: {first} and {second}$"):
            unpacked(data, wanted)
    assert unpacked(data, {"one": "f/g", "two": "f/h"}) == {"f/g": b"1", "f/h": b"2"}


@pytest.mark.parametrize("make", [lambda f: tar_of(member(*i) for i in f), zip_of])
@pytest.mark.parametrize(("first", "second"), [("f", "f/g"), ("f/g", "f"), ("d/f", "d/f/g/h")])
def test_F14_no_member_is_a_file_and_a_folder(unpacked, make, first, second):
    for wanted in ({}, {first: "one"}, {first: first, second: second}, lambda name: name):
        with pytest.raises(BadFile, match=rf"two members that .* a name: {first} and {second}$"):
            unpacked(make([(first, b"1"), (second, b"2")]), wanted)


def test_F14_the_root_of_a_disk_is_no_member(unpacked):
    with pytest.raises(BadFile, match="'/', which is unsafe"):
        unpacked(tar_of([member("good", b"1"), member("/", type=tarfile.DIRTYPE)]))


def test_a_link_to_an_empty_folder_is_filled_and_stays_a_link(tmp_path):
    (tmp_path / "a.zip").write_bytes(zip_of([("x", b"1")]))
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    found = read_members(tmp_path / "a.zip", last_name, tmp_path / "link")
    assert found == {"x": tmp_path / "link" / "x"}
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real" / "x").read_bytes() == b"1"


def test_an_archive_that_is_not_there_makes_no_folder(tmp_path):
    with pytest.raises(BadFile, match="is not there"):
        read_members(tmp_path / "none.zip", last_name, tmp_path / "new" / "er")
    assert os.listdir(tmp_path) == []


def test_a_packed_member_of_any_length_is_read_to_its_end(unpacked):
    """The last bytes may wait inside of zlib when all of the packed ones are read."""
    files = {str(n): bytes(zips.CHUNK + n) for n in [*range(0, 600, 7), 258, zips.CHUNK]}
    assert unpacked(zip_of(files.items()), max_ratio=2000) == files


# F14: what reaches outside, or is no file

BAD_NAMES = [
    *("../victim", "a/../../victim", "/etc/victim", "//victim", "..", "a/..", "a/./b", "a//b"),
    *(
        "C:/victim",
        "c:victim",
        "..\\victim",
        "a\\b",
        "a\nb",
        "a\x1b[2J",
        "a\u202eb",
        "a/" * 30 + "b",
    ),
    "x" * 600,
]


@pytest.mark.parametrize("bad", BAD_NAMES)
@pytest.mark.parametrize("kind", [*TAR_KINDS, "zip"])
def test_F14_an_unsafe_name_refuses_the_whole(unpacked, bad, kind):
    good = ("good", b"fine")
    if kind == "zip":
        data = zip_of([good, (bad, b"evil")])
    else:
        data = packed(tar_of([member(*good), member(bad, b"evil")]), kind)
    with pytest.raises(BadFile, match=r"unsafe|overlong"):
        unpacked(data)
    with pytest.raises(BadFile, match=r"unsafe|overlong"):
        unpacked(data, {"good": "good"})  # also if it is not wanted


SPECIAL = {
    "symbolic link": [member("a", type=tarfile.SYMTYPE, linkname="victim")],
    "link then file through it": [
        member("a", type=tarfile.SYMTYPE, linkname=".."),
        member("a/victim", b"evil"),
    ],
    "hard link": [member("a", b""), member("b", type=tarfile.LNKTYPE, linkname="a")],
    "hard link to symbolic link": [
        member("a", type=tarfile.SYMTYPE, linkname="../victim"),
        member("b", type=tarfile.LNKTYPE, linkname="a"),
    ],
    "long chain of links": [
        member(f"{'a/' * i}a", type=tarfile.SYMTYPE, linkname="a/" * 16) for i in range(16)
    ],
    "long name of a link": [member("a", type=tarfile.SYMTYPE, linkname="../" * 80)],
    "device": [member("a", type=tarfile.CHRTYPE, devmajor=1, devminor=5)],
    "block device": [member("a", type=tarfile.BLKTYPE)],
    "pipe": [member("a", type=tarfile.FIFOTYPE)],
    "setuid": [member("a", b"x", mode=0o4755)],
    "setgid": [member("a", b"x", mode=0o2755)],
    "contiguous file": [member("a", b"x", type=tarfile.CONTTYPE)],
    "unknown type": [member("a", b"x", type=b"Z")],
    "folder with bytes": [member("a", b"x" * 3, type=tarfile.DIRTYPE)],
    "file that is a folder": [member("a/", b"x")],
    "duplicate": [member("a", b"1"), member("a", b"2")],
    "duplicate by a dot": [member("a", b"1"), member("./a", b"2")],
    "case": [member("Readme", b"1"), member("README", b"2")],
    "case of a folder": [member("d/a", b"1"), member("D/b", b"2")],
    "sharp s": [member("straße", b"1"), member("STRASSE", b"2")],
    "accents": [member("\u00e9", b"1"), member("e\u0301", b"2")],
    "file and folder": [member("a", b"1"), member("a/b", b"2")],
    "folder and file": [member("a/b", b"1"), member("a", b"2")],
    "folder, then file": [member("a", type=tarfile.DIRTYPE), member("a", b"2")],
    "link by extended header": [member("a", b"x", pax_headers={"linkpath": "../victim"})],
    "size by extended header": [member("a", b"x" * 9, pax_headers={"size": "3"})],
    "sparse": [member("a", b"x", pax_headers={"GNU.sparse.major": "1"})],
    "path by extended header": [member("a", b"x", pax_headers={"path": "../victim"})],
}
WORDS = {
    "symbolic link": "a symbolic link",
    "link then file through it": "a symbolic link",
    "hard link": "a hard link",
    "hard link to symbolic link": "a symbolic link",
    "long chain of links": "a symbolic link",
    "long name of a link": "link",
    "device": "a device",
    "block device": "a device",
    "pipe": "a pipe",
    "setuid": "setuid",
    "setgid": "setuid",
    "contiguous file": "unknown type b'7'",
    "unknown type": "unknown type b'Z'",
    "folder with bytes": "a folder and a file at once",
    "file that is a folder": "a folder and a file at once",
    "duplicate": "share a name",
    "duplicate by a dot": "share a name",
    "case": "share a name",
    "case of a folder": "share a name",
    "sharp s": "share a name",
    "accents": "share a name",
    "file and folder": "share a name",
    "folder and file": "share a name",
    "folder, then file": "share a name",
    "link by extended header": "extended header with",
    "size by extended header": "extended header with",
    "sparse": "extended header with",
    "path by extended header": "unsafe",
}


@pytest.mark.parametrize("form", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT])
@pytest.mark.parametrize("case", SPECIAL)
def test_F14_what_is_no_plain_file_refuses_the_whole(unpacked, case, form):
    if "extended" in case or case == "sparse":
        form = tarfile.PAX_FORMAT  # only it can say this
    data = tar_of([member("good", b"fine"), *SPECIAL[case]], form)
    for archive in (data, packed(data, "tar.gz")):
        with pytest.raises(BadFile, match=WORDS[case]):
            unpacked(archive, {"good": "good"})


@pytest.mark.parametrize(
    ("members", "words"),
    [
        ([(with_mode("a", 0o120777), b"victim")], "link, pipe or device"),
        ([(with_mode("a", 0o120777, system=0), b"victim")], "link, pipe or device"),
        ([(with_mode("a", 0o010644), b"")], "link, pipe or device"),
        ([(with_mode("a", 0o020644), b"")], "link, pipe or device"),
        ([(with_mode("a/", 0o120777), b"")], "link, pipe or device"),
        ([(with_mode("a", 0o104755), b"x")], "setuid"),
        ([("a", b"1"), ("A", b"2")], "share a name: a and A"),
        ([("a", b"1"), ("a/b", b"2")], "share a name"),
        ([("a/b", b"1"), ("A/c", b"2")], "share a name"),
    ],
)
def test_F14_a_zip_with_what_is_no_plain_file_is_refused(unpacked, members, words):
    with pytest.raises(BadFile, match=words):
        unpacked(zip_of([("good", b"fine"), *members]), {"good": "good"})


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_F14_a_double_name_in_a_zip_is_refused(unpacked):
    with pytest.raises(BadFile, match="share a name: a and a"):
        unpacked(zip_of([("a", b"1"), ("a", b"2")]))


def test_F14_a_windows_link_in_a_zip_is_refused(unpacked):
    info = zipfile.ZipInfo("a")
    info.create_system, info.external_attr = 0, 0x400
    with pytest.raises(BadFile, match="'a' is a link"):
        unpacked(zip_of([(info, b"victim")]))


def edited_zip(members=(("a", b"one"), ("b", b"two")), *, local=None, entry=None, end=None):
    """A zip with fields changed: {offset in the record: bytes} of the first local header, etc."""
    data = bytearray(zip_of(members, zipfile.ZIP_STORED))
    places = {b"PK\3\4": local, b"PK\1\2": entry, b"PK\5\6": end}
    for mark, changes in places.items():
        for offset, value in (changes or {}).items():
            start = data.index(mark) + offset
            data[start : start + len(value)] = value
    return bytes(data)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"entry": {8: b"\1\0"}}, "encrypted"),
        ({"entry": {10: b"\x0c\0"}}, "packed in an unknown way"),
        ({"entry": {46: b"\xff"}}, "unknown character set"),
        ({"entry": {20: b"\xff" * 4}}, "64-bit form"),
        ({"entry": {24: b"\xff" * 4}}, "64-bit form"),
        ({"entry": {42: b"\xff" * 4}}, "64-bit form"),
        ({"entry": {42: b"\x07"}}, "says something else"),
        ({"entry": {42: b"\0\0\0\x7f"}}, "lies outside"),
        ({"entry": {16: b"\0"}}, "does not hold what the directory says"),
        ({"entry": {24: b"\2"}}, "does not hold what the directory says"),
        ({"entry": {24: b"\4"}}, "does not hold what the directory says"),
        ({"entry": {20: b"\2"}}, "does not hold what the directory says"),
        ({"entry": {20: b"\x08"}}, "members that overlap"),
        ({"entry": {0: b"PK\1\3"}}, "broken directory"),
        ({"entry": {28: b"\xff\xff"}}, "broken directory"),
        ({"entry": {30: b"\xff\xff"}}, "cut short"),
        ({"local": {30: b"z"}}, "says something else"),
        ({"local": {8: b"\x08"}}, "says something else"),
        ({"local": {28: b"\x20"}}, "overlap"),
        ({"end": {4: b"\1"}}, "is split"),
        ({"end": {8: b"\1"}}, "is split"),
        ({"end": {8: b"\1\0\1\0"}}, "more in its directory than it counts"),
        ({"end": {8: b"\3\0\3\0"}}, "cut short"),
        ({"end": {8: b"\xff\xff\xff\xff"}}, "64-bit form"),
        ({"end": {12: b"\1"}}, "not where it says"),
        ({"end": {16: b"\1"}}, "not where it says"),
        ({"end": {20: b"\1"}}, "not where it says"),
    ],
)
def test_F14_a_zip_that_contradicts_itself_is_refused(unpacked, changes, words):
    assert unpacked(edited_zip()) == {"a": b"one", "b": b"two"}
    with pytest.raises(BadFile, match=words):
        unpacked(edited_zip(**changes))


def test_what_stands_before_or_after_a_zip_is_refused(unpacked):
    good = edited_zip()
    for bad in (good + b"x", good[:-1], good[:40]):
        with pytest.raises(BadFile, match=r"not where it says|no directory"):
            unpacked(bad)
    with pytest.raises(BadFile, match="no archive that is read here"):
        unpacked(b"x" + good)


# F15: bombs


def test_F15_a_bomb_of_zeros_stops_at_the_ratio(unpacked):
    blob = tar_of([member("a", b"\0" * (300 << 20))])
    bomb = packed(blob, "tar.gz")
    del blob
    assert len(bomb) < 400_000
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(BadFile, match="unpacks to more than is allowed; it looks like a bomb"):
        unpacked(bomb)
    with pytest.raises(BadFile, match="looks like a bomb"):
        unpacked(bomb, {})  # also if nothing of it is wanted
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000


def test_F15_a_deb_bomb_stops_too(unpacked):
    with pytest.raises(BadFile, match="looks like a bomb"):
        unpacked(deb_of(tar_of([member("a", b"\0" * (20 << 20))])))


def test_F15_a_zip_bomb_is_refused_by_what_it_declares(unpacked):
    with pytest.raises(BadFile, match="looks like a bomb"):
        unpacked(zip_of([("a", b"\0" * (50 << 20))]))
    with pytest.raises(BadFile, match="looks like a bomb"):
        unpacked(edited_zip(entry={24: b"\0\0\0\x70"}))


def test_F15_a_zip_that_declares_little_and_gives_much_stops_there(unpacked, monkeypatch):
    given, whole = [], zips._unpacked
    monkeypatch.setattr(
        zips, "_unpacked", lambda *place: (given.append(len(c)) or c for c in whole(*place))
    )
    data = bytearray(zip_of([("a", b"\0" * (50 << 20))]))
    for mark, offset in ((b"PK\1\2", 24), (b"PK\3\4", 22)):
        struct.pack_into("<L", data, data.index(mark) + offset, 1000)
    with pytest.raises(BadFile, match="does not hold what the directory says"):
        unpacked(bytes(data))
    assert 1000 < sum(given) < 1 << 20


@pytest.mark.parametrize("make", [lambda f: tar_of(member(*i) for i in f), zip_of])
def test_F15_too_many_members_are_refused(unpacked, make):
    files = [(f"{i}", b"") for i in range(8)]
    with pytest.raises(BadFile, match="has more than 7 members"):
        unpacked(make(files), max_members=7)
    assert len(unpacked(make(files), max_members=8)) == 8


def test_F15_the_default_cap_on_members_is_met_in_time(unpacked):
    start = time.process_time()
    tar = tar_of([member("a", b"")])[:512]
    data = b"".join(_renamed(tar, f"{i:06}") for i in range(20_000)) + b"\0" * 1024
    with pytest.raises(BadFile, match="has more than 10,000 members"):
        unpacked(packed(data, "tar.gz"), {}, max_ratio=10_000)
    assert time.process_time() - start < 10


def _renamed(header, name):
    block = bytearray(header)
    block[: len(name)] = name.encode()
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


@pytest.mark.parametrize("make", [lambda f: tar_of(member(*i) for i in f), zip_of])
def test_F15_the_cap_on_bytes_counts_all_members(unpacked, make):
    data = make([("a", b"x" * 700), ("b", b"y" * 700)])
    with pytest.raises(BadFile, match="looks like a bomb"):
        unpacked(data, max_bytes=1300)


def test_F15_a_huge_directory_is_not_read_into_memory(unpacked, monkeypatch):
    monkeypatch.setattr(zips, "MAX_DIRECTORY", 93)
    with pytest.raises(BadFile, match="archive has a directory of 94 bytes, too many for one"):
        unpacked(edited_zip())


def test_F15_overlapping_entries_are_refused(unpacked):
    """Two entries of the directory that share one packed member: how 10 MB become petabytes."""
    data = zip_of([("a", b"\0" * 5000)])
    at, end = data.index(b"PK\1\2"), data.index(b"PK\5\6")
    entry = data[at:end]
    record = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 2, 2, 2 * len(entry), at, 0)
    with pytest.raises(BadFile, match="members that overlap"):
        unpacked(data[:at] + entry * 2 + record)


def test_F15_an_archive_in_an_archive_is_a_file(unpacked):
    inner = zip_of([("x", b"\0" * (20 << 20))])
    assert unpacked(zip_of([("inner.zip", inner)])) == {"inner.zip": inner}


def test_F15_a_huge_extended_header_is_not_read_into_memory(unpacked):
    header = bytearray(_renamed(tar_of([member("a", b"")])[:512], "a"))
    header[156:157] = b"x"
    header[124:136] = b"%011o\0" % (1 << 31)
    data = _renamed(bytes(header), "a") + b"\0" * (1 << 20)
    with pytest.raises(BadFile, match="extended header of 2,147,483,648 bytes"):
        unpacked(data)
    header[156:157] = b"L"
    with pytest.raises(BadFile, match="extended header of 2,147,483,648 bytes"):
        unpacked(_renamed(bytes(header), "a") + b"\0" * (1 << 20))


# Broken ones


def test_every_cut_of_a_tar_is_refused(unpacked):
    tar = tar_of([member(name, data) for name, data in FILES.items()])
    end = len(tar.rstrip(b"\0"))
    for cut in [*range(0, end, 97), end]:
        with pytest.raises(BadFile):
            unpacked(tar[:cut])


@pytest.mark.parametrize("kind", ["tar.gz", "deb", "zip"])
def test_every_cut_of_a_packed_archive_is_refused(unpacked, kind):
    tar = tar_of([member(name, data) for name, data in FILES.items()])
    data = zip_of(FILES.items()) if kind == "zip" else packed(tar, kind)
    for cut in range(0, len(data), 7):
        with pytest.raises(BadFile):
            unpacked(data[:cut])


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "no archive that is read here"),
        (b"hello" * 300, "no archive that is read here"),
        (b"7z\xbc\xaf\x27\x1c" + b"\0" * 600, "no archive that is read here"),
        (b"\x1f\x8b" + b"\0" * 100, "broken or cut short"),
        (b"!<arch>\n", "has no data.tar.xz"),
        (deb_of(tar_of([])).replace(b"data.tar.xz ", b"data.tar.zst"), "has no data.tar.xz"),
        (tar_of([member("a", b"1")]) + b"hidden", "goes on after its end"),
        (tar_of([member("a", b"1")])[:1024] + b"\1" * 512, "a header without its mark"),
        (tar_of([member("a", b"1")]).replace(b"a\0", b"b\0", 1), "does not match its checksum"),
        (tar_of([member("a", b"1")])[:1024], "ends too early"),
    ],
)
def test_what_is_no_archive_is_refused(unpacked, data, words):
    with pytest.raises(BadFile, match=words):
        unpacked(data)


def test_a_gzip_with_a_wrong_checksum_is_refused(unpacked):
    data = bytearray(packed(tar_of([member("a", b"1")]), "tar.gz"))
    data[-5] ^= 1
    with pytest.raises(BadFile, match="broken or cut short"):
        unpacked(bytes(data))


def test_a_number_that_is_not_octal_is_refused(unpacked):
    block = bytearray(tar_of([member("a", b"1")]))
    block[124:136] = b"\x80" + b"\0" * 10 + b"\1"  # GNU's form for large numbers
    block[:512] = _renamed(bytes(block[:512]), "a")
    with pytest.raises(BadFile, match="which is not octal"):
        unpacked(bytes(block))


@pytest.mark.parametrize(
    "words",
    [
        b"9 path=../",
        b"x path=a\n",
        b"99 path=a\n",
        b"7 patha\n",
        b"1 ",
        b"99999999999 a=b\n",
        b" 9 a",
    ],
)
def test_a_broken_extended_header_is_refused(unpacked, words):
    info, _ = member("a", words)
    info.type = b"x"
    block = _renamed(info.tobuf(tarfile.USTAR_FORMAT), "a") + words.ljust(512, b"\0")
    with pytest.raises(BadFile, match="broken extended header"):
        unpacked(block + tar_of([member("a", b"1")]))


def test_a_full_disk_is_said_and_leaves_nothing(unpacked, monkeypatch):
    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        unpacked(zip_of(FILES.items()))


def test_an_interruption_leaves_nothing(unpacked):
    def interrupt(name):
        if name.endswith("b.bin"):
            raise KeyboardInterrupt
        return last_name(name)

    with pytest.raises(KeyboardInterrupt):
        unpacked(packed(tar_of([member(*item) for item in FILES.items()]), "tar.gz"), interrupt)
