"""F10: a file changed at random loads or is refused by BadFile; nothing else ever happens."""

import random
import shutil
import struct

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers

from clearhead.files import BadFile
from clearhead.interop import find_tokenizer, load

N_CASES = 80
LLAMA2C = struct.pack("<7i", 4, 2, 1, 2, 2, 260, 3)
LLAMA2C += bytes(4 * (260 * 4 + (8 + 4 * 16 + 3 * 8) + 4 + 3 * 2))


def mangled(data, draw):
    """Some bytes changed, a piece lost, doubled or moved."""
    data = bytearray(data)
    for _ in range(draw.choice((1, 1, 2, 5))):
        place = draw.randrange(len(data) + 1)
        length = draw.choice((1, 1, 2, 4, 30))
        kind = draw.randrange(5)
        piece = bytes(data[place : place + length])
        if kind == 0:
            data[place : place + length] = draw.randbytes(len(piece))
        elif kind == 1:
            del data[place : place + length]
        elif kind == 2:
            data[place:place] = piece
        elif kind == 3:
            data[place : place + 1] = draw.choice((b"{", b"]", b'"', b"9", b"-", b",", b"\xff"))
        else:
            data[place : place + 4] = struct.pack("<i", draw.choice((-1, 0, 1 << 24, -(1 << 31))))
    return bytes(data)


def try_all(path, read):
    original, draw, refused = path.read_bytes(), random.Random(path.name), 0
    for _ in range(N_CASES):
        data = mangled(original, draw)
        path.write_bytes(data)
        try:
            read()
        except BadFile as fault:
            refused += 1
            if len(str(fault)) > 1500 or "\n" in str(fault):
                pytest.fail(f"{fault} for {data!r:.500}")
    return refused


@pytest.mark.parametrize("case", ["gpt2", "llama", "bert", "vit"])
@pytest.mark.parametrize("file", ["config.json", "model.safetensors"])
def test_F10_folders(oracles, tmp_path, case, file):
    folder = tmp_path / case
    shutil.copytree(oracles[case].folder, folder)
    assert try_all(folder / file, lambda: load(folder)) > 3


def test_F10_an_index(oracles, tmp_path):
    oracles["gpt2"].model.save_pretrained(tmp_path, max_shard_size="3KB")
    assert try_all(tmp_path / "model.safetensors.index.json", lambda: load(tmp_path)) > 30


def test_F10_llama2c(tmp_path):
    path = tmp_path / "model.bin"
    path.write_bytes(LLAMA2C[:200])  # so that the header is hit often
    assert try_all(path, lambda: load(path)) == N_CASES
    path.write_bytes(LLAMA2C)
    assert torch.isfinite(load(path).model.embedding.weight).all()
    assert try_all(path, lambda: load(path)) > 30


@pytest.mark.parametrize("kind", ["bytes", "words"])
def test_F10_tokenizer_json(tmp_path, kind):
    if kind == "bytes":
        ids = {sign: i for i, sign in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
        made = Tokenizer(models.BPE(ids | {"ab": 256}, [("a", "b")]))
        made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        made.save(str(tmp_path / "tokenizer.json"), pretty=False)
    else:
        (tmp_path / "vocab.txt").write_text("[UNK]\n[CLS]\n[SEP]\nab\n##c\n")
        find_tokenizer(tmp_path).save(tmp_path / "own.json")
    path = tmp_path / ("tokenizer.json" if kind == "bytes" else "vocab.txt")
    assert try_all(path, lambda: find_tokenizer(tmp_path)) > 10


def test_F10_tokenizer_bin(tmp_path):
    names = [b"<unk>", b"<s>", b"</s>", *(f"<0x{i:02X}>".encode() for i in range(256)), b"a", b"ab"]
    entries = (struct.pack("<fi", 1.0, len(name)) + name for name in names)
    path = tmp_path / "tokenizer.bin"
    path.write_bytes(struct.pack("<i", 6) + b"".join(entries))
    assert try_all(path, lambda: find_tokenizer(tmp_path)) > 30
