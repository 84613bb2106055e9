"""A task of a few milliseconds: is the sum of three whole numbers even?"""

import hashlib
from dataclasses import dataclass

import torch
from torch import nn

from clearhead.data.batch import Batch
from clearhead.models.model import Config, Model, evaluation_mode
from clearhead.training.recipe import Recipe, TrainingConfig
from clearhead.training.tasks.task import DataConfig, Task


@dataclass(frozen=True)
class TinyConfig(Config):
    d_model: int = 6
    dropout: float = 0.2


class TinyModel(Model):
    config_type = TinyConfig

    def __init__(self, config):
        super().__init__(config)
        d = config.d_model
        self.embedding = nn.Embedding(7, d)
        self.inner = nn.Linear(d, d + 1)
        self.dropout = nn.Dropout(config.dropout)
        self.head = nn.Linear(d + 1, 2)
        self.idle = nn.Parameter(torch.ones(3))  # never has a gradient
        self.register_buffer("table", torch.arange(4.0))
        self.register_buffer("seen", torch.zeros(1))  # moves while it learns

    def forward(self, tokens):
        x = self.embedding(tokens).mean(1)
        if self.training:
            self.seen.add_(x.detach().sum(), alpha=0.01)
        return self.head(self.dropout(torch.relu(self.inner(x))))


@dataclass(frozen=True)
class TinyData(DataConfig):
    n: int = 20
    salt: int = 0

    def open(self):
        return TinyTask(self)


class TinyTask(Task):
    predictor = None  # no test asks it for an answer

    def __init__(self, data):
        numbers = torch.arange(data.n)[:, None] * torch.tensor([3, 5, 11]) + data.salt
        self.tokens = numbers % 7
        self.n_examples = data.n
        self.fingerprint = hashlib.sha256(self.tokens.numpy().tobytes()).hexdigest()

    def complete(self, config):
        return config

    def build(self, config):
        return TinyModel(config)

    def batch(self, plan):
        tokens = self.tokens[torch.as_tensor(plan)]
        return Batch(tokens, tokens.sum(1) % 2)

    def loss(self, model, batch):
        return nn.functional.cross_entropy(model(batch.inputs), batch.targets)

    def evaluate(self, model):
        with evaluation_mode(model):
            return {"val_loss": float(self.loss(model, self.batch(range(self.n_examples))))}

    def overfit(self, n):
        self.tokens, self.n_examples = self.tokens[:n], n
        return self

    def sample(self, model):
        with evaluation_mode(model):
            return f"{float(model(self.tokens[:1])[0, 0]):.6f}"

    def save(self, folder):
        (folder / "tokenizer.json").write_text("{}")


def tiny(steps=12, *, n=20, salt=0, d_model=6, dropout=0.2, **training):
    """A recipe: five batches an epoch, two to a step, dropout, both optimizers, warm-up."""
    wanted = {
        "batch_size": 4,
        "accumulate": 2,
        "lr": 0.02,
        "matrix_lr": 0.05,
        "optimizer": "muon",
        "weight_decay": 0.01,
        "warmup": 0.4,
        "log_every": 2,
        "eval_every": 4,
        "save_every": 3,
        **training,
    }
    data, model = TinyData(n, salt), TinyConfig(d_model, dropout)
    return Recipe("tiny", data, model, TrainingConfig(steps=steps, **wanted))
