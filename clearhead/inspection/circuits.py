"""The circuits of a head, read from its weights without running the model (Elhage et al. 2021).

    QK = W_q W_kᵀ / √Dh       the score of query t and key s is x_t QK x_sᵀ
    OV = W_v W_o              attending to token s adds x_s OV to the residual stream

Both are D × D matrices of rank at most Dh; tokens are row vectors. They include the gain of the
norm before the attention, but not its centring, nor its division by the scale of each token. With
rotary positions QK depends on the distance of the two tokens; here it is QK at distance 0.
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
    """The matrix QK of a head, (D, D): rows for the query's input, columns for the key's."""
    attention, gain, source_gain = _find_attention(model, layer, head)
    if attention.norm_q is not None:
        raise ValueError("with qk_norm a score is not a product of two tokens; QK does not exist")
    rows = _rows(head, attention.d_head)
    shared = _rows(head // (attention.n_heads // attention.n_kv_heads), attention.d_head)
    q, k = attention.proj_q.weight[rows], attention.proj_k.weight[shared]  # (Dh, D)
    return (gain * q.detach()).T @ (source_gain * k.detach()) / attention.d_head**0.5


def ov_matrix(model: nn.Module, layer: int | str, head: int) -> Tensor:
    """The matrix OV of a head, (D, D): rows for the input, columns for what is added to it."""
    attention, _, source_gain = _find_attention(model, layer, head)
    shared = _rows(head // (attention.n_heads // attention.n_kv_heads), attention.d_head)
    v = source_gain * attention.proj_v.weight[shared].detach()  # (Dh, D)
    out = attention.proj_out.weight[:, _rows(head, attention.d_head)].detach()  # (D, Dh)
    return v.T @ out.T


@dataclass(frozen=True, eq=False)
class Circuit:
    """The largest singular values of OV or QK, and the tokens closest to the singular vectors.

    values (K,): the singular values. reads, writes (K, n): the ids of the n tokens with the largest
    dot product with the left and the right singular vector. For QK, reads are tokens of the query
    and writes tokens of the key. The sign of a pair of singular vectors is arbitrary; it is chosen
    such that the token with the largest absolute product on the left has a positive one.
    """

    values: Tensor
    reads: Tensor
    writes: Tensor


def find_circuit(
    model: nn.Module, layer: int | str, head: int, kind: str = "ov", *, k: int = 3, n: int = 5
) -> Circuit:
    """The k largest singular values of OV or QK, with n tokens for each pair of singular vectors.

    Singular vectors are compared with the rows of the embedding table; the right ones of OV, which
    are written to the residual stream, with the rows of the output layer.
    """
    check_choice("kind", kind, ("ov", "qk"))
    check_positive(k=k, n=n)
    matrix = ov_matrix(model, layer, head) if kind == "ov" else qk_matrix(model, layer, head)
    left, values, right = torch.linalg.svd(matrix.double())
    embedding = _find_table(model, "embedding")
    table = _find_table(model, "head") if kind == "ov" else embedding
    # Both vectors of a pair change sign together.
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
    """Composition scores: how much head 2 reads of what an earlier head 1 writes.

    Returns (L, H, L, H), head 1 on the first two axes; 0 unless head 1 is in an earlier layer.
    kind: whether head 2 reads it for its queries, keys or values. In the Frobenius norm:

        "q"   ‖OV_1 QK_2‖  / (‖OV_1‖ ‖QK_2‖)
        "k"   ‖OV_1 QK_2ᵀ‖ / (‖OV_1‖ ‖QK_2‖)
        "v"   ‖OV_1 OV_2‖  / (‖OV_1‖ ‖OV_2‖)
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
    """The attention of a layer, and the gains of the norms before its queries and its keys.

    A gain is (D,), or a single 1 where no norm comes before.
    """
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
    return attention, gain, ones if is_cross else gain  # no norm before cross-attention keys


def _norm(matrices: Tensor) -> Tensor:
    """Frobenius norms, (N, D, D) → (N, 1, 1)."""
    return matrices.square().sum(dim=(-2, -1), keepdim=True).sqrt()


def _rows(head: int, d_head: int) -> slice:
    """The rows of one head in a projection."""
    return slice(head * d_head, (head + 1) * d_head)


def _find_table(model: nn.Module, name: str) -> Tensor:
    """The weight of the embedding or the output layer, a row for each token: (V, D), float64."""
    part = getattr(model, name, None)
    if not isinstance(part, nn.Embedding | nn.Linear):
        raise ValueError(f"{type(model).__name__} has no {name!r} with a row for each token")
    weight = part.weight.detach().double()
    return weight.T if name == "embedding" and isinstance(part, nn.Linear) else weight
