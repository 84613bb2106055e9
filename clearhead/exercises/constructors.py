"""How a student's class gets its sizes: as arguments, from a config, or from constants of its file.

    MultiHeadAttention(d_model, n_heads)       arguments, found by name, then by position
    CausalSelfAttention(config)                one object with config.n_embd, or config["n_embd"]
    Head(head_size)                            n_embd = 64 at the top of the file
    EncoderLayer(size, self_attn, dropout)     an object of another class of the file

An exercise that accepts more than arguments has HELPERS among its helpers.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from clearhead.exercises.definitions import drop_condition

CONFIG = "config cfg conf args hparams params"

HELPERS = '''
class _Config(dict):
    """Every size under each of its usual names, as an attribute and as a key."""

    def __missing__(self, name):
        usual = {"drop": 0.5, "bias": True, "eps": 1e-5, "range": 0.02, "std": 0.02, "block": 64,
                 "ctx": 64, "context": 64, "len": 64, "positions": 64, "vocab": 11, "layer": 2}
        for word, value in usual.items():
            if word in name.lower():
                return value
        raise KeyError(name)

    def __getattr__(self, name):
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"the config has no {name}") from None

    def get(self, name, default=None):
        try:
            return self[name]
        except KeyError:
            return default


def _make_part(names, values):
    import inspect
    kind = next(globals()[name] for name in names if name in globals())
    names = [name for name in inspect.signature(kind).parameters if name in values]
    return kind(**{name: values[name] for name in names})


def _set_constants(values):
    names = [name for name in values if type(globals().get(name)) in (int, float)]
    globals().update({name: values[name] for name in names})
    return names
'''


def find_config(parameters: Mapping[str, bool]) -> str | None:
    """Find the parameter that takes all sizes in one object. parameters: name → has a default."""
    required = [name for name, has_default in parameters.items() if not has_default]
    return next((name for name in required if name.lower() in CONFIG.split()), None)


def make_config(words: Mapping[str, str], sizes: Mapping[str, Any]) -> dict[str, Any]:
    """Describe the config object that the worker builds."""
    return {"make": "_Config", "args": [_list_words(words, sizes)]}


def make_part(
    names: Iterable[str], words: Mapping[str, str], sizes: Mapping[str, Any]
) -> dict[str, Any]:
    """Describe an object of the first class in the file that has one of these names."""
    plain = [drop_condition(name) for name in names]
    return {"make": "_make_part", "args": [plain, _list_words(words, sizes)]}


def _list_words(words: Mapping[str, str], sizes: Mapping[str, Any]) -> dict[str, Any]:
    return {word: value for name, value in sizes.items() for word in words[name].split()}


def set_constants(
    session: Any, words: Mapping[str, str], sizes: Mapping[str, Any], taken: set[str]
) -> list[str]:
    """Set constants of the file to the sizes; return the names of those that exist.

    taken: the sizes that are arguments. A constant n_embd is also set beside an argument: the
    parts of a GPT read it.
    """
    values = {
        word: value
        for name, value in sizes.items()
        for word in words[name].split()
        if name not in taken or word == "n_embd"
    }
    reply = session.request("call", target="_set_constants", args=[values], kwargs={})
    found = reply.get("output") if isinstance(reply, dict) else None
    return [name for name in found if name in values] if isinstance(found, list) else []
