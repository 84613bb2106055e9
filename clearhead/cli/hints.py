"""The hint after an error: the command that helps.

clearhead train substring --lr 0.1      hint: a setting is written without dashes: training.lr=…
clearhead train substring model.n=1     hint: clearhead recipes show substring lists its settings
clearhead eval runs                     hint: clearhead runs lists your runs
"""

import ast
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from clearhead.config import find_nearest
from clearhead.training.recipes import RECIPES

PACKAGE = Path(__file__).parents[1]
# The files whose configs are the sections of a recipe. They are parsed, because importing them
# would import torch.
SECTIONS = {
    "training": "training/recipe.py",
    "model": "models/*.py",
    "data": "training/tasks/*.py",
}
HINTS = {  # by a part of the error message
    "there is no recipe": "clearhead recipes list names the recipes",
    "a recipe is missing": "clearhead recipes list names the recipes",
    "is not a run folder": "clearhead runs lists your runs",
    "is a folder of runs": "clearhead runs lists your runs",
    "Missing argument 'RUN'": "clearhead runs lists your runs",
    "program must be": "clearhead program list names the programs",
    "experiment must be": "clearhead lab lists the experiments",
    "data set must be": "clearhead data list names the data sets",
    "is not here yet": "clearhead data list says which data sets are here",
    "no part of a known exercise": (
        "clearhead check --list names the exercises; --map EXERCISE=NAME tells which definition "
        "to check"
    ),
    "there is no model": "clearhead runs lists your runs; clearhead studio --demo needs no model",
}
REPAIR = (
    "correct the file; to resume a run that started with the old version, add --force; "
    "--debug shows the traceback"
)
REPAIR_COPY = (
    "correct the file; clearhead train FILE.py --resume RUN --force resumes RUN with it; "
    "--debug shows the traceback"
)


MISSING_NAME = {  # by the verb
    "clearhead data get": "clearhead data list names the data sets",
    "clearhead recipes show": "clearhead recipes list names the recipes",
    "clearhead recipes copy": "clearhead recipes list names the recipes",
    "clearhead program show": "clearhead program list names the programs",
    "clearhead program run": "clearhead program list names the programs",
}
NUMBERS = {"valid integer": "a whole number", "valid number": "a number"}


def describe_usage_error(error: Any, arguments: Sequence[str] = ()) -> str:
    """The sentence of an error that the option parser found."""
    if (option := getattr(error, "option_name", None)) and hasattr(error, "possibilities"):
        command = error.ctx.command if error.ctx else None
        if any(option in _list_options(verb) for verb in _list_verbs(command)):
            return f"{option} must follow the verb: clearhead VERB … {option}"
        known = {name.lstrip("-"): name for name in _list_options(command)}
        near = find_nearest(option.lstrip("-"), known, cutoff=0.6)
        return f"No such option: {option}" + (f"; did you mean {known[near]}?" if near else "")
    sentence = str(error.format_message())
    option = next(iter(getattr(getattr(error, "param", None), "opts", ())), "")
    for words, kind in NUMBERS.items():
        if words in sentence and option.startswith("--"):
            return f"{option} must be {kind}, got {_find_value(option, arguments)!r:.40}"
    return sentence


def _list_options(command: Any) -> list[str]:
    return [name for param in getattr(command, "params", ()) for name in param.opts]


def _list_verbs(command: Any) -> list[Any]:
    return list(getattr(command, "commands", {}).values())


def choose_hint(error: Exception, arguments: Sequence[str], command: Any) -> str:
    """The hint for an error; command: the parser's object for `clearhead` itself."""
    path = _find_verb(arguments, command)
    sentence = error.format_message() if hasattr(error, "format_message") else str(error)
    if type(error).__name__ == "OwnCodeError":  # importing the class would import torch
        return REPAIR if path == ["clearhead", "train"] else REPAIR_COPY
    if path[1:] in (["train"], ["launch"], ["plan"]):
        recipe = next((word for word in arguments[1:] if word in RECIPES), None)
        option = getattr(error, "option_name", None)
        if option in _list_options(command.commands["launch"]):
            value = _find_value(option, arguments)
            start = f"clearhead launch {option} {value} train {recipe or 'RECIPE'}"
            return f"an option of launch stands before train: {start}"
        if option and (setting := find_setting(option)):
            value = _find_value(option, arguments)
            show = f"clearhead recipes show {recipe or 'RECIPE'}"
            return f"a setting is written without dashes: {setting}={value}; {show} lists all"
        if recipe and any("=" in word for word in arguments) and not sentence.startswith("--"):
            return f"clearhead recipes show {recipe} lists its settings"
    if "Missing argument 'NAME'" in sentence and " ".join(path) in MISSING_NAME:
        return MISSING_NAME[" ".join(path)]
    for words, hint in HINTS.items():
        if words in sentence:
            return hint
    words = "lists the verbs" if len(path) == 1 else "lists its arguments and options"
    return f"{' '.join(path)} --help {words}"


def _find_verb(arguments: Sequence[str], command: Any) -> list[str]:
    """The verbs that were given, such as clearhead data get."""
    path = ["clearhead"]
    for argument in arguments:
        command = getattr(command, "commands", {}).get(argument)
        if command is None:
            break
        path.append(argument)
    return path


def find_setting(option: str) -> str | None:
    """The setting that an option such as --lr or --batch-size means: training.lr."""
    name = option.lstrip("-").replace("-", "_")
    settings = {field: section for section in SECTIONS for field in _list_fields(section)}
    near = find_nearest(name, settings, cutoff=0.8)
    return f"{settings[near]}.{near}" if near else None


def _list_fields(section: str) -> Iterator[str]:
    """The names of all settings of a section, read from the source."""
    for path in PACKAGE.glob(SECTIONS[section]):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and node.name.endswith(("Config", "Data")):
                for line in node.body:
                    if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
                        yield line.target.id


def _find_value(option: str, arguments: Sequence[str]) -> str:
    """The value that was given to an option: --lr=0.1 or --lr 0.1."""
    for word, after in zip(arguments, [*arguments[1:], "VALUE"], strict=True):
        name, equals, value = word.partition("=")
        if name == option:
            return value if equals else after
    return "VALUE"
