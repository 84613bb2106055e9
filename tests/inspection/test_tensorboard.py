"""Event files, byte by byte; TensorBoard itself reads them only where it is installed."""

import os
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clearhead.files import BadFile
from clearhead.inspection import tensorboard
from clearhead.inspection.tensorboard import write_events
from clearhead.runs.folder import RunFolder

# Worked by hand: a record of the version, and one of step 300 with val_loss = 2.5.
TIME = bytes.fromhex("09 000000000000 0840")  # field 1, a double: 3.0
FIRST = bytes.fromhex("1a 0d") + b"brain.Event:2"  # field 3, 13 bytes
SECOND = bytes.fromhex("10 ac02")  # field 2, a varint: 300 = 2 · 128 + 44
SECOND += bytes.fromhex("2a 11 0a 0f")  # field 5, 17 bytes; in it field 1, 15 bytes
SECOND += bytes.fromhex("0a 08") + b"val_loss"  # field 1, 8 bytes
SECOND += bytes.fromhex("15 00002040")  # field 2, a float: 2.5


@pytest.fixture
def run(tmp_path):
    """A run that began at second 3 of the epoch, with as many lines of measures as are given."""

    def run(*lines):
        folder = RunFolder(tmp_path / "substring-0001")
        folder.path.mkdir(exist_ok=True)
        (folder / "config.json").write_text("{}")
        os.utime(folder / "config.json", (3.0, 3.0))
        (folder / "metrics.jsonl").unlink(missing_ok=True)
        for line in lines:
            folder.add_metrics(line)
        return folder

    return run


def records(data):
    """The data of each record, after its lengths and checksums were looked at."""
    while data:
        (length,) = struct.unpack("<Q", data[:8])
        content, end = data[12 : 12 + length], 12 + length + 4
        assert data[8:12] == tensorboard._checksum(data[:8])
        assert data[12 + length : end] == tensorboard._checksum(content)
        assert len(content) == length
        yield content
        data = data[end:]


def test_the_bytes_are_those_worked_by_hand(run):
    path = write_events(run({"step": 300, "val_loss": 2.5}).path)
    assert path.name.startswith("events.out.tfevents.")
    assert list(records(path.read_bytes())) == [TIME + FIRST, TIME + SECOND]


def test_every_event_file_begins_with_the_same_twelve_bytes(run):
    """Its first record has 24 bytes of data, and this is their number with its checksum."""
    begin = bytes.fromhex("18 00 00 00 00 00 00 00 a3 7f 4b 22")
    assert write_events(run().path).read_bytes().startswith(begin)


@pytest.mark.parametrize(
    ("data", "crc"),
    [  # RFC 3720, appendix B.4, and the usual check of every CRC
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
        (bytes(range(31, -1, -1)), 0x113FDB5C),
        (b"123456789", 0xE3069283),
    ],
)
def test_the_checksum_is_that_of_the_standard(data, crc):
    assert tensorboard._crc32c(data) == crc


@given(st.binary(min_size=1, max_size=40), st.integers(0, 319))
def test_one_wrong_bit_changes_the_checksum(data, bit):
    place, mask = divmod(bit % (8 * len(data)), 8)
    wrong = bytearray(data)
    wrong[place] ^= 1 << mask
    assert tensorboard._checksum(bytes(wrong)) != tensorboard._checksum(data)


@given(st.integers(0, 2**64 - 1))
def test_a_varint_can_be_read_back(number):
    found = tensorboard._varint(number)
    assert sum((byte & 127) << 7 * i for i, byte in enumerate(found)) == number
    assert [byte >> 7 for byte in found] == [1] * (len(found) - 1) + [0]
    assert len(found) == max(1, -(-number.bit_length() // 7))


def test_all_metrics_of_a_step_are_in_one_event(run):
    path = write_events(run({"step": 1, "loss": 0.5, "lr": 0.25, "val_accuracy": 1}).path)
    _, event = records(path.read_bytes())
    for name, number in (("loss", 0.5), ("lr", 0.25), ("val_accuracy", 1.0)):
        text = bytes([10, len(name)]) + name.encode() + b"\x15" + struct.pack("<f", number)
        assert bytes([10, len(text)]) + text in event


def test_a_line_without_numbers_is_left_out_and_too_large_ones_are_clipped(run):
    path = write_events(run({"step": 1, "note": "x"}, {"step": 2, "loss": 1e90}).path)
    _, event = records(path.read_bytes())
    assert b"note" not in event
    assert event.endswith(struct.pack("<f", 3.4028234663852886e38))


# A file that grows


def test_new_lines_are_appended_to_the_existing_file(run):
    folder = run({"step": 1, "loss": 3.0})
    path = write_events(folder.path)
    with open(path, "rb") as looking_on:
        before = looking_on.read()
        folder.add_metrics({"step": 2, "loss": 2.0})
        write_events(folder.path)
        added = looking_on.read()
    assert path.read_bytes() == before + added
    assert len(list(records(added))) == 1
    assert write_events(folder.path).read_bytes() == before + added


def test_a_file_that_was_cut_off_is_made_whole(run):
    folder = run({"step": 1, "loss": 3.0}, {"step": 2, "loss": 2.0})
    path = write_events(folder.path)
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        assert write_events(folder.path).read_bytes() == whole


def test_a_run_that_went_back_is_written_anew(run):
    path = write_events(run({"step": 1, "loss": 3.0}, {"step": 2, "loss": 9.0}).path)
    again = write_events(run({"step": 1, "loss": 3.0}, {"step": 2, "loss": 2.0}).path)
    assert again == path
    first, *events = records(path.read_bytes())
    assert first == TIME + FIRST
    assert len(events) == 2
    assert events[1].endswith(struct.pack("<f", 2.0))
    assert os.listdir(path.parent).count(path.name) == 1


def test_a_line_that_is_being_written_is_left_for_the_next_time(run):
    folder = run({"step": 1, "loss": 3.0})
    with open(folder / "metrics.jsonl", "a") as file:
        file.write('{"step": 2, "lo')
    assert len(list(records(write_events(folder.path).read_bytes()))) == 2


def test_what_is_no_run_is_refused(tmp_path):
    with pytest.raises(BadFile, match="no such folder"):
        write_events(tmp_path / "nothing")
    with pytest.raises(BadFile, match=r"config\.json"):
        write_events(tmp_path)
    assert os.listdir(tmp_path) == []


@pytest.mark.filterwarnings("ignore")  # those of other packages
def test_tensorboard_reads_what_was_written(run):
    reading = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    folder = run({"step": 10, "loss": 0.5}, {"step": 300, "loss": 0.25, "val_loss": 2.5})
    found = reading.EventAccumulator(str(write_events(folder.path))).Reload()
    assert sorted(found.Tags()["scalars"]) == ["loss", "val_loss"]
    assert [(point.step, point.value) for point in found.Scalars("loss")] == [
        (10, 0.5),
        (300, 0.25),
    ]
    assert found.Scalars("val_loss") == [(3.0, 300, 2.5)]
