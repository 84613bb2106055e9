"""clearhead plan: the table, the line to type, the JSON object, and mistakes."""

import json
import shlex

import pytest
from small_runs import assert_a_mistake

from clearhead.cli import plan as command
from clearhead.training.recipes import RECIPES

LARGE = ["model.vocab_size=50257", "model.d_model=1600", "model.n_layers=48", "model.n_heads=25"]
LARGE += ["data.context=1024", "training.batch_size=64", "training.optimizer=adamw"]
MEMORY = ["moment", "weights", "gradient", "optimizer", "buffers", "activations", "total"]


def typed(out):
    """The line to type."""
    (line,) = [line for line in out.splitlines() if line.startswith("type")]
    return line.partition(": ")[2]


def test_the_table_has_a_row_for_each_mode_and_ends_with_the_line_to_type(run):
    code, out, err = run("plan", "vit-digits", "--gpus", 8, "--gpu", "a100")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == "vit-digits: 155,178 parameters; examples of a step: 100"
    assert lines[1] == "8 × a100, 40 GB each; products in bfloat16"
    assert [line.split()[0] for line in lines if line][3:6] == ["mode", "exact", "ddp"]
    assert sum(line.startswith("fsdp ") for line in lines) == 2
    assert "computed, not measured: clearhead was never run on this card" in out
    assert "40 % of the peak in the data sheet" in out
    assert lines[-1] == (
        "type: clearhead launch --processes 8 train vit-digits training.parallel=ddp"
    )


def test_one_process_needs_no_launch(run):
    out = run("plan", "vit-digits", "model.n_layers=2")[1]
    assert typed(out) == "clearhead train vit-digits model.n_layers=2"
    assert "\nnone " in out
    assert "\nddp " not in out


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_has_a_plan(run, name):
    words = ["model.vocab_size=65"] if name in ("shakespeare-char", "dialogue") else []
    code, out, err = run("plan", name, *words, "--gpus", 4, "--gpu", "h100", "--json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert found["recipe"] == name
    assert list(found["modes"]) == ["exact", "ddp", "fsdp"]
    for cost in found["modes"].values():
        assert list(cost) == ["passes", "examples", "memory", "seconds", "fits"]
        assert list(cost["memory"]) == MEMORY
        parts = [cost["memory"][part] for part in MEMORY[1:]]
        assert sum(parts[:-1]) == parts[-1] > 0
        seconds = cost["seconds"]
        assert list(seconds) == ["passes", "update", "exchange", "hidden", "total"]
        assert 0 <= seconds["hidden"] <= seconds["exchange"]


def test_the_json_object(run):
    found = json.loads(run("plan", "vit-digits", "--gpus", 2, "--gpu", "l4", "--json")[1])
    assert found["parameters"] == 155_178
    assert (found["gpus"], found["precision"], found["measured"]) == (2, "bfloat16", False)
    assert found["gpu"]["name"] == "l4"
    assert found["gpu"]["memory"] == 24e9
    assert (found["recommended"], found["changes"]) == ("ddp", [])
    assert shlex.split(found["command"])[:4] == ["clearhead", "launch", "--processes", "2"]


def test_a_model_that_fits_only_in_parts_gets_fsdp_and_checkpoints(run):
    code, out, _ = run("plan", "shakespeare-char", *LARGE, "--gpus", 8, "--gpu", "a100")
    assert code == 0
    assert "does not fit" in out
    assert "nothing fits as it is; with training.checkpoint_activations=true it takes" in out
    assert typed(out).endswith("training.parallel=fsdp training.checkpoint_activations=true")


def test_a_smaller_batch_replaces_the_given_one(run):
    given = ["training.batch_size=96", "training.accumulate=1", "training.workers=1"]
    out = run("plan", "shakespeare-char", *LARGE[:-2], *given, "--gpu", "h200")[1]
    words = "training.batch_size=12 training.accumulate=8"
    assert f"with {words} it takes" in out
    assert typed(out).endswith(f"data.context=1024 training.workers=1 {words}")


def test_nothing_fits(run):
    words = [word.replace("batch_size=64", "batch_size=1") for word in LARGE]
    code, out, _ = run("plan", "shakespeare-char", *words, "training.accumulate=1",
                       "training.workers=1", "--gpu", "t4")  # fmt: skip
    assert code == 1
    assert "type:" not in out
    assert "nothing fits: the least is" in out
    assert "take a smaller model, shorter inputs, more GPUs or larger ones" in out
    assert "no instructions for bfloat16, so take training.precision=float32" in out


def test_a_mode_that_fits_is_named_beside_the_one_that_the_recipe_names(run):
    words = ["shakespeare-char", *LARGE, "training.parallel=ddp", "--gpus", 8, "--gpu"]
    out = run("plan", *words, "a100-80gb")[1]
    changes = "training.batch_size=32 training.accumulate=4"
    assert f"as it is, ddp does not fit (fsdp would); with {changes} it takes" in out
    assert "nothing fits" not in out
    code, out, _ = run("plan", *words, "rtx-4090", "training.batch_size=8")
    assert code == 1
    assert "no smaller batch is small enough; training.parallel=fsdp fits, or take a smaller" in out
    assert "nothing fits" not in out


def test_several_machines(run):
    out = run("plan", "vit-digits", "--gpus", 24, "--gpu", "H100")[1]
    assert "\ntype on each machine, with its own --node-rank: clearhead launch" in out
    assert typed(out).startswith(
        "clearhead launch --nodes 3 --node-rank 0 --rendezvous HOST:29500 --processes 8 train"
    )
    assert "25 GB/s between processes" in out
    assert "--processes 6 " in typed(run("plan", "vit-digits", "--gpus", 12)[1])


def test_exact_is_kept_and_gets_enough_chunks(run):
    out = run("plan", "vit-digits", "training.parallel=exact", "--gpus", 8)[1]
    assert typed(out) == (
        "clearhead launch --processes 8 train vit-digits training.parallel=exact training.chunks=8"
    )
    out = run("plan", "vit-digits", "training.parallel=exact", "--gpus", 4)[1]
    assert "chunks" not in typed(out)


def test_this_machine(run):
    code, out, _ = run("plan", "identity-sgd", "--gpu", "cpu", "--gpus", 2)
    assert code == 0
    assert "\n2 processes on this machine, " in out
    assert "GFLOP/s that a core was just measured at" in out
    assert "The memory is that of tensors; on Linux a process was measured at up to 1.6" in out
    assert "with ddp and fsdp only 1 of 2 processes learn from a batch: it has 1 example;" in out
    assert "products in float32" in out


def test_one_process_of_this_machine(run):
    out = run("plan", "identity-sgd", "--gpu", "cpu")[1]
    assert "\n1 process on this machine, " in out
    assert "type: clearhead train identity-sgd" in out


def test_a_recipe_of_ones_own(run, tmp_path):
    path = tmp_path / "parity.py"
    run("recipes", "new", path)
    code, out, _ = run("plan", path, "--gpus", 2)
    assert code == 0
    assert typed(out) == f"clearhead launch --processes 2 train {path} training.parallel=ddp"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["nosuch"], "there is no recipe 'nosuch'"),
        (["vit-digits", "--gpu", "a10o"], "--gpu must be one of v100, t4, "),
        (["vit-digits", "--gpus", "0"], "--gpus must be 1 to 10,000, got 0"),
        (["vit-digits", "--gpus", "10001"], "--gpus must be 1 to 10,000, got 10,001"),
        (["vit-digits", "--gpus", "two"], "--gpus must be a whole number, got 'two'"),
        (["vit-digits", "lr"], "a change is written section.name=value, got 'lr'"),
        (["vit-digits", "training.parallel=all"], "parallel must be one of"),
        (["vit-digits", "training.lrr=1"], "the nearest is 'training.lr'"),
        (["shakespeare-char"], "to plan without it, give model.vocab_size=…"),
    ],
)
def test_mistakes(run, arguments, sentence):
    code, out, err = run("plan", *arguments)
    assert_a_mistake(code, out, err)
    assert sentence in err


def test_hints_name_the_settings(run):
    assert (
        "clearhead recipes show vit-digits lists its" in run("plan", "vit-digits", "model.n=1")[2]
    )
    err = run("plan", "vit-digits", "--batch-size", "8")[2]
    assert "a setting is written without dashes: training.batch_size=8" in err


def test_numbers_for_people():
    assert [command.format_bytes(n) for n in (0, 7, 999, 1500, 2.5e6, 40e9, 3e12)] == [
        "–", "7 B", "999 B", "1.5 kB", "2.5 MB", "40 GB", "3 TB",
    ]  # fmt: skip
    assert [command.format_seconds(s) for s in (0, 1e-9, 2.5e-6, 0.0123, 1.5, 90)] == [
        "–", "< 1 µs", "2.5 µs", "12.3 ms", "1.5 s", "90 s",
    ]  # fmt: skip
    assert [command.format_share(x) for x in (1e-5, 0.0123, 1.5)] == ["< 0.1 %", "1.2 %", "150.0 %"]
