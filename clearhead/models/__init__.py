"""Whole networks; each file is one config and one module.

model.py                  what every model has: a config, a count, a description
gpt.py                    a language model: GPT-2, Llama and small modern ones
"""

from clearhead.models.gpt import GPT, GPTConfig
from clearhead.models.model import Config, Model

__all__ = ["GPT", "Config", "GPTConfig", "Model"]
