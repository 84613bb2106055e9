"""Tasks: what is predicted from what.

task.py            what they have in common
substrings.py      whether a needle occurs in a haystack
characters.py      the next character of a text
dialogue.py        the next word of a speech
translation.py     a sentence in another language
pictures.py        what a picture shows
sequences.py       the tasks of the smallest transformer
"""

from clearhead.training.tasks.characters import CharacterData, CharacterTask
from clearhead.training.tasks.dialogue import DialogueData, DialogueTask
from clearhead.training.tasks.pictures import PictureData, PictureTask
from clearhead.training.tasks.sequences import SequenceData, SequenceTask
from clearhead.training.tasks.substrings import SubstringData, SubstringTask
from clearhead.training.tasks.task import DataConfig, Task
from clearhead.training.tasks.translation import TranslationData, TranslationTask

__all__ = [
    "CharacterData",
    "CharacterTask",
    "DataConfig",
    "DialogueData",
    "DialogueTask",
    "PictureData",
    "PictureTask",
    "SequenceData",
    "SequenceTask",
    "SubstringData",
    "SubstringTask",
    "Task",
    "TranslationData",
    "TranslationTask",
]
