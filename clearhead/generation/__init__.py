"""From logits to sequences. Read in this order:

sampling.py       one token from its logits: greedy, temperature, top-k, top-p, min-p, penalty
row_sampler.py    the next token of each row of a batch, each row with a random generator
reader.py         a model read token by token, with a cache or without
rolling.py        reading past the context length: continue from the last half
prompt.py         the checks of a prompt and of how much to generate
row_text.py       the text that each new token adds
prose.py          words as prose; the tokens that end a text, and those left out
generate.py       generate and stream: the tokens after a prompt
beam.py           the best sequences of a translator
fast/             pack(model): a copy of a GPT's weights laid out for fast decoding on a CPU
"""

from clearhead.generation.beam import BeamResult, beam_search
from clearhead.generation.fast import PackedGPT, can_pack, pack, pack_if_it_pays
from clearhead.generation.generate import Step, generate, stream
from clearhead.generation.sampling import Sampling, choose, likely

__all__ = [
    "BeamResult",
    "PackedGPT",
    "Sampling",
    "Step",
    "beam_search",
    "can_pack",
    "choose",
    "generate",
    "likely",
    "pack",
    "pack_if_it_pays",
    "stream",
]
