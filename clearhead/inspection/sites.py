"""Sites: the activations of a model by name, as `record` shows and interventions change them.

    blocks.1                      a block: its output, (B, T, D)
    blocks.1.attention            an attention: the output of each head, (B, H, T, Dv)
    blocks.1.attention.weights    its weights, (B, H, T, S); also .q, .k and .v
    blocks.1.feed_forward         any other module: its output
    blocks.1.input                any module: its input

Any suffix of a name is enough if it is unique: here the prefix "stack." is left out. The names of
TransformerLens are accepted too: "blocks.1.attn.hook_z" is "blocks.1.attention". The shapes remain
those of this library, in which heads come before positions.

The mechanism of an attention module goes by the name of that module: "blocks.1.attention", not
"blocks.1.attention.mechanism". These names do not change within a major version.
"""

import difflib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from torch import nn

from clearhead.attention.mechanisms import Mechanism
from clearhead.layers.block import Block
from clearhead.layers.stack import Stack
from clearhead.shapes import check_whole

HEAD_IN_BLOCK = re.compile(r"(?<=\battention)\.heads\.\d+$")
PARTS_OF_ATTENTION = ("q", "k", "v", "weights")

# TransformerLens name → name here. A hook there may be the input or output of a module here.
ALIASES = (
    (r"hook_embed", "embedding"),
    (r"blocks\.(\d+)\.hook_resid_pre", r"blocks.\1.input"),
    (r"blocks\.(\d+)\.hook_resid_mid", r"blocks.\1.norm_feed_forward.input"),
    (r"blocks\.(\d+)\.hook_resid_post", r"blocks.\1"),
    (r"blocks\.(\d+)\.hook_attn_out", r"blocks.\1.attention.proj_out"),
    (r"blocks\.(\d+)\.hook_mlp_out", r"blocks.\1.feed_forward"),
    (r"blocks\.(\d+)\.attn\.hook_z", r"blocks.\1.attention"),
    (r"blocks\.(\d+)\.attn\.hook_pattern", r"blocks.\1.attention.weights"),
    (r"blocks\.(\d+)\.attn\.hook_([qkv])", r"blocks.\1.attention.\2"),
    (r"blocks\.(\d+)\.mlp\.hook_pre", r"blocks.\1.feed_forward.proj_in"),
    (r"blocks\.(\d+)\.mlp\.hook_post", r"blocks.\1.feed_forward.proj_out.input"),
    (r"ln_final\.hook_normalized", "stack.norm"),
    (r"unembed\.hook_logits", "head"),
)

Selection = int | slice | Sequence[int] | None


@dataclass(frozen=True)
class Site:
    """One activation: the output, the input or another value of a module.

    part: "output" or "input"; for a mechanism also "q", "k", "v" or "weights". holder: if several
    attention modules share the mechanism, the one whose calls count; otherwise None.
    """

    name: str
    module: nn.Module
    part: str = "output"
    holder: nn.Module | None = None

    @property
    def is_attention(self) -> bool:
        """Whether the module is a mechanism, called with queries, keys and values."""
        return isinstance(self.module, Mechanism)


def check_model(model: nn.Module) -> None:
    """Refuse anything but a module."""
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be an nn.Module, got {type(model).__name__}")


def _check_not_compiled(model: nn.Module) -> None:
    """Refuse a model with a part compiled by torch.compile: its graph would ignore new hooks."""
    parts = model.modules()
    if any(hasattr(m, "_orig_mod") or m._compiled_call_impl is not None for m in parts):
        raise ValueError(
            "model is compiled, and its graph would not see a change; change and run the plain "
            "model, from which it was compiled"
        )


def find_recorded(model: nn.Module) -> dict[nn.Module, dict[str, nn.Module]]:
    """Every mechanism and block of a model → {its name: its parent module}.

    Several attention modules may share one mechanism; it then has a name for each of them.
    """
    check_model(model)
    modules = dict(model.named_modules(remove_duplicate=False))
    names = [name for name, module in modules.items() if isinstance(module, Mechanism | Block)]
    found: dict[nn.Module, dict[str, nn.Module]] = {}
    for name in names:
        module, (parent, _, own) = modules[name], name.rpartition(".")
        holders = found.setdefault(module, {})
        if holders and (isinstance(module, Block) or modules[parent] in holders.values()):
            continue  # the same part of the model under a second name
        holders[parent if own == "mechanism" and parent not in names else name] = modules[parent]
    return found


def find_site(model: nn.Module, name: str) -> Site:
    """The site of this name, or of the only name with this suffix."""
    return find_sites(model, [name])[0]


def find_sites(model: nn.Module, names: Iterable[str]) -> list[Site]:
    """The sites of these names; quicker than one by one, because the model is searched once."""
    check_model(model)
    _check_not_compiled(model)
    sites = {site.name: site for site in _list_sites(model)}
    return [_choose(sites, name) for name in names]


def _choose(sites: dict[str, Site], name: str) -> Site:
    if not isinstance(name, str):
        raise TypeError(f"the name of an activation must be a string, got {type(name).__name__}")
    wanted = _translate(name)
    if wanted in sites:
        return sites[wanted]
    endings = [full for full in sites if full.endswith(f".{wanted}")]
    if len(endings) == 1:
        return sites[endings[0]]
    if endings:
        raise KeyError(
            f"{name!r} is not unique: it may be any of {endings}; give one of these names"
        )
    near = difflib.get_close_matches(wanted, sites, n=3, cutoff=0.0)
    raise KeyError(f"the model has no part called {name!r}; the nearest are {near}")


def find_layers(model: nn.Module) -> dict[str, list[Site]]:
    """The attention layers in the order of the model: name → sites.

    A layer has one site. Only JoinedHeads have one for each head.
    """
    layers: dict[str, list[Site]] = {}
    for site in _list_attentions(model):
        layers.setdefault(HEAD_IN_BLOCK.sub("", site.name), []).append(site)
    return layers


def find_layer(model: nn.Module, layer: int | str) -> list[Site]:
    """The sites of an attention layer by its number, from 0; by name, those of any part."""
    layers = find_layers(model)
    _check_not_compiled(model)
    if not layers:
        raise ValueError(
            f"model {type(model).__name__} holds no attention; build it with a clearhead mechanism"
        )
    if isinstance(layer, str):
        site = find_site(model, layer)
        return layers.get(site.name, [site])
    check_whole("layer", layer)
    n_stacks = sum(isinstance(module, Stack) for module in model.modules())
    if n_stacks > 1:
        raise ValueError(
            f"layer={layer} could be in any of the model's {n_stacks} stacks; "
            f"give a name, one of {list(layers)}"
        )
    if not 0 <= layer < len(layers):
        raise ValueError(
            f"layer must be from 0 to {len(layers) - 1}, got {layer}: the layers are {list(layers)}"
        )
    return list(layers.values())[layer]


def count_heads(sites: Sequence[Site], model: nn.Module) -> int | None:
    """The number of heads of one layer; None if its module has no n_heads."""
    if len(sites) > 1 or HEAD_IN_BLOCK.search(sites[0].name):
        return len(sites)
    name, part = sites[0].name, sites[0].part
    if part == "input":
        return None
    if part in PARTS_OF_ATTENTION:
        name = name.removesuffix(f".{part}")
    return getattr(model.get_submodule(name), "n_heads", None)


def _list_sites(model: nn.Module) -> list[Site]:
    """Every site of a model. The name of an attention means its mechanism, not the whole module."""
    attentions = _list_attentions(model)
    names = {site.name for site in attentions}
    parts = [
        Site(f"{site.name}.{part}", site.module, part, site.holder)
        for site in attentions
        for part in PARTS_OF_ATTENTION
    ]
    modules = [
        (name, module)
        for name, module in model.named_modules()
        if name and not isinstance(module, nn.ModuleList)  # never called itself
    ]
    outputs = [Site(name, module) for name, module in modules if name not in names]
    inputs = [Site(f"{name}.input", module, "input") for name, module in modules]
    return [*attentions, *parts, *outputs, *inputs]


def _list_attentions(model: nn.Module) -> list[Site]:
    """The output site of every mechanism."""
    return [
        Site(name, module, holder=holder if len(holders) > 1 else None)
        for module, holders in find_recorded(model).items()
        if isinstance(module, Mechanism)
        for name, holder in holders.items()
    ]


def _translate(name: str) -> str:
    """Replace a TransformerLens name by the name used here; leave any other name as it is."""
    for pattern, ours in ALIASES:
        if match := re.fullmatch(pattern, name):
            return match.expand(ours)
    return name
