"""Files of shards: any number of processes writes them, any other number reads them, to the bit."""

import json
import random
import shutil
from contextlib import contextmanager

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from hypothesis import given, settings
from hypothesis import strategies as st
from runs.tiny_runs import memory_folder
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard, distribute_tensor
from torch.testing._internal.distributed.fake_pg import FakeStore

from clearhead.files.reading import BadFile
from clearhead.files.tensors import read_metadata, read_tensors, write_tensors
from clearhead.parallel.shards import read_like, read_shapes, read_whole, take_rows, write_shard
from clearhead.runs.checkpoint import (
    Checkpoint,
    check,
    hash_file,
    load,
    load_newest,
    name_shard,
    remove_old,
    save,
)

WHOLE = {
    "long": torch.arange(35.0).view(7, 5) / 3,
    "short": torch.tensor([0.1, -0.0]),  # fewer rows than there are processes
    "picture": torch.arange(3 * 2 * 2 * 2, dtype=torch.float64).view(3, 2, 2, 2),
    "empty": torch.zeros(0, 3),
    "half": torch.ones(4, 3, dtype=torch.bfloat16) / 3,
}
PLAIN = {"step": torch.tensor(3.0), "seen": torch.arange(4), "none": torch.zeros(0, 3)}


@contextmanager
def rank_of(rank, size):
    """This process is the one of this rank, as far as sharding goes; it cannot ask the others."""
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=size)
    try:
        yield init_device_mesh("cpu", (size,))
    finally:
        dist.destroy_process_group()


def shard(tensors, mesh):
    return {
        name: distribute_tensor(tensor, mesh, [Shard(0)], src_data_rank=None)
        for name, tensor in tensors.items()
    }


def write(folder, size, sharded=WHOLE, plain=PLAIN, kind="model"):
    """The files of all ranks, in a shuffled order."""
    files = []
    for rank in range(size):
        path = folder / name_shard(kind, rank, size)
        with rank_of(rank, size) as mesh:
            write_shard(path, {**shard(sharded, mesh), **plain}, is_first=rank == 0)
        files.append(path)
    random.Random(0).shuffle(files)
    return files


def same(one, other):
    assert one.keys() == other.keys()
    for name, tensor in one.items():
        assert (tensor.dtype, tensor.shape) == (other[name].dtype, other[name].shape), name
        bits = [t.reshape(-1).view(torch.uint8) for t in (tensor, other[name])]
        assert torch.equal(*bits), name  # also the sign of -0
    return True


@pytest.fixture
def folder():
    with memory_folder() as path:
        yield path


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_shards_of_any_number_of_processes_are_read_whole_and_in_any_other_number(folder, size):
    files = write(folder, size)
    assert same(read_whole(files), {**WHOLE, **PLAIN})
    shapes = {name: (tensor.shape, tensor.dtype) for name, tensor in read_shapes(files).items()}
    assert shapes == {name: (t.shape, t.dtype) for name, t in {**WHOLE, **PLAIN}.items()}
    for other in (1, 2, 3, 4, 5):
        for rank in range(other):
            with rank_of(rank, other) as mesh:
                like = shard({name: torch.zeros_like(t) for name, t in WHOLE.items()}, mesh)
                found = read_like(files, {**like, **PLAIN})
                wanted = shard(WHOLE, mesh)
                for name in WHOLE:
                    assert isinstance(found[name], DTensor)
                    assert found[name].shape == WHOLE[name].shape
                    assert found[name].stride() == WHOLE[name].stride()
                    like[name].copy_(found[name])  # as a model and an optimizer load it
                parts = {name: tensor.to_local() for name, tensor in like.items()}
                assert same(parts, {name: tensor.to_local() for name, tensor in wanted.items()})
                assert same({name: found[name] for name in PLAIN}, PLAIN)


@given(
    rows=st.integers(1, 13),
    columns=st.lists(st.integers(1, 4), max_size=2),
    sizes=st.tuples(st.integers(1, 6), st.integers(1, 6)),
)
@settings(max_examples=25)
def test_every_row_has_its_place(rows, columns, sizes):
    tensor = torch.randn(rows, *columns)
    with memory_folder() as folder:
        files = write(folder, sizes[0], {"w": tensor}, {})
        assert torch.equal(read_whole(files)["w"], tensor)
        parts = []
        for rank in range(sizes[1]):
            with rank_of(rank, sizes[1]) as mesh:
                like = shard({"w": torch.zeros_like(tensor)}, mesh)
                parts.append(read_like(files, like)["w"].to_local())
        assert torch.equal(torch.cat(parts), tensor)


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_each_process_takes_its_rows_of_a_whole_tensor(size):
    """As PyTorch shards it, which torch 2.6 cannot do without sending what all have."""
    for rank in range(size):
        with rank_of(rank, size) as mesh:
            like = shard({name: torch.zeros_like(t) for name, t in WHOLE.items()}, mesh)
            found = {name: take_rows(WHOLE[name], like[name]) for name in WHOLE}
            wanted = shard(WHOLE, mesh)
            assert [t.shape for t in found.values()] == [t.shape for t in WHOLE.values()]
            parts = {name: tensor.to_local() for name, tensor in found.items()}
            assert same(parts, {name: tensor.to_local() for name, tensor in wanted.items()})
            alone = [part.untyped_storage().nbytes() for part in parts.values()]
            assert alone == [part.nbytes for part in parts.values()]  # not the whole beside it


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
def test_the_reader_of_pytorch_reads_these_files_and_ours_reads_those_of_pytorch(folder):
    write(folder, 3)
    found = {name: torch.zeros_like(tensor) for name, tensor in {**WHOLE, **PLAIN}.items()}
    reader = dcp.HuggingFaceStorageReader(str(folder))
    dcp.load(found, storage_reader=reader, no_dist=True)
    assert same(found, {**WHOLE, **PLAIN})

    theirs = folder / "theirs"
    writer = dcp.HuggingFaceStorageWriter(str(theirs), save_distributed=True)
    dcp.save(dict(WHOLE), storage_writer=writer, no_dist=True)
    assert same(read_whole(sorted(theirs.glob("*.safetensors"))), WHOLE)


def test_a_file_of_one_process_alone_is_read_as_one_shard(folder):
    write_tensors(folder / "model.safetensors", {**WHOLE, **PLAIN})
    with rank_of(1, 2) as mesh:
        like = shard(WHOLE, mesh)
        found = read_like([folder / "model.safetensors"], like)
        assert torch.equal(found["long"].to_local(), WHOLE["long"][4:])


def test_a_tensor_of_another_shape_is_left_for_the_model_to_refuse(folder):
    files = write(folder, 2, {"w": torch.ones(4, 3)}, {})
    with rank_of(0, 2) as mesh:
        found = read_like(files, shard({"w": torch.ones(5, 3)}, mesh))
    assert found["w"].shape == (4, 3)


# Files that do not fit


def rewrite(path, change):
    """The same file with another description of its shards."""
    metadata, tensors = read_metadata(path), read_tensors(path)
    info = json.loads(metadata["DCP_SHARDING_INFO"])
    change(info, tensors)
    write_tensors(path, tensors, metadata={**metadata, "DCP_SHARDING_INFO": json.dumps(info)})


def move(rows):
    def change(info, tensors):
        info["long"]["saved_offsets"][0] = rows

    return change


FAULTS = {
    "a hole": (move(5), "'long': row 4 is missing before this shard"),
    "an overlap": (move(3), "'long': row 3 is there a second time in this shard"),
    "no rows": (lambda info, t: info.pop("long"), "must name each tensor of the file"),
    "another name": (lambda info, t: info.update(new={}), "must name each tensor of the file"),
    "not a number": (move("4"), r"has the offsets \['4', 0\]; expected the number"),
    "a negative row": (move(-1), r"has the offsets \[-1, 0\]; expected the number"),
    "true": (move(True), r"has the offsets \[True, 0\]; expected the number"),
    "too few": (lambda info, t: info["long"].update(saved_offsets=[4]), "axis: 2 in all"),
    "columns": (lambda info, t: info["long"].update(saved_offsets=[4, 1]), "axis: 2 in all"),
    "no offsets": (lambda info, t: info["long"].clear(), "has the offsets None"),
    "no entry": (lambda info, t: info.update(long=3), "has the offsets None"),
    "other columns": (
        lambda info, t: t.update(long=t["long"][:, :4].contiguous()),
        "'long' does not fit the shard in",
    ),
    "another dtype": (lambda info, t: t.update(long=t["long"].double()), "does not fit the shard"),
    "a number": (
        lambda info, t: (t.update(long=torch.tensor(1.0)), info.update(long={"saved_offsets": []})),
        "'long': row 1 is missing before this shard|is there a second time|does not fit",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_shards_that_do_not_fit_are_refused_in_words(folder, name):
    change, sentence = FAULTS[name]
    files = write(folder, 2)
    rewrite(folder / name_shard("model", 1, 2), change)
    for read in (read_whole, read_shapes, lambda files: read_like(files, {})):
        with pytest.raises(BadFile, match=sentence):
            read(files)


@pytest.mark.parametrize("text", ["[1]", "{", '{"a": 1, "a": 2}', "[" * 5000])
def test_a_description_that_is_none_is_refused(folder, text):
    path = folder / "x.safetensors"
    write_tensors(path, {"a": torch.ones(2)}, metadata={"DCP_SHARDING_INFO": text})
    with pytest.raises(BadFile, match="DCP_SHARDING_INFO"):
        read_whole([path])


# In a checkpoint


def save_shards(folder, step, size=2):
    """A checkpoint as `size` processes write it together."""

    def write_all(staged):
        files = [file for kind in ("model", "optimizer") for file in write(staged, size, kind=kind)]
        return {file.name: hash_file(file) for file in files}

    state = {"logged": step, "best": 0.5}
    return save(folder, Checkpoint(step, "run", {}, {}, state), write_all)


def test_a_sharded_checkpoint_loads_on_one_process(folder):
    path = save_shards(folder, 4)
    assert json.loads((path / "manifest.json").read_text())["format"] == 3
    assert sorted(file.name for file in path.iterdir()) == [
        "manifest.json",
        "model-shard-00001-of-00002.safetensors",
        "model-shard-00002-of-00002.safetensors",
        "optimizer-shard-00001-of-00002.safetensors",
        "optimizer-shard-00002-of-00002.safetensors",
        "state.json",
    ]
    found = load(path, "run")
    assert same(found.model, {**WHOLE, **PLAIN})
    assert same(found.optimizer, {**WHOLE, **PLAIN})
    assert (found.step, found.state, found.path) == (4, {"logged": 4, "best": 0.5}, path)
    assert load(path, "run", with_optimizer=False).optimizer == {}


def test_one_wrong_byte_anywhere_is_found_and_the_checkpoint_before_is_used(folder):
    save_shards(folder, 3, size=3)
    path = save_shards(folder, 4)
    for file in sorted(path.iterdir()):
        data = file.read_bytes()
        words = None if file.name == "manifest.json" else file.name  # depend on the byte
        for place in (8, len(data) // 2, len(data) - 1):
            file.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
            with pytest.raises(BadFile, match=words):
                check(path)
            notices = []
            assert load_newest(folder, "run", notices.append).step == 3
            assert len(notices) == 1
        file.write_bytes(data)
    assert load_newest(folder, "run").step == 4


@pytest.mark.parametrize("gone", ["model-shard-00002-of-00002.safetensors", "state.json"])
def test_a_missing_shard_is_named(folder, gone):
    path = save_shards(folder, 4)
    (path / gone).unlink()
    with pytest.raises(BadFile, match=f"{gone} is missing"):
        check(path)


def test_shards_of_another_checkpoint_do_not_belong(folder):
    path, other = save_shards(folder, 4), save_shards(folder, 5, size=3)
    name = "model-shard-00003-of-00003.safetensors"
    shutil.copy(other / name, path / name)
    with pytest.raises(BadFile, match=f"{name} does not belong there"):
        check(path)


def test_old_sharded_checkpoints_are_removed(folder):
    for step in (1, 2, 3, 4):
        save_shards(folder, step, size=step)
    remove_old(folder, 4, keep=2, best=1)
    assert sorted(path.name for path in folder.iterdir()) == [
        *("step-0000001", "step-0000003", "step-0000004"),
    ]


def test_a_manifest_must_list_all_shards(folder):
    from clearhead.files.strict_json import hash_json, write_json

    path = save_shards(folder, 4)
    manifest = json.loads((path / "manifest.json").read_text())
    del manifest["sha256"], manifest["files"]["model-shard-00002-of-00002.safetensors"]
    write_json(path / "manifest.json", {**manifest, "sha256": hash_json(manifest)})
    with pytest.raises(BadFile, match="does not list the shards and the state of a checkpoint"):
        check(path)
