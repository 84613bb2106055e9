"""Heads in one module: features are split among the heads, each attends, all are merged again."""

from torch import Tensor

from clearhead.exercises.contracts.shared.causal import MaybeCausal
from clearhead.exercises.contracts.shared.names import RESHAPE
from clearhead.exercises.exercise import mistake
from clearhead.exercises.weights import Linear


class Heads(MaybeCausal):
    """Split, attention, merge and last layer, with their mistakes."""

    terms = {
        "split": "the split into heads: (B, T, D) → (B, H, T, Dh)",
        "heads": "attention in each head",
        "repeat": "the lengths, repeated for each head of an example",
        **MaybeCausal.terms,
        "merge": "heads side by side again: (B, H, T, Dh) → (B, T, D)",
        "finish": "the output layer W_O",
    }

    # The formula: q (B, T, D), k and v (B, S, D) → (B, T, D)

    def heads(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        x: Tensor,
        n_heads: int,
        mask: Tensor | None,
        valid_lens: Tensor | None,
        is_causal: bool,
    ) -> Tensor:
        q, k, v = (self.split(each, n_heads) for each in (q, k, v))
        if valid_lens is not None:
            mask = self.repeat(self.allow(valid_lens, k.size(-2)), n_heads)
        return self.merge(self.attend(q, k, v, x, mask, is_causal=is_causal)["output"])

    def split(self, x: Tensor, n_heads: int) -> Tensor:
        return x.unflatten(-1, (n_heads, -1)).transpose(1, 2)

    def repeat(self, mask: Tensor, n_heads: int) -> Tensor:
        """Each head of an example has the example's lengths: (B, ·, S) → (B, H, ·, S)."""
        return mask.unsqueeze(1).expand(-1, n_heads, -1, -1)

    def merge(self, x: Tensor) -> Tensor:
        return x.transpose(1, 2).flatten(2)

    def finish(self, x: Tensor, out: Linear | None) -> Tensor:
        if out is None:
            raise ValueError("there is no last layer")
        return out(x)

    # Mistakes

    @mistake(
        "split",
        "the width is reshaped to (B, H, T, Dh) without a transpose: tokens and heads get mixed; "
        "reshape to (B, T, H, Dh) first, then transpose",
        line=RESHAPE,
    )
    def view_without_transpose(self, x: Tensor, n_heads: int) -> Tensor:
        return x.reshape(x.size(0), n_heads, x.size(1), -1)

    @mistake(
        "split",
        "each head takes every H-th feature: reshape to (…, H, Dh), not to (…, Dh, H)",
        line=RESHAPE,
    )
    def interleaved_features(self, x: Tensor, n_heads: int) -> Tensor:
        return x.unflatten(-1, (-1, n_heads)).permute(0, 3, 1, 2)

    @mistake(
        "split",
        "heads come before the batch: row h·B + b is read as b·H + h, so examples get mixed",
        line=("permute", "cat", *RESHAPE),
    )
    def heads_over_batch(self, x: Tensor, n_heads: int) -> Tensor:
        B, T, D = x.shape
        heads = x.unflatten(-1, (n_heads, -1)).permute(2, 0, 1, 3)  # (H, B, T, Dh)
        return heads.reshape(B, n_heads, T, D // n_heads)

    @mistake(
        "heads",
        "attention runs over the heads of a token instead of over tokens: transpose (B, T, H, "
        "Dh) to (B, H, T, Dh) before attention",
        line=("transpose", "permute", *RESHAPE),
    )
    def attends_over_heads(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        x: Tensor,
        n_heads: int,
        mask: Tensor | None,
        valid_lens: Tensor | None,
        is_causal: bool,
    ) -> Tensor:
        q, k, v = (each.unflatten(-1, (n_heads, -1)) for each in (q, k, v))
        if valid_lens is not None:
            mask = self.repeat(self.allow(valid_lens, k.size(1)), n_heads)
        return self.attend(q, k, v, x, mask, is_causal=is_causal)["output"].flatten(2)

    @mistake(
        "merge",
        "the heads are merged without transposing back: (B, H, T, Dh) is reshaped to (B, T, D), "
        "which mixes tokens and heads",
        line=RESHAPE,
    )
    def merge_without_transpose(self, x: Tensor) -> Tensor:
        return x.reshape(x.size(0), x.size(2), -1)

    @mistake(
        "finish",
        "the output layer W_O is missing: the heads are joined but not mixed",
        line=("return", "cat", "reshape", "view"),
    )
    def no_output_layer(self, x: Tensor, out: Linear | None) -> Tensor:
        return x

    @mistake(
        "repeat",
        "the lengths are repeated with repeat instead of repeat_interleave: heads get the length "
        "of another example",
        line=("repeat(", ".tile("),
    )
    def lengths_repeated_wrongly(self, mask: Tensor, n_heads: int) -> Tensor:
        rows = mask.repeat(n_heads, 1, 1)  # (H·B, ·, S)
        return rows.view(mask.size(0), n_heads, *mask.shape[1:])

    @mistake(
        "weigh",
        "the softmax runs over the heads (dim=1) instead of the keys (dim=-1)",
        line=("softmax", "sum("),
    )
    def softmax_over_heads(self, scores: Tensor) -> Tensor:
        return scores.softmax(1)
