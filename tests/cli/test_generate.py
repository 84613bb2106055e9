"""clearhead generate, on a small model with a small vocabulary in a folder."""

import itertools
import json
import os
import shutil
import subprocess
import sys

import pytest
import torch
from language_models import follower

from clearhead.cli import generate as generate_command
from clearhead.cli import main as command
from clearhead.data import WordTokenizer
from clearhead.generation import generate, stream
from clearhead.interop import export, load
from clearhead.models import GPT, GPTConfig, TextEncoder, TextEncoderConfig

CAB = ("--prompt", "cab")

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


@pytest.fixture
def run_here(monkeypatch, capfd):
    """Run a command in this process: (exit code, stdout, stderr)."""

    def run_here(*arguments):
        words = ["clearhead", "generate", *map(str, arguments), "--threads", "1"]
        monkeypatch.setattr(sys, "argv", words)
        with pytest.raises(SystemExit) as stop:
            command.main()
        return (stop.value.code or 0, *capfd.readouterr())

    before = torch.get_num_threads()
    yield run_here
    torch.set_num_threads(before)


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


@pytest.mark.parametrize("tokens", [5, 25])
def test_it_writes_the_prompt_and_what_the_model_says(folder, run_here, tokens):
    loaded = load(folder)
    ids = torch.tensor([loaded.tokenizer.encode("cab")])
    assert ids.tolist() == [[BYTES.index("c"), 256]]
    text = loaded.tokenizer.decode(generate(loaded.model, ids, tokens)[0])
    code, out, err = run_here(folder, *CAB, "--tokens", tokens)
    assert (code, out) == (0, text + "\n"), err
    assert "gpt2 from" in err
    assert f"{tokens} tokens" in err


@pytest.mark.parametrize(
    ("options", "form"),
    [
        (["--tokens", 5], "GPT"),
        (["--tokens", 45], "float"),
        ([], "GPT"),  # 38 fit
        (["--tokens", 5, "--weights", "int8"], "int8"),
    ],
    ids=str,
)
def test_it_packs_the_model_where_that_pays_and_for_int8(
    folder, run_here, monkeypatch, options, form
):
    given = []

    def noted(model, *arguments, **named):
        given.append("GPT" if isinstance(model, GPT) else model.weights)
        return stream(model, *arguments, **named)

    monkeypatch.setattr("clearhead.generation.stream", noted)
    assert run_here(folder, *CAB, *options)[0] == 0
    assert given == [form]


def test_json_is_one_object_and_quiet_is_quiet(folder, run_here):
    options = ("--tokens", 20, "--json", "--quiet", "--weights", "int8")
    _, out, err = run_here(folder, *CAB, *options)
    answer = json.loads(out)
    assert answer["prompt"] == "cab"
    assert answer["tokens"] == 20
    assert isinstance(answer["text"], str)
    assert err == ""


def test_a_seed_gives_the_same_text_in_another_process_and_another_seed_another(folder, run_here):
    options = (folder, *CAB, "--temperature", 1.0, "--top-p", 0.95, "--quiet")
    again, other = (run_here(*options, "--seed", seed)[1] for seed in (1, 2))
    assert run(*options, "--seed", 1).stdout == again != other


CLOSED = [("stderr", False), ("stderr", True), ("stdout", False), ("stdout", True), ("both", False)]


@pytest.mark.slow
@pytest.mark.parametrize(("closed", "fault"), CLOSED)
def test_C02_a_closed_stream_moves_nothing_into_the_other(folder, closed, fault):
    """Python prints to stdout what should go to a stderr that was closed: `2>&-`."""
    signs = {"stderr": "2>&-", "stdout": ">&-", "both": ">&- 2>&-"}[closed]
    options = ["--prompt", "cab", "--tokens", "-9" if fault else "3", "--threads", "1", "--json"]
    command = [sys.executable, "-m", "clearhead.cli.main", "generate", str(folder), *options]
    done = subprocess.run(
        ["sh", "-c", f'exec "$@" {signs}', "sh", *command],
        capture_output=True,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == (2 if fault else 0)
    if closed == "stderr":
        found = json.loads(done.stdout)  # the answer, or the error as JSON
        assert found["exit_code" if fault else "tokens"] == (2 if fault else 3)
    else:
        assert done.stdout == ""
    assert ("error: --tokens" in done.stderr) == (closed == "stdout" and fault)


MISTAKES = [
    ([*CAB, "--tokens", "-1"], "--tokens must not be negative, got -1"),
    (["--prompt", "x" * 41], "--prompt has 41 tokens, but this model reads at most 40; shorten it"),
    (["--prompt", ""], "--prompt is empty and this model has no start token; give it a word"),
    (["--prompt", "a\udcff"], "--prompt has an invalid byte at index 1"),
    ([*CAB, "--temperature", "-1"], "--temperature must be a finite number from 0, got -1.0"),
    ([*CAB, "--temperature", "nan"], "--temperature must be a finite number from 0, got nan"),
    ([*CAB, "--top-k", "0"], "--top-k must be at least 1, got 0"),
    ([*CAB, "--top-p=2"], "--top-p must be a finite number from 0 to 1, got 2.0"),
    ([*CAB, "--min-p", "-1"], "--min-p must be a finite number from 0 to 1, got -1.0"),
    ([*CAB, "--repetition-penalty", "0"], "--repetition-penalty must be more than 0"),
    ([*CAB, "--weights", "int4"], "--weights must be one of 'float', 'int8', got 'int4'"),
    ([*CAB, "--seed", str(2**64)], "--seed must fit 64 bits"),
    (
        [*CAB, "--device", "meta"],
        "--device 'meta' cannot be used on this machine; use auto or cpu",
    ),
    ([*CAB, "--device", "gpu"], "--device 'gpu' cannot be used on this machine; use auto or cpu"),
    ([*CAB, "--device", "xla"], "--device 'xla' cannot be used on this machine; use auto or cpu"),
]


@pytest.mark.parametrize(
    ("options", "sentence"), MISTAKES, ids=lambda x: x[-1] if isinstance(x, list) else ""
)
def test_C01_a_mistake_is_one_line_in_words_of_the_command_line(
    folder, run_here, options, sentence
):
    """And nothing is written before it, not even the prompt."""
    code, out, err = run_here(folder, *options)
    assert (code, out) == (2, "")
    error, hint = err.splitlines()
    assert error.startswith(f"error: {sentence}")
    assert hint == "hint: clearhead generate --help lists its arguments and options"


def test_a_device_that_is_not_there_is_told(folder, run_here, monkeypatch):
    def not_compiled(*_, **__):
        raise AssertionError("Torch not compiled with CUDA enabled")

    monkeypatch.setattr("clearhead.runtime.torch.empty", not_compiled)
    code, out, err = run_here(folder, *CAB, "--device", "cuda")
    assert (code, out) == (2, "")
    assert err.startswith("error: --device 'cuda' cannot be used on this machine; use auto or cpu")


def test_int8_is_for_the_cpu_only(folder, run_here, monkeypatch):
    monkeypatch.setattr("clearhead.runtime.pick_device", lambda _: torch.device("cuda"))
    code, out, err = run_here(folder, *CAB, "--weights", "int8", "--device", "cuda")
    assert (code, out) == (2, "")
    assert err.startswith("error: --weights int8 is for the CPU, not cuda; add --device cpu\n")


def test_F07_weights_with_a_nan_are_told_before_anything_is_written(folder, run_here, tmp_path):
    from clearhead.files.tensors import read_tensors, write_tensors

    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    tensors = read_tensors(folder / "model.safetensors")
    tensors["transformer.ln_f.weight"][3] = torch.nan
    write_tensors(tmp_path / "model.safetensors", tensors)
    code, out, err = run_here(tmp_path, *CAB)
    assert (code, out) == (2, "")
    assert "tensor 'transformer.ln_f.weight' has nan at its number 3" in err


@pytest.mark.parametrize("option", [["--top-k", "5"], ["--top-p", "0.9"], ["--min-p", "0.1"]])
def test_an_option_that_does_nothing_is_said(folder, run_here, option):
    _, out, err = run_here(folder, *CAB, "--tokens", "2", *option)
    assert f"note: {option[0]} does nothing at --temperature 0" in err
    assert out == run_here(folder, *CAB, "--tokens", "2")[1]
    assert "note" not in run_here(folder, *CAB, "--tokens", "2", *option, "--temperature", "1")[2]
    assert run_here(folder, *CAB, "--tokens", "2", *option, "--quiet")[2] == ""


def test_more_tokens_than_the_model_reads_at_once_are_written_and_it_is_said(folder, run_here):
    loaded = load(folder)
    ids = torch.tensor([loaded.tokenizer.encode("cab")])
    text = loaded.tokenizer.decode(generate(loaded.model, ids, 99, roll=True)[0])
    code, out, err = run_here(folder, *CAB, "--tokens", 99)
    assert (code, out) == (0, text + "\n")
    assert "note: the model reads at most 40 tokens at once; whenever they are full" in err
    assert "note" not in run_here(folder, *CAB, "--tokens", 38)[2]
    assert run_here(folder, *CAB, "--tokens", 99, "--quiet")[2] == ""


def test_probs_shows_the_five_likeliest_tokens_of_each_step(folder, run_here):
    loaded = load(folder)
    ids = torch.tensor([loaded.tokenizer.encode("cab")])
    with torch.no_grad():
        p, best = loaded.model(ids)[0, -1].softmax(-1).topk(5)
    code, out, err = run_here(folder, *CAB, "--tokens", 3, "--probs", "--quiet")
    assert (code, out) == (0, run_here(folder, *CAB, "--tokens", 3)[1])
    assert len(err.splitlines()) == 3
    assert f"{loaded.tokenizer.decode([int(best[1])])!r} {p[1]:.3f}" in err.splitlines()[0]
    found = json.loads(run_here(folder, *CAB, "--tokens", 3, "--probs", "--json")[1])
    assert len(found["probs"]) == found["tokens"] == 3
    assert [share for _, share in found["probs"][0]] == pytest.approx(p.tolist(), abs=1e-5)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run of a GPT that reads 8 characters."""
    from clearhead.models import GPTConfig
    from clearhead.training import Recipe, TrainingConfig, train
    from clearhead.training.tasks.characters import CharacterData

    folder = tmp_path_factory.mktemp("trained")
    (folder / "text.txt").write_text("the cat sat on the mat. " * 20)
    recipe = Recipe(
        "letters",
        data=CharacterData(str(folder / "text.txt"), context=8, sample_length=20),
        model=GPTConfig(1, 8, d_model=12, n_layers=1, n_heads=2),
        training=TrainingConfig(steps=2, batch_size=4, log_every=1, eval_every=2, save_every=2),
    )
    return train(recipe, folder / "runs", threads=1).run


def test_a_run_folder_is_as_good_as_a_folder_of_weights(trained, run_here):
    code, out, err = run_here(trained, "--prompt", "the", "--tokens", 30)
    assert code == 0, err
    assert out.startswith("the")
    assert len(out) == 3 + 30 + 1
    assert f"letters from {trained}, after step 2: " in err
    code, _, err = run_here(trained, "--prompt", "THE")
    assert code == 2
    assert "'T' at index 0, which is not in the alphabet" in err


def test_a_run_writes_on_when_its_data_have_gone(trained, run_here, tmp_path):
    """And refuses by name what of the folder itself is not there."""
    whole = run_here(trained, "--prompt", "the", "--tokens", 5)
    text = trained.parents[1] / "text.txt"
    away = text.rename(text.with_suffix(".away"))
    try:
        assert run_here(trained, "--prompt", "the", "--tokens", 5)[:2] == whole[:2]
    finally:
        away.rename(text)
    copy = shutil.copytree(trained, tmp_path / "copy")
    (copy / "tokenizer.json").write_text("{}")
    code, out, err = run_here(copy, "--prompt", "the")
    assert (code, out) == (2, "")
    assert "copy/tokenizer.json is not a tokenizer of characters" in err


def test_a_run_of_a_model_that_does_not_write_is_told(tmp_path, run_here):
    from small_runs import small_run

    code, out, err = run_here(small_run(tmp_path), "--prompt", "a")
    assert (code, out) == (2, "")
    assert "substring-0001 is a SequenceClassifier, which does not write text" in err


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("stories15m", "stories15m is not here yet; run clearhead data get stories15m"),
        ("storys15m", "storys15m is not there; did you mean stories15m?"),
        ("a/b", "a/b is not there; give a folder with config.json"),
        ("mnist", "mnist is a data set, not a model; the models are stories15m and minilm"),
    ],
)
def test_a_name_that_is_no_model_is_told(run_here, tmp_path, monkeypatch, name, sentence):
    monkeypatch.setenv("CLEARHEAD_HOME", str(tmp_path))
    code, out, err = run_here(name)
    assert (code, out) == (2, "")
    assert sentence in err.splitlines()[0]


def test_a_model_that_does_not_write_is_told(folder, monkeypatch):
    from clearhead.cli import generate as verb

    encoder = TextEncoder(TextEncoderConfig(257, 40, 12, n_layers=1, n_heads=3))
    loaded = load(folder)
    silent = type(loaded)(encoder, loaded.tokenizer, loaded.report)
    wordless = type(loaded)(loaded.model, None, loaded.report)
    for given, sentence in ((silent, "does not write text"), (wordless, "has no tokenizer")):
        monkeypatch.setattr("clearhead.interop.load", lambda _, given=given: given)
        with pytest.raises(ValueError, match=sentence):
            verb._load(str(folder), trust=False)


def test_a_prompt_is_a_beginning_without_the_mark_of_the_end():
    tokenizer = WordTokenizer(["a", "b"], end=True)
    assert tokenizer.encode("a b")[-1] == tokenizer.end_id
    assert generate_command._encode_prompt(tokenizer, "a b") == tokenizer.encode("a b")[:-1]


# Models of words


@pytest.fixture
def words(monkeypatch):
    """A model that knows which word comes after each; what comes after `say` is unknown."""
    tokenizer = WordTokenizer(
        ["We", "say", ",", "'t", "is", "o'er", "the", "boys", "'", "end", "Ann", "."], end=True
    )
    order = [
        "<start>",
        "We",
        "say",
        ",",
        "'t",
        "is",
        "o'er",
        "the",
        "boys",
        "'",
        "end",
        ".",
        "<end>",
    ]
    ids = [tokenizer.tokens.index(word) for word in order]
    following = list(range(tokenizer.vocab_size))
    for word, after in itertools.pairwise(ids):
        following[word] = after
    model = follower(following)
    with torch.no_grad():
        model.head.weight[tokenizer.unk_id, tokenizer.tokens.index("say")] = 10.0
        model.head.weight[tokenizer.tokens.index("Ann"), tokenizer.unk_id] = 10.0
    monkeypatch.setattr(generate_command, "_load", lambda *_: (model, tokenizer, "a model"))
    return tokenizer


def test_words_are_written_as_prose_without_unk_unless_asked(words, run_here):
    for more in ((), ("--repetition-penalty", 1.1), ("--temperature", 0.01), ("--weights", "int8")):
        code, out, _ = run_here("any", "--prompt", "We", "--tokens", 30, *more)
        assert (code, out) == (0, "We say, 'tis o'er the boys' end.\n")
        _, out, _ = run_here("any", "--prompt", "We", "--tokens", 30, *more, "--json")
        assert json.loads(out)["text"] == " say, 'tis o'er the boys' end."
        assert json.loads(out)["tokens"] == 11
    _, out, _ = run_here("any", "--prompt", "We", "--tokens", 2, "--unknown")
    assert out == "We say <unk>\n"


@pytest.mark.parametrize("n", range(12))
def test_prose_that_ends_anywhere_is_that_of_all_its_words(words, run_here, n):
    """An apostrophe waits for the next word, but not for ever."""
    all_words = ["We", "say", ",", "'t", "is", "o'er", "the", "boys", "'", "end", "."]
    expected = words.detokenize(words.ids_of(all_words[: n + 1]))
    _, out, _ = run_here("any", "--prompt", "We", "--tokens", n)
    assert out == expected + "\n"
