"""Small translators for tests: both kinds, all sizes different, every parameter random.

from translators import KINDS, build, sentences
model = build("gru", n_layers=2)
source, source_mask, target_inputs = sentences()
"""

import torch
from torch import nn

from clearhead.models.seq2seq import Seq2Seq
from clearhead.models.seq2seq_gru import Seq2SeqGRU, Seq2SeqGRUConfig
from clearhead.models.seq2seq_transformer import Seq2SeqTransformer, Seq2SeqTransformerConfig

B, S, T, SOURCE_V, V = 3, 7, 5, 11, 13
E, H, L, D = 6, 8, 2, 12
START, END, PAD = 1, 2, 0
LENGTHS = (7, 2, 4)

VOCABULARIES = {
    "source_vocab_size": SOURCE_V,
    "target_vocab_size": V,
    "start_id": START,
    "end_id": END,
    "pad_id": PAD,
}
OF_GRU = VOCABULARIES | {"d_embedding": E, "d_hidden": H, "n_layers": L}
OF_TRANSFORMER = VOCABULARIES | {
    "max_len": 16,
    "d_model": D,
    "n_layers": L,
    "n_heads": 3,
    "d_ff": 10,
}
KINDS = {
    "gru": (Seq2SeqGRU, Seq2SeqGRUConfig, OF_GRU),
    "gru dot": (Seq2SeqGRU, Seq2SeqGRUConfig, OF_GRU | {"attention": "dot"}),
    "transformer": (Seq2SeqTransformer, Seq2SeqTransformerConfig, OF_TRANSFORMER),
    "transformer learned": (
        Seq2SeqTransformer,
        Seq2SeqTransformerConfig,
        OF_TRANSFORMER | {"positions": "learned", "tied": False},
    ),
}


def build(kind: str = "gru", seed: int = 0, scale: float = 0.6, **options: object) -> Seq2Seq:
    """In float64 and without dropout; the same at every call."""
    model_type, config_type, defaults = KINDS[kind]
    generator = torch.Generator().manual_seed(seed)
    model = model_type(config_type(**(defaults | options))).double().eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=scale, generator=generator)
    return model


def sentences(seed: int = 0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """source (B, S) padded on the right, its mask, target_inputs (B, T)."""
    generator = torch.Generator().manual_seed(seed)
    source = torch.randint(3, SOURCE_V, (B, S), generator=generator)
    mask = torch.arange(S) < torch.tensor(LENGTHS).unsqueeze(1)
    target = torch.randint(0, V, (B, T), generator=generator)
    target[:, 0] = START
    return source, mask, target
