"""Small GPTs for tests of generation: random ones, and some that follow a rule by heart."""

import torch
from torch import nn

from clearhead.models.gpt import GPT, GPTConfig

V, MAX_LEN, D, H, F, L = 37, 40, 24, 6, 20, 2
SIZES = {"vocab_size": V, "max_len": MAX_LEN, "d_model": D, "n_layers": L, "n_heads": H, "d_ff": F}
POSITIONS = ["learned", "sinusoidal", "rotary", "alibi", "toeplitz", "none"]


def build(dtype=torch.float32, seed=0, std=0.3, **changes):
    """A model with spread-out random weights, so that its words differ from step to step."""
    generator = torch.Generator().manual_seed(seed)
    model = GPT(GPTConfig(**SIZES | {"tied": False} | changes)).to(dtype)
    for name, parameter in model.named_parameters():
        nn.init.normal_(parameter, std=std, generator=generator)
        parameter.data.add_(name.endswith("gain")).mul_(0.3 if name.endswith("shift") else 1)
    model.embedding.weight.data.mul_(4)  # the last token decides, so that many words occur
    return model.eval()


def follower(following, max_len=MAX_LEN):
    """A model that knows by heart which id comes after each id."""
    n = len(following)
    model = GPT(GPTConfig(n, max_len, n, 1, 1, 1, 1, "none", norm="none", tied=False)).eval()
    for parameter in model.parameters():
        nn.init.zeros_(parameter)
    with torch.no_grad():
        model.embedding.weight.copy_(torch.eye(n))
        model.head.weight[torch.tensor(following), torch.arange(n)] = 9.0
    return model


def counter(n=12, **options):
    """A model that counts: 0, 1, …, n − 1, 0, …"""
    return follower([(i + 1) % n for i in range(n)], **options)


def ids(*shape, seed=0, high=V):
    return torch.randint(high, shape, generator=torch.Generator().manual_seed(seed))
