"""The functions that answer the questions of the page, one file per view.

models.py        the models of the studio, and inputs to try
writers.py       open a model that writes text, encode its prompts, name its tokens
tokens.py        a text as tokens
answers.py       the answer of a model: the next token, or a class
changes.py       apply the changes that the page describes inside a model
text.py          attention on a text, and all numbers that explain it
metrics.py       one number for an answer, which changes raise or lower
effects.py       what an answer depends on: heads, other texts, layers, parts
generation.py    the next token, branches, a whole text, and the cache that it fills
generation_lines.py  the Python lines that compute the same as generation.py
lens.py          the logit lens: the next token after each layer
chats.py         how a conversation becomes the tokens of one text
completion_text.py  one text, written up to a stop string, with log probabilities
completions.py   the texts of /v1/completions and /v1/chat/completions
weights.py       histograms of weights, norms and cosines of embeddings
recipes.py       the settings of a recipe, for a form
picture_inputs.py  the picture of a question: a number, or a file
pictures.py      the answer to a picture, its heat maps, and covered patches
beam_tree.py     the beams that a search keeps, as a tree
translation.py   a translation, where each word looked, and its beams
smallest_starts.py  matrices of the smallest transformer: by hand, random, learned, from a run
smallest.py      what these matrices compute, and their training
positions.py     what each position scheme tells attention
kernels.py       softmax attention beside kernel attention
"""

__all__: list[str] = []
