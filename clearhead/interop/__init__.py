"""Other projects' weights in our models, and ours in theirs.

    model = load_gpt2("gpt2")                   a Hugging Face folder: config.json and safetensors
    loaded = load("stories15m")                 any kind: .model, .tokenizer, .report
    export(model, "for-transformers")           a GPT of ours as such a folder

gpt2.py, llama.py, bert.py, vit.py      a page for each family: its config, its names and ours
llama2c.py                              models of llama2.c
any_kind.py                             one door for all of them
exporting.py                            a GPT of ours as a folder that transformers loads
mapping.py                              tables of names, and what a file must hold
settings.py                             their config.json, asked by name
weights.py                              one safetensors file, or several and an index
loading.py                              from a folder to a model; the report
tokenizer_json.py, tokenizer_files.py   tokenizers from tokenizer.json and from older files
"""

from clearhead.data.tokenizers import (
    BytePairTokenizer,
    SentencePieceTokenizer,
    WordPieceTokenizer,
)
from clearhead.interop.any_kind import Loaded, load
from clearhead.interop.bert import load_bert
from clearhead.interop.exporting import export
from clearhead.interop.gpt2 import load_gpt2
from clearhead.interop.llama import load_llama
from clearhead.interop.loading import Report
from clearhead.interop.tokenizer_files import find_tokenizer
from clearhead.interop.vit import load_vit
from clearhead.renamed import forward

__all__ = [
    "BytePairTokenizer",
    "Loaded",
    "Report",
    "SentencePieceTokenizer",
    "WordPieceTokenizer",
    "export",
    "find_tokenizer",
    "load",
    "load_bert",
    "load_gpt2",
    "load_llama",
    "load_vit",
]

__getattr__ = forward(__name__)
