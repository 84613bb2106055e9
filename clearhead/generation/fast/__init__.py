"""Fast decoding of a GPT on a CPU: generate(pack(model), tokens, n_tokens).

layouts.py        x Wᵀ for few rows x: how W lies in memory, and W in 8 bits
best_word.py      the most likely word without reading the whole vocabulary table
packed_gpt.py     pack: a snapshot of a model's weights, laid out for decoding
packed_reader.py  reader.py on packed weights, in few, large operations
"""

from clearhead.generation.fast.packed_gpt import PackedGPT, can_pack, pack, pack_if_it_pays
from clearhead.generation.fast.packed_reader import PackedReader

__all__ = ["PackedGPT", "PackedReader", "can_pack", "pack", "pack_if_it_pays"]
