"""Tasks: what is predicted from what, how well, and how the trained model is used.

task.py            what all tasks have: data, loss, metrics, a predictor
tensors.py         tensors in memory: the shortest way to a task of your own
substrings.py      whether a needle occurs in a haystack
characters.py      the next character of a text
token_files.py     the next token of a file that may be larger than the memory
dialogue.py        the next word of a speech
translation.py     a sentence in another language; translation_predictor.py: after training
pictures.py        what a picture shows; picture_predictor.py: after training
sequences.py       the rules of the smallest transformer
published.py       the same rules, sequence by sequence as in the published exercise
"""

from clearhead.training.tasks.characters import CharacterData, CharacterPredictor, CharacterTask
from clearhead.training.tasks.dialogue import DialogueData, DialoguePredictor, DialogueTask
from clearhead.training.tasks.pictures import PictureData, PicturePredictor, PictureTask
from clearhead.training.tasks.published import PublishedSequenceData, PublishedSequenceTask
from clearhead.training.tasks.sequences import SequenceData, SequencePredictor, SequenceTask
from clearhead.training.tasks.substrings import SubstringData, SubstringPredictor, SubstringTask
from clearhead.training.tasks.task import DataConfig, Predictor, Task
from clearhead.training.tasks.tensors import TensorTask
from clearhead.training.tasks.token_files import TokenFileTask
from clearhead.training.tasks.translation import (
    TranslationData,
    TranslationPredictor,
    TranslationTask,
)

__all__ = [
    "CharacterData",
    "CharacterPredictor",
    "CharacterTask",
    "DataConfig",
    "DialogueData",
    "DialoguePredictor",
    "DialogueTask",
    "PictureData",
    "PicturePredictor",
    "PictureTask",
    "Predictor",
    "PublishedSequenceData",
    "PublishedSequenceTask",
    "SequenceData",
    "SequencePredictor",
    "SequenceTask",
    "SubstringData",
    "SubstringPredictor",
    "SubstringTask",
    "Task",
    "TensorTask",
    "TokenFileTask",
    "TranslationData",
    "TranslationPredictor",
    "TranslationTask",
]
