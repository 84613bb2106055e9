"""Wrong answers for several exercises, given to three judges: which do they accept, which name?

    python tests/side_by_side.py [--torch-judge FOLDER]     prints the table of docs/check.md

clearhead check    as a student gets it, with the name of the mistake
snapshots          tests in the manner of CS336, restated: one fixed input of one size, d_v = d_k,
                   values to 1e-6; where the course tries large logits, they are tried here, too
torch-judge        its own tests; FOLDER holds the unpacked wheel of
                   pip download --no-deps torch-judge==0.1.1

The wrong answers are those of the corpus, each mistake in one style. A judge is asked only about a
style whose right form it accepts, and torch-judge, which knows no masks, about no mask.
"""

import argparse
import importlib
import inspect
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import torch
from torch import nn

from clearhead.exercises.comparison import compare_results
from clearhead.exercises.contracts import find_exercise
from clearhead.exercises.corpus import CorpusEntry, read_corpus
from clearhead.exercises.definitions import find_definition, read_definitions
from clearhead.exercises.exercise import Case
from clearhead.exercises.sandbox.direct import DirectSession
from clearhead.exercises.self_test import check_source
from clearhead.exercises.student import CannotCall, Student

PAD = 1
MASK_WORDS = ("mask", "length", "hide", "allow", "padding", "empty_row")
TASKS = {"attention": "attention", "multi_head_attention": "mha"}
TASKS |= {"kernel_attention": "linear_attention", "patch_embedding": "vit_patch"}


# Tests in the manner of CS336: the cases


def draw_softmax() -> Iterator[dict]:
    x = torch.randn(3, 5, 7)
    for shifted in (x, x + 100):
        yield {"x": shifted, "valid_lens": torch.tensor([3, 7, 5])}


def draw_attention() -> Iterator[dict]:
    q, k, v = (torch.randn(4, 12, 64) for _ in range(3))
    mask = (torch.rand(4, 12, 12) > 0.4) | torch.eye(12, dtype=torch.bool)
    yield {"q": q, "k": k, "v": v}
    yield {"q": q, "k": k, "v": v, "mask": mask}


def draw_heads() -> Iterator[dict]:
    x = torch.randn(4, 12, 64)
    yield {"q": x, "k": x, "v": x, "n_heads": 4}
    mask = torch.ones(12, 12, dtype=torch.bool).tril()
    yield {"q": x, "k": x, "v": x, "n_heads": 4, "mask": mask}


def draw_layer() -> Iterator[dict]:
    yield {"x": torch.randn(4, 12, 64)}


def draw_positions() -> Iterator[dict]:
    yield {"x": torch.randn(4, 12, 64), "n": 12, "d": 64}


def draw_loss() -> Iterator[dict]:
    tokens, logits = torch.randint(PAD + 1, 5, (4, 8)), torch.randn(4, 8, 5)
    mask = torch.arange(8) < torch.tensor([8, 6, 8, 5])[:, None]
    for scaled in (logits, 1000 * logits):
        yield {"logits": scaled, "tokens": tokens.where(mask, PAD), "mask": mask, "pad": PAD}


def draw_schedule() -> Iterator[dict]:
    for step in range(25):
        yield {"step": step, "warmup": 7, "total": 21, "peak": 1.0}


def draw_pictures() -> Iterator[dict]:
    yield {"images": torch.randn(4, 3, 32, 32)}


def draw_kernel() -> Iterator[dict]:
    q, k, v = (torch.randn(4, 12, 16) for _ in range(3))
    yield {"q": q, "k": k, "v": v}


DRAWN: dict[str, tuple[Callable[[], Iterator[dict]], dict]] = {
    "masked_softmax": (draw_softmax, {}),
    "attention": (draw_attention, {}),
    "multi_head_attention": (draw_heads, {}),
    "sinusoidal_positions": (draw_positions, {"d": 64, "max_len": 50, "dropout": 0.5}),
    "transformer_layer": (draw_layer, {}),
    "language_model_loss": (draw_loss, {"pad": PAD}),
    "warmup_schedule": (draw_schedule, {}),
    "patch_embedding": (draw_pictures, {}),
    "kernel_attention": (draw_kernel, {}),
}


def find_sizes(name: str) -> dict:
    """Arguments of the constructor: those of the exercise's own cases, with our numbers."""
    from clearhead.exercises.draw import Draw

    own = next((dict(c.sizes) for c in find_exercise(name).cases(Draw(1)) if c.sizes), {})
    known = {**DRAWN[name][1], "d_model": 64, "d": 64, "n_heads": 4, "d_ff": 256, "dropout": 0.0}
    known |= {"image_size": 32, "side": 32, "patch_size": 8, "p": 8, "channels": 3, "d_out": 64}
    return {key: known.get(key, value) for key, value in own.items()}


def pass_snapshots(entry: CorpusEntry) -> bool | None:
    """Whether a submission gives the values of the formula for these inputs; nothing else counts.

    None if the tests do not know its arguments: valid lengths, where they give a mask.
    """
    exercise = find_exercise(entry.exercise)
    torch.manual_seed(4)
    sizes = find_sizes(entry.exercise)
    student = make_student(entry)
    has_mask = False
    for inputs in DRAWN[entry.exercise][0]():
        if "phi" in exercise.parameters and "q" in inputs:
            inputs = {**inputs, **_find_map(exercise)}
        case = Case("…", next(iter(exercise.terms)), inputs, sizes)
        try:
            answer = exercise.ask(student, case)
        except CannotCall:
            return False
        if answer is None:  # it has no such argument
            continue
        has_mask |= bool({"mask", "valid_lens"} & set(inputs))
        if answer.error is not None or answer.results is None or not answer.choices:
            return False
        used = [exercise.results({**each}) for each in answer.choices]
        if all(compare_results(answer.results, each, 1e-6) for each in used):
            return False
    return None if is_about_mask(entry) and not has_mask else True


def is_about_mask(entry: CorpusEntry) -> bool:
    return any(word in entry.expected for word in MASK_WORDS)


def _find_map(exercise) -> dict:
    from clearhead.exercises.draw import Draw

    case = next(iter(exercise.cases(Draw(1))))
    return {name: x for name, x in case.inputs.items() if name not in ("q", "k", "v")}


def make_student(entry: CorpusEntry) -> Student:
    exercise = find_exercise(entry.exercise)
    found = find_definition(exercise.names, read_definitions(entry.source), is_asked=True)
    session = DirectSession()
    session.request("load", cells=[[1, entry.source]], helpers=exercise.helpers)
    return Student(session, found.name, found.is_class)


# torch-judge


def pass_torch_judge(entry: CorpusEntry) -> bool | None:
    """Whether a submission passes the tests of torch-judge; None about masks, which it has not."""
    if is_about_mask(entry):
        return None
    task = importlib.import_module(f"torch_judge.tasks.{TASKS[entry.exercise]}").TASK
    exercise = find_exercise(entry.exercise)
    found = find_definition(exercise.names, read_definitions(entry.source), is_asked=True)
    names: dict = {}
    exec(entry.source, names)
    own, asked = names[found.name], task["function_name"]
    is_class = asked[0].isupper()
    if found.is_class and not is_class:
        own = own(0.0) if found.parameters else own()
    for test in task["tests"]:
        code = test["code"].replace("{fn}", asked)
        try:
            torch.manual_seed(0)
            exec(code, {asked: adapt(own) if is_class else own})
        except Exception:
            return False
    return True


def adapt(kind: type[nn.Module]) -> Callable[..., nn.Module]:
    """A constructor as torch-judge calls it; its layers also under the names it looks for."""

    def build(*sizes, **named):
        values = [*sizes, *named.values()]
        n = len(inspect.signature(kind).parameters)
        built = kind(*values[:n]).eval()
        needed = [
            p for p in inspect.signature(built.forward).parameters.values() if p.default is p.empty
        ]
        if len(needed) == 4:  # valid_lens
            forward = built.forward
            built.forward = lambda q, k, v: forward(q, k, v, None)
        layers = [each for each in built.children() if isinstance(each, nn.Linear)]
        if len(layers) == 4:
            vars(built).update(zip(("W_q", "W_k", "W_v", "W_o"), layers, strict=True))
        if not hasattr(built, "num_patches") and len(values) == 4:
            built.num_patches = (values[0] // values[1]) ** 2
        return built

    return build


# The table


def choose(name: str, good_styles: set[str]) -> list[CorpusEntry]:
    """One wrong answer for each mistake, in a style that torch-judge accepts if there is one."""
    found: dict[str, CorpusEntry] = {}
    for entry in read_corpus(name):
        is_first = entry.expected not in found
        if is_first or (
            entry.style in good_styles and found[entry.expected].style not in good_styles
        ):
            found[entry.expected] = entry
    return [entry for entry in found.values() if entry.expected != "honest"]


def compare(name: str, has_torch_judge: bool) -> tuple[Counter, dict[str, list[str]]]:
    """The counts of one exercise, and the wrong answers that each judge accepted."""
    honest = [entry for entry in read_corpus(name) if entry.expected == "honest"]
    asks = {"snapshots": pass_snapshots}
    if has_torch_judge and name in TASKS:
        asks["torch-judge"] = pass_torch_judge
    styles = {
        judge: {e.style for e in honest if is_accepted(ask, e)} for judge, ask in asks.items()
    }
    count, accepted = Counter(), {"clearhead": [], **{judge: [] for judge in asks}}
    for entry in choose(name, styles.get("torch-judge", set())):
        own = check_source(name, entry.source)
        count["wrong"] += 1
        count["clearhead named"] += " + ".join(own.mistakes) == entry.expected
        if own.verdict == "passed":
            accepted["clearhead"].append(entry.expected)
        for judge, ask in asks.items():
            verdict = is_accepted(ask, entry) if entry.style in styles[judge] else None
            count[f"{judge} tried"] += verdict is not None
            if verdict:
                accepted[judge].append(entry.expected)
    return count, accepted


def is_accepted(ask: Callable[[CorpusEntry], bool | None], entry: CorpusEntry) -> bool | None:
    """The verdict of a judge; None if it is not asked."""
    with warnings.catch_warnings(action="ignore"), suppress(Exception):
        return ask(entry)
    return False


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--torch-judge", type=Path, help="the folder of the unpacked wheel")
    parser.add_argument("exercises", nargs="*", default=list(DRAWN))
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    if chosen.torch_judge:
        sys.path.insert(0, str(chosen.torch_judge))
    print("| exercise | wrong answers | check: accepted, named | snapshots | torch-judge |")
    print("|---|---|---|---|---|")
    total, notes = Counter(), []
    for name in chosen.exercises:
        count, accepted = compare(name, bool(chosen.torch_judge))
        count.update({f"{judge} accepted": len(found) for judge, found in accepted.items()})
        total += count
        notes += [f"{name}, {j}: {', '.join(found)}" for j, found in accepted.items() if found]
        print(write_row(name, count), flush=True)
    print(write_row("all", total))
    print("\nAccepted:", *notes, sep="\n")


def write_row(name: str, count: Counter) -> str:
    others = (
        f"{count[f'{judge} accepted']} of {count[f'{judge} tried']}"
        if count[f"{judge} tried"]
        else "–"
        for judge in ("snapshots", "torch-judge")
    )
    own = f"{count['clearhead accepted']}, {count['clearhead named']}"
    return f"| {name} | {count['wrong']} | {own} | {' | '.join(others)} |"


if __name__ == "__main__":
    main()
