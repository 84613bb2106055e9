"""The places inside a model, by name: what `record` shows and what interventions change.

    blocks.1                      a block: its output, (B, T, D)
    blocks.1.attention            an attention: the mixture of each head, (B, H, T, Dv)
    blocks.1.attention.weights    its weights, (B, H, T, S); also .q, .k and .v
    blocks.1.feed_forward         any other module: its output
    blocks.1.input                what goes into a module

A name may leave out its beginning, as here "stack.", if only one module ends this way. The names of
TransformerLens are understood too: "blocks.1.attn.hook_z" is "blocks.1.attention". Its shapes are
not: heads come before positions here.

An attention has the name of the module whose `.mechanism` it is. These names do not change within a
major version.
"""

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass

from torch import nn

from clearhead.attention.mechanisms import Mechanism
from clearhead.layers.block import Block
from clearhead.layers.stack import Stack
from clearhead.shapes import check_whole

HEAD_IN_BLOCK = re.compile(r"(?<=\battention)\.heads\.\d+$")
PARTS_OF_ATTENTION = ("q", "k", "v", "weights")

# TransformerLens → here. A name of one module there may be the input or output of another here.
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
    """One place: a part of what a module computes.

    part: "output", "input" or, of a mechanism, "q", "k", "v" or "weights". holder: if the module
    serves several attentions, the one that is meant; else None.
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
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be an nn.Module, got {type(model).__name__}")


def _check_not_compiled(model: nn.Module) -> None:
    """Refuse a model whose compiled graph would not see a change."""
    is_wrapped = hasattr(model, "_orig_mod")  # by torch.compile
    if is_wrapped or any(module._compiled_call_impl is not None for module in model.modules()):
        raise ValueError(
            "model is compiled, and its graph would not see a change; change and run the plain "
            "model, from which it was compiled"
        )


def find_recorded(model: nn.Module) -> dict[nn.Module, dict[str, nn.Module]]:
    """Each mechanism and block: its names, and for each name the module that holds it there.

    One mechanism may serve several attentions; then it has a name for each of them.
    """
    check_model(model)
    modules = dict(model.named_modules(remove_duplicate=False))
    names = [name for name, module in modules.items() if isinstance(module, Mechanism | Block)]
    found: dict[nn.Module, dict[str, nn.Module]] = {}
    for name in names:  # in the model's order
        module, (parent, _, own) = modules[name], name.rpartition(".")
        holders = found.setdefault(module, {})
        if holders and (isinstance(module, Block) or modules[parent] in holders.values()):
            continue  # the same part of the model under a second name
        holders[parent if own == "mechanism" and parent not in names else name] = modules[parent]
    return found


def find_site(model: nn.Module, name: str) -> Site:
    """The place of this name."""
    check_model(model)
    _check_not_compiled(model)
    if not isinstance(name, str):
        raise TypeError(f"a place is named by a string, got {type(name).__name__}")
    sites = {site.name: site for site in _list_sites(model)}
    wanted = _translate(name)
    if wanted in sites:
        return sites[wanted]
    endings = [full for full in sites if full.endswith(f".{wanted}")]
    if len(endings) == 1:
        return sites[endings[0]]
    if endings:
        raise KeyError(f"{name!r} may be any of {endings}; give one of these names")
    near = difflib.get_close_matches(wanted, sites, n=3, cutoff=0.0)
    raise KeyError(f"the model has no part called {name!r}; the nearest are {near}")


def find_layers(model: nn.Module) -> dict[str, list[Site]]:
    """The attention layers in the model's order, by name; JoinedHeads in a block are one layer with
    a site for each head."""
    layers: dict[str, list[Site]] = {}
    for site in _list_attentions(model):
        layers.setdefault(HEAD_IN_BLOCK.sub("", site.name), []).append(site)
    return layers


def find_layer(model: nn.Module, layer: int | str) -> list[Site]:
    """An attention by its number, from 0, or by its name."""
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
    """The number of heads of one layer; None if only a call can tell."""
    if len(sites) > 1 or HEAD_IN_BLOCK.search(sites[0].name):
        return len(sites)
    name = sites[0].name
    if sites[0].part in PARTS_OF_ATTENTION:
        name = name.removesuffix(f".{sites[0].part}")
    holder = dict(model.named_modules(remove_duplicate=False)).get(name)
    return getattr(holder, "n_heads", None)


def _list_sites(model: nn.Module) -> list[Site]:
    """Every place of a model. An attention's name means its mechanism, not the whole module."""
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
        if name and not isinstance(module, nn.ModuleList)  # which is never called
    ]
    outputs = [Site(name, module) for name, module in modules if name not in names]
    inputs = [Site(f"{name}.input", module, "input") for name, module in modules]
    return [*attentions, *parts, *outputs, *inputs]


def _list_attentions(model: nn.Module) -> list[Site]:
    return [
        Site(name, module, holder=holder if len(holders) > 1 else None)
        for module, holders in find_recorded(model).items()
        if isinstance(module, Mechanism)
        for name, holder in holders.items()
    ]


def _translate(name: str) -> str:
    """A name of TransformerLens as a name here; any other name as it is."""
    for pattern, ours in ALIASES:
        if match := re.fullmatch(pattern, name):
            return match.expand(ours)
    return name
