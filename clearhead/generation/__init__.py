"""From logits to sequences. Read in this order:

sampling.py      one token: greedy, temperature, top-k, top-p, min-p, repetition penalty
step.py          a model run token by token, with a cache or without
rolling.py       going on when the context is full
generate.py      generate and stream: tokens after a prompt
growing_text.py  the text of a row as its tokens come
beam.py          the best sequences of a translator
products.py      x Wᵀ for few rows: how weights lie in memory, and in 8 bits
best_word.py     the most likely word without reading the whole table
packed_gpt.py    the weights of a GPT laid out for decoding
step_fast.py     step.py in few, large operations
"""

from clearhead.generation.beam import BeamResult, beam_search
from clearhead.generation.generate import Step, generate, stream
from clearhead.generation.sampling import Sampling, choose, likely

__all__ = [
    "BeamResult",
    "Sampling",
    "Step",
    "beam_search",
    "choose",
    "generate",
    "likely",
    "stream",
]
