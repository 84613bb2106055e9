"""Whole networks; each file is one config and one module.

model.py                  what every model has: a config, a count, a description
checks.py                 what more than one of them checks
classifier.py             an answer about a whole string: the substring matcher
vit.py                    pictures as sequences of patches
gpt.py                    a language model: GPT-2, Llama and small modern ones
encoder.py                a text read from both sides: BERT
seq2seq.py                what the two translators share
seq2seq_gru.py            recurrent, with attention
seq2seq_transformer.py    encoder and decoder of blocks
ngrams.py                 counting, the baseline of every language model
smallest/                 one layer, one head, its weights set by hand
registry.py               build the model a config describes
"""

from clearhead.config import Config
from clearhead.models.classifier import ClassifierConfig, SequenceClassifier
from clearhead.models.encoder import TextEncoder, TextEncoderConfig
from clearhead.models.gpt import GPT, GPTConfig
from clearhead.models.model import Model
from clearhead.models.registry import build_model
from clearhead.models.seq2seq import Seq2Seq
from clearhead.models.seq2seq_gru import Seq2SeqGRU, Seq2SeqGRUConfig
from clearhead.models.seq2seq_transformer import Seq2SeqTransformer, Seq2SeqTransformerConfig
from clearhead.models.smallest.torch_form import TorchTransformerConfig
from clearhead.models.vit import VisionTransformer, ViTConfig

__all__ = [
    "GPT",
    "ClassifierConfig",
    "Config",
    "GPTConfig",
    "Model",
    "Seq2Seq",
    "Seq2SeqGRU",
    "Seq2SeqGRUConfig",
    "Seq2SeqTransformer",
    "Seq2SeqTransformerConfig",
    "SequenceClassifier",
    "TextEncoder",
    "TextEncoderConfig",
    "TorchTransformerConfig",
    "ViTConfig",
    "VisionTransformer",
    "build_model",
]
