"""After each bit: is the number of ones so far odd? 0110 → 0, 0111 → 1. Edit it, then train it."""

from dataclasses import dataclass

import torch

from clearhead import attention, data, models
from clearhead.training import Recipe, TrainingConfig, mean_cross_entropy, tasks


class MeanAttention(attention.Mechanism):  # all tokens up to the query have the same weight
    def weights(self, q, k, *, mask=None, bias=None):
        return attention.masked_softmax(torch.zeros_like(q @ k.mT), mask)

class ParityConfig(models.GPTConfig):
    def build_mechanism(self):
        return MeanAttention()

class ParityModel(models.GPT):
    config_type = ParityConfig

class ParityTask(tasks.TensorTask):
    config_type = ParityConfig

    def loss(self, model, batch):
        return mean_cross_entropy(model(batch.inputs), batch.targets)

@dataclass(frozen=True)
class ParityData(tasks.DataConfig):
    n_bits: int = 8
    predictor_type = tasks.CharacterPredictor  # its answer is the model's last prediction

    def open(self):
        bits = data.order(0, 0, 2**self.n_bits)[:, None] >> torch.arange(self.n_bits) & 1
        parts = data.Batch(bits, bits.cumsum(dim=1) % 2).split(len(bits) * 3 // 4)
        return ParityTask(tasks.CharacterPredictor(data.CharTokenizer("01", cls=None)), *parts)

def parity():
    model = ParityConfig(vocab_size=2, max_len=8, d_model=32, n_layers=1, n_heads=2)
    return Recipe("parity", ParityData(), model, TrainingConfig(steps=400, optimizer="muon"))
