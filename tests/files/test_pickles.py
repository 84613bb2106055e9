"""A pickled batch is read to the byte, and nothing in any pickle is run.

`pickle` – allowed here, never in the package – says what the instructions mean.
"""

import pickle
import random

import numpy as np
import pytest
from picture_files import python2_batch, some_pictures, text

from clearhead.data.cifar10 import read_cifar10
from clearhead.files.pickles import Call, Name, read_byte_table, read_pickle
from clearhead.files.reading import BadFile

TABLE, LABELS = some_pictures()


def read_one(tmp_path, data):
    (tmp_path / "test_batch").write_bytes(data)
    return read_cifar10(tmp_path, "test")


def test_the_instructions_mean_what_python_says_they_mean():
    data = python2_batch(TABLE, LABELS, n_names=1300)
    theirs = pickle.loads(data, encoding="bytes")
    ours = read_pickle(data, "it")
    assert ours.keys() == theirs.keys()
    assert {key: ours[key] for key in ours if key != b"data"} == {
        key: theirs[key] for key in theirs if key != b"data"
    }
    assert np.array_equal(read_byte_table(ours[b"data"], "it"), theirs[b"data"])
    assert len(ours[b"filenames"]) == 1300


def test_a_name_stays_a_string_and_a_call_stays_a_record():
    value = read_pickle(b"\x80\x02cnumpy\ndtype\nU\x02u1\x85R.", "it")
    assert isinstance(value, Call)
    assert (value.name, value.arguments, value.state) == (Name("numpy.dtype"), (b"u1",), None)


def payloads(marker):
    """Files that run a command, each by another way, if anything runs at all."""
    command = f"touch {marker}".encode()
    python = f"open({str(marker)!r}, 'w').close()".encode()

    def calls(module, name, argument):
        return b"c" + module + b"\n" + name + b"\n" + text(argument) + b"\x85R"

    harmless = python2_batch(TABLE, LABELS)
    return {
        "os.system": b"\x80\x02" + calls(b"os", b"system", command) + b".",
        "posix.system": b"\x80\x02" + calls(b"posix", b"system", command) + b".",
        "eval": b"\x80\x02" + calls(b"builtins", b"eval", python) + b".",
        "inside a batch": harmless.replace(
            b"U\x09filenames", calls(b"os", b"system", command) + b"0U\x09filenames"
        ),
        "an array of another maker": harmless.replace(
            b"cnumpy.core.multiarray\n_reconstruct\n", b"cnumpy.core.multiarray\nfromstring\n"
        ),
        "gadget in numpy": b"\x80\x02"
        + calls(b"numpy.testing._private.utils", b"runstring", python),
        "attribute by getattr": b"\x80\x02cbuiltins\ngetattr\ncos\nU\x06system\x86R.",
        "protocol 4 name": b"\x80\x02\x8c\x02os\x8c\x06system\x93.",
        "instance": b"\x80\x02(" + text(command) + b"ios\nsystem\n.",
        "object": b"\x80\x02(cos\nsystem\n" + text(command) + b"o.",
        "new object": b"\x80\x02cos\nsystem\n)\x81.",
        "registered": b"\x80\x02\x82\x01.",
        "persistent": b"\x80\x02" + text(command) + b"Q.",
    }


def test_F08_no_payload_is_ever_run(tmp_path):
    marker = tmp_path / "marker"
    for case, data in payloads(marker).items():
        with pytest.raises(BadFile, match="nothing in it was run") as refusal:
            read_one(tmp_path, data)
        if case == "os.system":
            assert "names os.system, which no batch of CIFAR-10 needs" in str(refusal.value)
    assert not marker.exists()


def test_F08_the_first_payload_would_have_run(tmp_path):
    """Without this, the test above would pass for payloads that do nothing."""
    marker = tmp_path / "marker"
    pickle.loads(payloads(marker)["os.system"], encoding="bytes")
    assert marker.exists()


@pytest.mark.parametrize("nested", [b"]" * 90_000 + b"a" * 89_999, b"]q\x00h\x00a", b"\x85" * 3])
def test_deep_and_circular_values_end_in_a_sentence(tmp_path, nested):
    with pytest.raises(BadFile, match="test_batch"):
        read_one(tmp_path, b"\x80\x02" + nested + b".")


def test_F10_a_changed_batch_is_read_or_refused():
    chance = random.Random(0)
    whole = python2_batch(TABLE[:1], LABELS[:1], n_names=2)
    places = [*range(300), *range(len(whole) - 100, len(whole))]  # where the instructions are
    outcomes = {"read": 0, "refused": 0}
    for _ in range(2000):
        data = bytearray(whole)
        for _ in range(chance.randint(1, 5)):
            data[chance.choice(places)] = chance.choice([chance.randrange(256), *b"(tqRbcu.K"])
        if chance.random() < 0.1:
            del data[chance.randrange(len(data)) :]
        try:
            batch = read_pickle(bytes(data), "it")
            read_byte_table(
                batch[b"data"] if type(batch) is dict and b"data" in batch else None, "it"
            )
            outcomes["read"] += 1
        except BadFile:
            outcomes["refused"] += 1
    assert min(outcomes.values()) > 50  # the changes are neither harmless nor hopeless


def swapped(old, new):
    data = python2_batch(TABLE, LABELS)
    assert data.count(old) == 1
    return data.replace(old, new)


BAD_PYTHON = {
    "empty": (b"", "is cut off: 2 bytes should follow"),
    "other protocol": (pickle.dumps({}, 4), "not a pickle of protocol 2"),
    "no labels": (swapped(b"U\x06labels", b"U\x06babels"), "it has no data and labels"),
    "no dictionary": (b"\x80\x02].", "it has no data and labels"),
    "cut off": (python2_batch(TABLE, LABELS)[:5000], "is cut off: 9,216 bytes should follow"),
    "continues": (python2_batch(TABLE, LABELS) + b".", "continues after its end"),
    "label 10": (python2_batch(TABLE, [1, 10, 2]), "label 1 is 10, not a number from 0 to 9"),
    "label of no number": (swapped(b"]q\x05(K", b"]q\x05(NK"), "label 0 is NoneType"),
    "labels missing": (python2_batch(TABLE, [1, 2]), "has 3 pictures but 2 labels"),
    "other width": (python2_batch(TABLE.reshape(6, -1), LABELS), "pictures of 1,536 bytes, not 3,"),
    "other numbers": (swapped(b"U\x02u1", b"U\x02f8"), "no complete table of bytes"),
    "columns first": (swapped(b"b\x89T", b"b\x88T"), "no complete table of bytes"),
    "shape that lies": (swapped(b"(K\x01K\x03M", b"(K\x01K\x04M"), "no complete table of bytes"),
    "no picture": (python2_batch(TABLE[:0], []), "no complete table of bytes"),
    "unknown instruction": (
        swapped(b"NNNJ", b"I01\nJ"),
        "has the instruction b'I', which no batch of CIFAR-10 contains",
    ),
    "a key twice": (swapped(b"U\x09filenames", b"U\x04data"), "has bytes as a key, or a key twice"),
    "never stored": (b"\x80\x02h\x07.", "recalls value 7, which was never stored"),
    "no value": (b"\x80\x02.", "takes a value that is not there"),
    "no mark": (b"\x80\x02t.", "looks for a mark that is not there"),
    "below a mark": (b"\x80\x02}(K\x01u.", "has a key without a value"),
    "list as a key": (b"\x80\x02}]K\x01s.", "has list as a key"),
    "append to a tuple": (b"\x80\x02)K\x01a.", "has tuple where list belongs"),
    "call of a number": (b"\x80\x02K\x01)R.", "has int where Name belongs"),
    "state of a number": (b"\x80\x02K\x01)b.", "has int where Call belongs"),
    "endless name": (b"\x80\x02c" + b"x" * 5000, "has a name that does not end"),
    "endless": (b"\x80\x02" + b"N" * 1_000_001, "has more than 1,000,000 instructions"),
}


@pytest.mark.parametrize("case", BAD_PYTHON)
def test_a_bad_python_batch_is_refused(tmp_path, case):
    data, words = BAD_PYTHON[case]
    with pytest.raises(BadFile, match=words) as refusal:
        read_one(tmp_path, data)
    assert "test_batch" in str(refusal.value)
