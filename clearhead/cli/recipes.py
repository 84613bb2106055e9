"""clearhead recipes list | show NAME | copy NAME | new FILE: recipes, ours and your own.

`copy` and `new` write a Python file with a function that returns a Recipe. `clearhead train
FILE.py` calls the function with the name of the file or, if there is none, its only function.
"""

import shlex
from inspect import isfunction
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from clearhead.cli.interrupts import exit_on_interrupt
from clearhead.cli.options import Json, print_json, print_table
from clearhead.config import write_text
from clearhead.files.reading import open_regular, prefix_errors, quote
from clearhead.files.writing import write_new_text
from clearhead.runs.folder import MAX_CODE
from clearhead.training.recipes import RECIPES, check_name, read_source, read_start

if TYPE_CHECKING:
    from clearhead.runs.own_code import Kinds
    from clearhead.training import Recipe

app = typer.Typer(help="List, show, copy and write recipes.", rich_markup_mode=None)
Name = Annotated[str, typer.Argument(metavar="NAME", help=f"One of {', '.join(RECIPES)}.")]


@app.callback(invoke_without_command=True)
def _default_to_list(context: typer.Context) -> None:
    """List, show, copy and write recipes."""
    if context.invoked_subcommand is None:
        list_recipes()


@app.command("list")
def list_recipes(json: Json = False) -> None:
    """List the recipes with their training time, result and task."""
    if json:
        facts = ("about", "minutes", "result")
        print_json(
            {name: {fact: getattr(r, fact) for fact in facts} for name, r in RECIPES.items()}
        )
        return
    print_table((name, r.minutes, r.result, r.about) for name, r in RECIPES.items())
    typer.echo("\nmeasured on 2 cores; CPU: CPU time, while other programs ran")
    typer.echo("run one: clearhead train NAME")


@app.command("show")
def show(name: Name, json: Json = False) -> None:
    """Print all settings of a recipe, in the form that train accepts."""
    check_recipe(name)
    values = build_recipe(name).to_dict()
    if json:
        print_json(values)
        return
    for section in ("data", "model", "training"):
        for key, value in values[section].items():
            if key != "kind":
                typer.echo(f"{section}.{key}={write_text(value)}")


@app.command("copy")
def copy(
    name: Name,
    out: Annotated[Path, typer.Option("--out", help="Folder for the copy.")] = Path(),
    json: Json = False,
) -> None:
    """Copy a recipe into a Python file of your own. Change it, then train it."""
    check_name(name)
    path = out / f"{name.replace('-', '_')}.py"
    _write_file(path, read_source(name), "give another --out", json)


@app.command("new")
def new(
    path: Annotated[
        Path, typer.Argument(metavar="FILE", help="The file to write, such as parity.py.")
    ],
    json: Json = False,
) -> None:
    """Write a start file for your own recipe. It has its own data, task, model and attention."""
    if path.suffix != ".py" or not path.stem.isidentifier():
        raise ValueError(
            f"FILE must be the name of a Python module such as parity.py, got {quote(path)}"
        )
    _write_file(path, read_start(path.stem), "give another name", json)


def _write_file(path: Path, text: str, way_out: str, json: bool) -> None:
    """Write a new file, and print the next step."""
    write_new_text(path, text, way_out)
    if json:
        print_json({"path": str(path)})
        return
    typer.echo(f"{path}\nnext: change it, then clearhead train {shlex.quote(str(path))}")


def is_file(name: str) -> bool:
    """Whether this is a file of the user, not the name of one of our recipes."""
    return name.endswith(".py")


def check_recipe(name: str) -> None:
    """Refuse a name that is not a recipe, before anything slow is imported."""
    if is_file(name):
        open_regular(name, MAX_CODE).close()
    elif Path(name, "config.json").is_file():
        raise ValueError(f"{quote(name)} is a run, not a recipe; continue it with --resume")
    else:
        check_name(name)


def build_recipe(name: str) -> "Recipe":
    """Build the recipe with this name, or the recipe of a user's own file."""
    with exit_on_interrupt():
        from clearhead.runs.own_code import OwnCode, collect_kinds, explain_errors
        from clearhead.training import Recipe, find_recipe

    if not is_file(name):
        return find_recipe(name)
    path, module = Path(name), OwnCode.read(name).run()
    with explain_errors(path):
        made = _find_function(path, module)()
    if not isinstance(made, Recipe):
        raise ValueError(f"{quote(name)}: its function must return a Recipe, got {made!r:.80}")
    with prefix_errors(name):  # as a run's config.json will be read
        return Recipe.from_dict(made.to_dict(), collect_kinds(module))


def read_kinds(name: str) -> "Kinds":
    """The classes that a run of a user's own file may name."""
    from clearhead.runs.own_code import OwnCode, collect_kinds

    return collect_kinds(OwnCode.read(name).run())


def _find_function(path: Path, module: ModuleType) -> Any:
    """The function of a file that returns its recipe."""
    own = [name for name in vars(module) if _is_own_function(module, name)]
    listed = getattr(module, "__all__", own)
    name = path.stem if hasattr(module, path.stem) or len(listed) != 1 else listed[0]
    if not callable(getattr(module, name, None)):
        raise ValueError(f"{quote(path)} must have a function {name}() that returns a Recipe")
    return getattr(module, name)


def _is_own_function(module: ModuleType, name: str) -> bool:
    """Whether a module defines a public function of this name, and did not import it."""
    value = getattr(module, name)
    return isfunction(value) and value.__module__ == module.__name__ and not name.startswith("_")
