"""What a head's weights alone say: what it reads, what it writes, who listens to whom.

    QK = W_q W_kᵀ / √Dh       the score of two tokens is x_t QK x_sᵀ
    OV = W_v W_o              a token that is attended to adds x_s OV to the residual stream

Both are D × D matrices of rank Dh, here with rows as inputs. The gain of a norm in front of the
attention is part of them, its centring and its division by each token's length are not. Rotary
positions turn QK with the distance of two tokens: it is that of distance 0. (Elhage et al. 2021)
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from clearhead.attention.multi_head import MultiHeadAttention
from clearhead.inspection.places import check_heads
from clearhead.inspection.sites import find_layer, find_layers
from clearhead.layers.block import Block
from clearhead.layers.stack import Stack
from clearhead.shapes import check_choice, check_positive, check_whole


def qk_matrix(model: nn.Module, layer: int | str, head: int) -> Tensor:
    """Which token attends to which: (D, D), rows of the query's token, columns of the key's."""
    attention, gain, source_gain = _find_attention(model, layer, head)
    if attention.norm_q is not None:
        raise ValueError("with qk_norm a score is not a product of two tokens; QK does not exist")
    rows = _rows(head, attention.d_head)
    shared = _rows(head // (attention.n_heads // attention.n_kv_heads), attention.d_head)
    q, k = attention.proj_q.weight[rows], attention.proj_k.weight[shared]  # (Dh, D)
    return (gain * q.detach()).T @ (source_gain * k.detach()) / attention.d_head**0.5


def ov_matrix(model: nn.Module, layer: int | str, head: int) -> Tensor:
    """What a token adds where it is attended to: (D, D), rows of its input, columns of the sum."""
    attention, _, source_gain = _find_attention(model, layer, head)
    shared = _rows(head // (attention.n_heads // attention.n_kv_heads), attention.d_head)
    v = source_gain * attention.proj_v.weight[shared].detach()  # (Dh, D)
    out = attention.proj_out.weight[:, _rows(head, attention.d_head)].detach()  # (D, Dh)
    return v.T @ out.T


@dataclass(frozen=True, eq=False)
class Circuit:
    """The strongest directions of a head: singular values and the tokens nearest to each.

    values (K,). reads, writes: for each direction the ids of the tokens that point into it most,
    (K, n). Of QK, `reads` are the queries' tokens and `writes` the keys'. A direction and its
    opposite are the same singular direction; the sign is that of the tokens listed.
    """

    values: Tensor
    reads: Tensor
    writes: Tensor


def find_circuit(
    model: nn.Module, layer: int | str, head: int, kind: str = "ov", *, k: int = 3, n: int = 5
) -> Circuit:
    """The k largest singular values of OV or QK, and n tokens that each direction reads and writes.

    Tokens are compared with the embedding table, and what OV writes with the head of the model.
    """
    check_choice("kind", kind, ("ov", "qk"))
    check_positive(k=k, n=n)
    matrix = ov_matrix(model, layer, head) if kind == "ov" else qk_matrix(model, layer, head)
    left, values, right = torch.linalg.svd(matrix.double())
    embedding = _find_table(model, "embedding")
    table = _find_table(model, "head") if kind == "ov" else embedding
    # A pair of directions has a common sign: the one in which the first reads most.
    read = embedding @ left[:, :k]  # (V, k)
    sign = read.gather(0, read.abs().argmax(dim=0, keepdim=True)).sign()
    written = table @ right[:k].T * sign
    n = min(n, len(embedding))
    return Circuit(
        values[:k].to(matrix.dtype),
        (read * sign).topk(n, dim=0).indices.T,
        written.topk(min(n, len(table)), dim=0).indices.T,
    )


def composition(model: nn.Module, kind: str = "k") -> Tensor:
    """How much each head reads what each earlier head writes: (L, H, L, H), the writer first.

    kind: through its queries "q", its keys "k" or its values "v":

        ‖OV_1 QK_2‖ / (‖OV_1‖ ‖QK_2‖), ‖OV_1 QK_2ᵀ‖ / …, ‖OV_1 OV_2‖ / …

    in the Frobenius norm; 0 where the writer is not in an earlier layer.
    """
    check_choice("kind", kind, ("q", "k", "v"))
    if sum(isinstance(module, Stack) for module in model.modules()) > 1:
        raise ValueError(
            f"the heads of {type(model).__name__} write to several streams, so not every later "
            f"head reads an earlier one; compare their ov_matrix and qk_matrix"
        )
    names = list(find_layers(model))
    heads = [_find_attention(model, name, 0)[0].n_heads for name in names]
    if len(set(heads)) > 1:
        raise ValueError(f"all layers must have the same number of heads, got {heads}")
    L, H = len(names), heads[0]
    cells = [(name, head) for name in names for head in range(H)]
    writes = torch.stack([ov_matrix(model, *cell) for cell in cells])  # (L·H, D, D)
    if kind == "v":
        reads = writes
    else:
        reads = torch.stack([qk_matrix(model, *cell) for cell in cells])
        reads = reads if kind == "q" else reads.mT
    writes, reads = (x / _norm(x).clamp(min=1e-30) for x in (writes, reads))  # 0 stays 0
    products = torch.stack([_norm(write @ reads) for write in writes])  # (L·H, L·H, 1, 1)
    scores = products.reshape(L, H, L, H)
    layers = torch.arange(L, device=scores.device)
    return torch.where(layers[:, None, None, None] < layers[:, None], scores, 0)


def _find_attention(
    model: nn.Module, layer: int | str, head: int
) -> tuple[MultiHeadAttention, Tensor, Tensor]:
    """The attention of a layer, and the gains (D,) of the norms of its queries and its source."""
    sites = find_layer(model, layer)
    modules = dict(model.named_modules(remove_duplicate=False))
    attention = modules.get(sites[0].name)
    if not isinstance(attention, MultiHeadAttention):
        raise ValueError(
            f"{sites[0].name!r} is a {type(attention).__name__}; circuits are read from "
            f"MultiHeadAttention"
        )
    check_whole("head", head)
    check_heads(model, sites, head)
    block = modules.get(sites[0].name.rpartition(".")[0])
    is_cross = sites[0].name.endswith("cross_attention")
    ones = attention.proj_q.weight.new_ones(1)
    if not isinstance(block, Block) or not block.pre_norm:
        return attention, ones, ones
    gain = getattr(block.norm_cross if is_cross else block.norm_attention, "gain", ones).detach()
    return attention, gain, ones if is_cross else gain  # the source of a cross-attention has none


def _norm(matrices: Tensor) -> Tensor:
    """Frobenius norms, (N, D, D) → (N, 1, 1)."""
    return matrices.square().sum(dim=(-2, -1), keepdim=True).sqrt()


def _rows(head: int, d_head: int) -> slice:
    return slice(head * d_head, (head + 1) * d_head)


def _find_table(model: nn.Module, name: str) -> Tensor:
    """The embedding or head of a model as a row for each token, (V, D) in float64."""
    part = getattr(model, name, None)
    if not isinstance(part, nn.Embedding | nn.Linear):
        raise ValueError(f"{type(model).__name__} has no {name!r} with a row for each token")
    weight = part.weight.detach().double()
    return weight.T if name == "embedding" and isinstance(part, nn.Linear) else weight
