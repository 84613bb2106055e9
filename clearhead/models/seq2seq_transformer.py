"""The transformer that translates (Vaswani et al. 2017), with the norms first (Xiong et al. 2020).

    memory = encoder(embedding_s[source] + positions)       every token attends to every other
    x      = decoder(embedding_t[target_inputs] + positions, memory)
                     each word attends to itself and those before it, then to the memory
    logits = norm(x) W_headᵀ

Unlike a GRU it is trained on all words at once. Step by step, each block caches keys and values:
those of the words grow, those of the memory are computed at the first step and then only read.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from clearhead.attention import KVCache, Mask
from clearhead.attention.masks import MaskLike
from clearhead.config import UNDECIDED
from clearhead.layers import StackConfig
from clearhead.models.seq2seq import Seq2Seq, Seq2SeqConfig, find_real_tokens
from clearhead.positions import SCHEMES
from clearhead.shapes import check_choice, check_positive


@dataclass(frozen=True)
class Seq2SeqTransformerConfig(Seq2SeqConfig, StackConfig):
    """The settings of a Seq2SeqTransformer, and those of its two stacks.

    n_layers: blocks of the encoder, and as many of the decoder; max_len: the length limit of
    source and target; positions: "sinusoidal" or "learned"; tied: the head is the embedding table
    of the target.
    """

    max_len: int
    d_model: int
    n_layers: int
    n_heads: int
    d_ff: int | None = None
    positions: str = "sinusoidal"
    norm: str = "layer"
    activation: str = "relu"
    tied: bool = True
    dropout: float = 0.0

    def check(self) -> None:
        added = tuple(name for name, scheme in SCHEMES.items() if scheme.acts_on == "x")
        check_choice("positions", self.positions, added)
        if self.max_len is not UNDECIDED:  # the checks below must run also if it is undecided
            check_positive(max_len=self.max_len)
        super().check()


@dataclass(eq=False)
class TransformerState:
    """The output of the encoder, and the caches of every block of the decoder."""

    memory: Tensor  # (B, S, D)
    real: Tensor | None  # (B, S), True = real token of the source; None = all
    caches: list[KVCache]  # of the words so far, one for each block
    memory_caches: list[KVCache]  # of the memory, one for each block

    @property
    def batch_size(self) -> int:
        return self.memory.size(0)

    def reorder(self, rows: Tensor) -> None:
        """Keep these rows (B′,), in this order and in place; a row may be taken twice."""
        for cache in (*self.caches, *self.memory_caches):
            cache.reorder(rows)
        rows = rows.long()
        self.memory = self.memory.index_select(0, rows)
        self.real = None if self.real is None else self.real.index_select(0, rows)


class Seq2SeqTransformer(Seq2Seq):
    """Source ids and words so far → logits of the next word of the target."""

    config_type = Seq2SeqTransformerConfig
    config: Seq2SeqTransformerConfig

    def __init__(self, config: Seq2SeqTransformerConfig) -> None:
        super().__init__(config)
        c = config
        self.source_embedding = nn.Embedding(c.source_vocab_size, c.d_model)
        self.source_positions = c.build_positions(scale_input=True)
        self.encoder = c.build_stack()
        self.target_embedding = nn.Embedding(c.target_vocab_size, c.d_model)
        self.target_positions = c.build_positions(scale_input=True)
        self.decoder = c.build_stack(cross=True)
        self.dropout = nn.Dropout(c.dropout)
        self.head = nn.Linear(c.d_model, c.target_vocab_size, bias=False)
        for embedding in (self.source_embedding, self.target_embedding):
            nn.init.normal_(embedding.weight, std=c.d_model**-0.5)
        if c.tied:
            self.head.weight = self.target_embedding.weight

    @property
    def max_len(self) -> int:
        """The length limit of source and target."""
        return self.config.max_len

    @property
    def alignment_name(self) -> str:
        """The attention to the source in the last block of the decoder."""
        return f"decoder.blocks.{self.config.n_layers - 1}.cross_attention"

    def encode(self, source: Tensor, source_mask: MaskLike = None) -> TransformerState:
        """source (B, S) → its state. Padding, on either side, changes nothing."""
        self._check_source(source)
        real = find_real_tokens(source, source_mask)
        mask = _make_mask(real)
        positions = None if mask is None else mask.positions(source.size(1))
        x = self.source_positions(self.source_embedding(source.long()), positions=positions)
        memory = self.encoder(self.dropout(x), mask=mask)
        # Small blocks, because beam search copies whole buffers when it reorders them.
        caches, memory_caches = (
            [KVCache(block_size=32) for _ in self.decoder.blocks] for _ in range(2)
        )
        return TransformerState(memory, real, caches, memory_caches)

    def decode_step(
        self, tokens: Tensor, state: TransformerState
    ) -> tuple[Tensor, TransformerState]:
        """The next word of each row (B,) → logits (B, V) of the one after it, and the new state."""
        self._check_step(tokens, state)
        past = len(state.caches[0])
        if past >= self.max_len:
            raise ValueError(
                f"tokens would be word {past + 1} but max_len is {self.max_len}; "
                f"stop before or build the model with max_len={past + 1}"
            )
        position = torch.tensor([past], device=tokens.device)
        x = self.target_embedding(tokens.long().unsqueeze(1))
        x = self.target_positions(x, positions=position)
        x = self.decoder(
            self.dropout(x),
            state.memory,
            mask=Mask.causal(),
            source_mask=_make_mask(state.real),
            caches=state.caches,
            source_caches=state.memory_caches,
        )
        return self.head(x.squeeze(1)), state

    def forward(
        self, source: Tensor, target_inputs: Tensor, source_mask: MaskLike = None
    ) -> Tensor:
        """source (B, S), target_inputs (B, T) → logits (B, T, V): row t scores word t + 1."""
        state = self.encode(source, source_mask)
        self._check_targets(target_inputs, state)
        x = self.dropout(self.target_positions(self.target_embedding(target_inputs.long())))
        source_mask = _make_mask(state.real)
        x = self.decoder(x, state.memory, mask=Mask.causal(), source_mask=source_mask)
        return self.head(x)


def _make_mask(real: Tensor | None) -> Mask | None:
    return None if real is None else Mask.tokens(real)
