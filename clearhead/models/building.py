"""The model that a config is of.

    build_model(GPTConfig(vocab_size=65, max_len=64, d_model=128, n_layers=2, n_heads=4))   a GPT

So what names a config, such as a file, names a model too.
"""

from clearhead.config import Config
from clearhead.models.classifier import SequenceClassifier
from clearhead.models.encoder import TextEncoder
from clearhead.models.gpt import GPT
from clearhead.models.model import Model
from clearhead.models.seq2seq_gru import Seq2SeqGRU
from clearhead.models.seq2seq_transformer import Seq2SeqTransformer
from clearhead.models.smallest.torch_form import TorchTransformer
from clearhead.models.vit import VisionTransformer

MODELS: tuple[type[Model], ...] = (
    *(SequenceClassifier, VisionTransformer, GPT, TextEncoder),
    *(Seq2SeqGRU, Seq2SeqTransformer, TorchTransformer),
)


def build_model(config: Config) -> Model:
    """A new model of this config."""
    for model in MODELS:
        if type(config) is model.config_type:
            return model(config)
    known = ", ".join(model.config_type.__name__ for model in MODELS)
    raise TypeError(
        f"a model is built from its config, one of {known}, got a {type(config).__name__}"
    )
