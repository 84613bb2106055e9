"""Whole networks; each file is one config and one module.

model.py                  the base of every model: its config, its size, its description
gpt.py                    a language model: GPT-2, Llama and small modern ones
classifier.py             an answer about a whole string: the substring matcher
vit.py                    pictures as sequences of patches
encoder.py                a vector for each token from both directions: BERT
seq2seq.py                the interface of the two translators
encoder_decoder.py        a GRU encoder, and a GRU decoder that attends to its outputs
seq2seq_gru.py            both as a translator
seq2seq_transformer.py    encoder and decoder of blocks
smallest/                 one layer, one head, its weights set by hand
ngrams.py                 the next token by counting: what a language model must beat
checks.py                 checks that several models share
forbidden.py              token ids that are never produced, such as <unk>
registry.py               build the model a config describes
"""

from clearhead.config import Config
from clearhead.models.classifier import ClassifierConfig, SequenceClassifier
from clearhead.models.encoder import TextEncoder, TextEncoderConfig
from clearhead.models.encoder_decoder import AttentionDecoder, GRUEncoder
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
    "AttentionDecoder",
    "ClassifierConfig",
    "Config",
    "GPTConfig",
    "GRUEncoder",
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
