"""clearhead generate, on a small model with a small vocabulary in a folder."""

import json
import subprocess
import sys

import pytest
import torch

from clearhead.generation import generate
from clearhead.interop import export, load
from clearhead.models import GPT, GPTConfig, TextEncoder, TextEncoderConfig

# GPT-2 writes a byte that can be seen as itself, the others as the characters from 256 on.
SEEN = [*range(33, 127), *range(161, 173), *range(174, 256)]
BYTES = [*map(chr, SEEN), *(chr(256 + i) for i in range(256 - len(SEEN)))]


def run(*arguments, **environment):
    return subprocess.run(
        [sys.executable, "-m", "clearhead.cli.main", "generate", *map(str, arguments)],
        capture_output=True,
        text=True,
        env={"OMP_NUM_THREADS": "1", "PATH": "/usr/bin:/bin", **environment},
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A GPT of 257 tokens: the bytes, and "ab" as one."""
    torch.manual_seed(0)
    place = tmp_path_factory.mktemp("weights") / "a small model"
    config = GPTConfig(257, 40, 12, n_layers=2, n_heads=3, activation="gelu_tanh", tied=False)
    model = GPT(config).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    with torch.no_grad():
        model.head.weight[94:256] = 0.0  # so that it writes ASCII
    export(model, place)
    vocabulary = {token: i for i, token in enumerate([*BYTES, "ab"])}
    (place / "vocab.json").write_text(json.dumps(vocabulary))
    (place / "merges.txt").write_text("#version: 0.2\na b\n")
    return place


@pytest.mark.parametrize("tokens", [5, 25])  # with the modules, and packed
def test_it_writes_the_prompt_and_what_the_model_says(folder, tokens):
    loaded = load(folder)
    ids = torch.tensor([loaded.tokenizer.encode("cab")])
    assert ids.tolist() == [[BYTES.index("c"), 256]]
    text = loaded.tokenizer.decode(generate(loaded.model, ids, tokens)[0])
    done = run(folder, "--prompt", "cab", "--tokens", tokens)
    assert done.returncode == 0, done.stderr
    assert done.stdout == text + "\n"
    assert "gpt2 from" in done.stderr
    assert f"{tokens} tokens" in done.stderr


def test_json_is_one_object_and_quiet_is_quiet(folder):
    done = run(folder, "--prompt", "cab", "--tokens", 20, "--json", "--quiet", "--weights", "int8")
    answer = json.loads(done.stdout)
    assert answer["prompt"] == "cab"
    assert answer["tokens"] == 20
    assert isinstance(answer["text"], str)
    assert done.stderr == ""


def test_a_seed_gives_the_same_text_again_and_another_seed_another(folder):
    options = (folder, "--prompt", "cab", "--temperature", 1.0, "--top-p", 0.95, "--quiet")
    first, again, other = (run(*options, "--seed", seed).stdout for seed in (1, 1, 2))
    assert first == again != other


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--prompt", "cab", "--tokens", "99"], "n_tokens is 99, but max_len is 40"),
        (["--prompt", ""], "--prompt is empty and this model has no start token"),
        (["--prompt", "cab", "--temperature", "-1"], "temperature must be a finite number"),
        (["--prompt", "cab", "--weights", "int4"], "weights must be one of 'float', 'int8'"),
    ],
)
def test_a_mistake_is_one_line(folder, options, sentence):
    done = run(folder, *options)
    assert done.returncode == 2
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr


def test_a_name_that_is_nothing_is_told(tmp_path):
    done = run("stories15m", "--prompt", "x", CLEARHEAD_HOME=str(tmp_path))
    assert done.returncode == 2
    assert "stories15m is not here yet; run clearhead data get stories15m" in done.stderr
    assert (
        "storys is not there; give a folder" in run("storys", CLEARHEAD_HOME=str(tmp_path)).stderr
    )


def test_a_model_that_does_not_write_is_told(folder, tmp_path, monkeypatch):
    from clearhead.cli import generate as command

    encoder = TextEncoder(TextEncoderConfig(257, 40, 12, n_layers=1, n_heads=3))
    loaded = load(folder)
    silent = type(loaded)(encoder, loaded.tokenizer, loaded.report)
    wordless = type(loaded)(loaded.model, None, loaded.report)
    for given, sentence in ((silent, "does not write text"), (wordless, "has no tokenizer")):
        monkeypatch.setattr("clearhead.interop.load", lambda _, given=given: given)
        with pytest.raises(ValueError, match=sentence):
            command._load(str(folder), "cpu")
