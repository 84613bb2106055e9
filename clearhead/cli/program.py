"""clearhead program list | show NAME | run NAME INPUT: programs compiled into weights.

`list` and `show` need no weights, so they import no torch.
"""

from fractions import Fraction
from typing import TYPE_CHECKING, Annotated, Any

import typer

from clearhead.cli.interrupts import exit_on_interrupt
from clearhead.cli.options import Json, print_json, print_table
from clearhead.programs.catalogue import PROGRAMS, find_program

if TYPE_CHECKING:
    from clearhead.programs import Part, Plan

app = typer.Typer(help="Programs compiled into weights.", rich_markup_mode=None)
Name = Annotated[str, typer.Argument(metavar="NAME", help=f"One of {', '.join(PROGRAMS)}.")]
Input = Annotated[str, typer.Argument(metavar="INPUT", help="The tokens, such as 3142.")]
MaxLen = Annotated[
    int | None, typer.Option("--max-len", help="The most tokens of an input; each has a default.")
]
Vocabulary = Annotated[
    str | None, typer.Option("--vocabulary", help="The tokens of the input, such as abc.")
]
Sharpness = Annotated[
    float, typer.Option("--sharpness", help="How much attention prefers what is selected.")
]
Steps = Annotated[
    bool, typer.Option("--steps", help="Also print what every head and layer of the model wrote.")
]
VERBS = {"copy": "copy to", "mean": "mean to", "count": "count to", "map": ""}


@app.callback(invoke_without_command=True)
def _default_to_list(context: typer.Context) -> None:
    """Programs compiled into weights."""
    if context.invoked_subcommand is None:
        list_programs()


@app.command("list")
def list_programs(json: Json = False) -> None:
    """List the programs."""
    if json:
        print_json({name: each._asdict() for name, each in PROGRAMS.items()})
        return
    print_table((name, each.about) for name, each in PROGRAMS.items())
    typer.echo("\nread one: clearhead program show NAME")


@app.command("show")
def show(
    name: Name,
    vocabulary: Vocabulary = None,
    max_len: MaxLen = None,
    sharpness: Sharpness = 40.0,
    json: Json = False,
) -> None:
    """Print the layers of a program: what each head selects, what each feed-forward computes."""
    plan = _make_plan(name, vocabulary, max_len, sharpness)
    if json:
        print_json(_list_facts(name, plan))
        return
    typer.echo(f"{find_program(name).about}\n")
    print_table(_format_part(part, plan) for part in plan.circuit)
    typer.echo(
        f"\nn_layers {plan.n_layers}, n_heads {plan.n_heads}, d_head {plan.d_head}, "
        f"d_model {len(plan.directions)}, d_ff {plan.d_ff}"
        f"\ntokens {' '.join(map(str, plan.vocabulary))}, at most {plan.max_len}; "
        f"error at most {plan.error_bound:.2g} at sharpness {plan.sharpness:g}"
        f"\nrun it: clearhead program run {name} '{find_program(name).sample}'"
    )


@app.command("run")
def run(
    name: Name,
    text: Input,
    vocabulary: Vocabulary = None,
    max_len: MaxLen = None,
    sharpness: Sharpness = 40.0,
    steps: Steps = False,
    json: Json = False,
) -> None:
    """Run a program: by its definition, and by a transformer with compiled weights."""
    plan = _make_plan(name, vocabulary, max_len, sharpness)
    from clearhead.programs.compiler import CompiledProgram, check_input
    from clearhead.programs.interpreter import interpret

    check_input(plan, text)
    exact = interpret(plan.program, text)
    with exit_on_interrupt():
        from clearhead.programs.weights import build_model
    compiled = CompiledProgram(plan, build_model(plan))
    computed = compiled(text)
    is_equal = all(map(compiled.agrees, exact, computed))
    written = compiled.steps(text) if steps else {}
    if json:
        print_json(
            {
                "program": name,
                "input": text,
                "interpreter": [_plain(value) for value in exact],
                "model": computed,
                "agree": is_equal,
            }
            | ({"steps": written} if steps else {})
        )
    else:
        rows = {"input": text, "interpreter": exact, "model": computed}
        print_table((key, *map(_format, row)) for key, row in rows.items())
        if steps:
            typer.echo()
            print_table(_list_steps(plan, written))
        typer.echo("\nthey agree" if is_equal else "\nthey differ")
    raise typer.Exit(0 if is_equal else 1)


def _list_steps(plan: "Plan", written: dict[str, list[Any]]) -> list[tuple[str, ...]]:
    """A row for each variable: where it was written, its label, its value at each token."""
    places = {label: part.name for part in plan.circuit for label in part.writes}
    return [
        (places.get(label, "embedding"), label, *map(_format, values))
        for label, values in written.items()
    ]


def _make_plan(name: str, vocabulary: str | None, max_len: int | None, sharpness: float) -> "Plan":
    from clearhead.programs.plan import make_plan

    found = find_program(name)
    return make_plan(
        found.build(),
        found.vocabulary if vocabulary is None else vocabulary,
        found.max_len if max_len is None else max_len,
        sharpness=sharpness,
    )


def _list_facts(name: str, plan: "Plan") -> dict[str, Any]:
    parts = [
        {
            "layer": part.layer,
            "head": part.head,
            "module": part.module,
            "kind": part.kind,
            "about": part.about,
            "reads": part.reads,
            "writes": part.writes,
        }
        for part in plan.circuit
    ]
    return {
        "program": name,
        "vocabulary": plan.vocabulary,
        "max_len": plan.max_len,
        "n_layers": plan.n_layers,
        "n_heads": plan.n_heads,
        "d_head": plan.d_head,
        "d_ff": plan.d_ff,
        "d_model": len(plan.directions),
        "sharpness": plan.sharpness,
        "error_bound": plan.error_bound,
        "directions": plan.directions,
        "circuit": parts,
    }


def _format_part(part: "Part", plan: "Plan") -> tuple[str, str]:
    """("layer 1, head 0", "select rank == indices, copy to sorted")."""
    if not part.is_used:
        return part.name, "not used"
    written = ", ".join(part.writes)
    if part.head is None:
        n_units = len(plan.list_units(part.layer))
        return part.name, f"compute {written} ({n_units} units)"
    return part.name, f"{part.about}, {VERBS[part.kind]} {written}"


def _format(value: Any) -> str:
    """A value as a word: a fraction as 1/3, a computed number rounded."""
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _plain(value: Any) -> Any:
    return float(value) if isinstance(value, Fraction) else value
