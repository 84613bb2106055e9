"""Answerers: how a trained model is asked, and what its numbers mean.

answerer.py        what they have in common
substrings.py      whether a needle occurs in a haystack
characters.py      the next character of a text
dialogue.py        the next words of a speech
translation.py     a sentence in another language
pictures.py        what a picture shows
sequences.py       the rules of the smallest transformer
"""

from clearhead.training.answerers.answerer import Answerer
from clearhead.training.answerers.characters import CharacterAnswerer
from clearhead.training.answerers.dialogue import DialogueAnswerer
from clearhead.training.answerers.pictures import PictureAnswerer
from clearhead.training.answerers.sequences import SequenceAnswerer
from clearhead.training.answerers.substrings import SubstringAnswerer
from clearhead.training.answerers.translation import TranslationAnswerer

__all__ = [
    "Answerer",
    "CharacterAnswerer",
    "DialogueAnswerer",
    "PictureAnswerer",
    "SequenceAnswerer",
    "SubstringAnswerer",
    "TranslationAnswerer",
]
