"""A small model of every kind with random weights, and the arguments of one call."""

import torch
from torch import Tensor, nn

from clearhead.attention import JoinedHeads, SelfAttention
from clearhead.layers import Block, Stack
from clearhead.models import (
    GPT,
    ClassifierConfig,
    GPTConfig,
    Seq2SeqGRU,
    Seq2SeqGRUConfig,
    Seq2SeqTransformer,
    Seq2SeqTransformerConfig,
    SequenceClassifier,
    TextEncoder,
    TextEncoderConfig,
    VisionTransformer,
    ViTConfig,
)
from clearhead.models.smallest import TorchTransformer

V, T, D, H, L = 11, 7, 12, 3, 2
Case = tuple[nn.Module, tuple[Tensor, ...]]


def randomize(model: nn.Module) -> nn.Module:
    """Weights large enough that every part of the model matters."""
    torch.manual_seed(0)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.4)
    return model.eval().double()


def draw_ids(B: int = 2, n: int = T, seed: int = 1) -> Tensor:
    return torch.randint(V, (B, n), generator=torch.Generator().manual_seed(seed))


def gpt() -> GPT:
    config = GPTConfig(vocab_size=V, max_len=20, d_model=D, n_layers=L, n_heads=H)
    return randomize(GPT(config))


def build_case(name: str) -> Case:
    """A model and the arguments of one call."""
    generator = torch.Generator().manual_seed(2)
    sizes = {"d_model": D, "n_layers": L, "n_heads": H}
    pictures = torch.randn(2, 1, 8, 8, generator=generator, dtype=torch.float64)
    rows = torch.randn(2, T, D, generator=generator, dtype=torch.float64)
    words = {"source_vocab_size": V, "target_vocab_size": V}
    words |= {"start_id": 0, "end_id": 1, "pad_id": 2}
    match name:
        case "gpt":
            return gpt(), (draw_ids(),)
        case "llama":
            config = GPTConfig(
                vocab_size=V, max_len=20, n_kv_heads=1, positions="rotary", norm="rms", **sizes
            )
            return randomize(GPT(config)), (draw_ids(),)
        case "vit":
            config = ViTConfig(n_classes=5, image_size=8, patch_size=4, channels=1, **sizes)
            return randomize(VisionTransformer(config)), (pictures,)
        case "classifier":
            config = ClassifierConfig(d_input=V, d_output=2, max_len=9, **sizes)
            return randomize(SequenceClassifier(config)), (draw_ids(),)
        case "post-norm":
            config = ClassifierConfig(d_input=V, d_output=4, max_len=9, pre_norm=False, **sizes)
            return randomize(SequenceClassifier(config)), (draw_ids(),)
        case "pooled vit":
            config = ViTConfig(
                n_classes=5, image_size=8, patch_size=4, channels=1, pool="mean", **sizes
            )
            return randomize(VisionTransformer(config)), (pictures,)
        case "encoder":
            config = TextEncoderConfig(vocab_size=V, max_len=9, **sizes)
            return randomize(TextEncoder(config)), (draw_ids(),)
        case "translator":
            config = Seq2SeqTransformerConfig(**words, max_len=9, **sizes)
            return randomize(Seq2SeqTransformer(config)), (draw_ids(n=5), draw_ids())
        case "gru":
            config = Seq2SeqGRUConfig(**words, d_embedding=4, d_hidden=6)
            return randomize(Seq2SeqGRU(config)), (draw_ids(n=5), draw_ids())
        case "smallest":
            return randomize(TorchTransformer(V, 4, 3)), (torch.eye(V)[draw_ids()],)
        case "joined heads":
            heads = [SelfAttention(D, 4, d) for d in (2, 3, 5)]
            return randomize(Stack([Block(D, attention=JoinedHeads(heads, D))])), (rows,)
    raise ValueError(name)


WITH_LOGITS = ["gpt", "llama", "vit", "pooled vit", "classifier", "post-norm", "translator"]
MULTI_HEAD = [*WITH_LOGITS, "encoder"]
CASES = [*MULTI_HEAD, "gru", "smallest", "joined heads"]
