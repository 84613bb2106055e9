"""Weights of other projects in our models, and ours in theirs.

    loaded = load("stories15m")             any known kind: .model, .tokenizer, .report
    model = load_gpt2("gpt2")               a Hugging Face folder: config.json and safetensors
    export(model, "for-transformers")       our GPT as such a folder
    export_gguf(model, "model.gguf")        our GPT as a file for llama.cpp
    export_onnx(model, "model.onnx", x)     any model as a file for ONNX runtimes

Read in this order:

    load.py                                 load any known kind of model
    gpt2.py, llama.py, qwen3.py, bert.py, vit.py
                                            one file per family: its config, its names and ours
    name_table.py                           how such a table is written; what a file must hold
    hugging_face.py                         from a folder to a model
    config_json.py, weight_files.py         the two halves of a folder: settings and tensors
    fill.py, report.py                      tensors into a model; what was loaded
    llama2c.py                              the single file of llama2.c
    tokenizer_files.py, tokenizer_json.py   tokenizers, from the files beside the weights
    export.py, tokenizer_export.py          from our GPT to a folder that transformers loads
    gguf.py, onnx.py                        files for other programs
"""

from clearhead.data.tokenizers import BytePairTokenizer, SentencePieceTokenizer, WordPieceTokenizer
from clearhead.interop.bert import load_bert
from clearhead.interop.export import export
from clearhead.interop.gguf import export_gguf
from clearhead.interop.gpt2 import load_gpt2
from clearhead.interop.llama import load_llama
from clearhead.interop.load import Loaded, load
from clearhead.interop.onnx import export_onnx
from clearhead.interop.qwen3 import load_qwen3
from clearhead.interop.report import Report
from clearhead.interop.tokenizer_files import find_tokenizer
from clearhead.interop.vit import load_vit

__all__ = [
    "BytePairTokenizer",
    "Loaded",
    "Report",
    "SentencePieceTokenizer",
    "WordPieceTokenizer",
    "export",
    "export_gguf",
    "export_onnx",
    "find_tokenizer",
    "load",
    "load_bert",
    "load_gpt2",
    "load_llama",
    "load_qwen3",
    "load_vit",
]
