"""Where sentences end, after Punkt (Kiss and Strunk 2006), with short lists of our own.

    I am here. You are there.         a full stop, ? or ! before a space or a mark ends a sentence
    Mr. Smith is in St. Albans.       … but not after an abbreviation
    E. Smith left. So did I. Why?     … nor after an initial; I is a word unless a name follows
    the 2. and the 3. prize           … nor after a number before a small letter

Closing quotes and brackets belong to the sentence before them: `He said "Go." She went.` Of several
marks without a space between them only the last can end a sentence: `What?!--Go.`

NLTK's word_tokenize splits sentences by a Punkt model trained on newspapers. Its tables decide for
each word whether it starts a sentence after `Mrs.` or `I.`; here two lists of common words do. So a
few texts differ; docs/data.md counts them.
"""

import re
from itertools import pairwise

BREAK = "\n"  # what mark_sentences writes between two sentences
END = "\x0c"  # what stands between two texts


def _list(words: str) -> frozenset[str]:
    return frozenset(words.split())


# Without the last full stop. NLTK's model takes Ill., Wash. and Wed. for Illinois, Washington and
# Wednesday, and does not know Mar., Sat., etc. and e.g., so neither do we.
ABBREVIATIONS = _list("""
    mr mrs ms messrs dr prof sr jr st gen col maj lt adm rep sen co corp inc ltd bros vs ave ft ph.d
    a.m p.m a.d u.s u.s.a u.k u.n d.c n.y n.j l.a
    jan feb aug sep sept oct nov dec tues wed fri
    ala ariz calif colo conn fla ga ill kan ky mich minn nev okla ore pa tenn va vt wash wis
""")
INITIALS = frozenset("cdefghklmnprstvw")  # NLTK takes the other letters for words, as it does I
NUMBER = re.compile(r"-?[.,]?\d[\d,.-]*")

# These start a sentence after an abbreviation. Page does, too, as NLTK splits `Mrs. Page`.
STARTERS = _list("""
    besides but even he her here however if in it many most page since so some still such the there
    these they this though through thus under when which while without yet your
""")
# These are not names, so they start a sentence after the word I.
NOT_NAMES = STARTERS | _list("""
    a about after again all also although am an and another any are as at be because been before
    blow both break burn by can come could dead did do does down draw each every few fields first
    for from get give go good had has have hence him his how i'll is its just last let like live
    look make may me men more much must my never new no none not now of on once one only open or
    other our out over peace plain prove say scene see she should sit speak stand street take tell
    than that their them then think those till to too until up was we well were what where who whose
    why will with within would yes you
""")

MARKS = re.escape(""")";}]*:@'({[?!‘’“”«»""")  # a word ends before any of them
SPACE = rf"[^\S{END}]"
ENDING = re.compile(
    rf"(?<!\S)(\S*[.?!])(?=[{MARKS}]|{SPACE}+(\S+))"  # the last mark of a run, and what comes next
    rf"""{SPACE}*(?:["')\]}}‘’“”«»]+(?:{SPACE}+|(?=--|{END}|\Z)))?"""  # closing marks
)
TOKEN = re.compile(
    rf"-{{2,}}|\.{{2,}}"
    rf"|[^\s(\"`{{\[:;&#*@)}}\]\-,](?:(?!--|\.\.|,(?:[\s{MARKS}]|--|\.\.|\Z))[^\s{MARKS}])*"
    rf"|\S"
)


def mark_sentences(texts: str) -> str:
    """Put BREAK after every sentence that another one follows; END stands between two texts."""
    return ENDING.sub(_mark, texts)


def _mark(found: re.Match[str]) -> str:
    run, following = found.groups()
    return found[0] + BREAK if _has_end(run, following or found.string[found.end(1)]) else found[0]


def _has_end(run: str, following: str) -> bool:
    """Whether a sentence ends in this run of characters; following: the text after it."""
    word = run[:-1]
    if run[-1] != "." or (len(word) > 1 and word.isalpha() and word.lower() not in ABBREVIATIONS):
        return True  # the usual case, decided without splitting into tokens
    tokens = TOKEN.findall(f"{run} {following}")
    return any(_is_end(token, after) for token, after in pairwise(tokens))


def _is_end(token: str, after: str) -> bool:
    """Whether a token ends a sentence; after: the next token."""
    if token in (".", "?", "!"):
        return True
    if not token.endswith(".") or token.endswith(".."):
        return False
    word, next_word = token[:-1].lower(), after.lower().removesuffix(".")
    if len(word) == 1 and word.isalpha():
        is_name = after[0].isupper() and next_word not in NOT_NAMES
        return not (word in INITIALS or is_name or _continues(after))
    if NUMBER.fullmatch(word):
        return not _continues(after)
    last = word.rpartition("-")[2]
    if last in ABBREVIATIONS or last in INITIALS:  # vice-sen. and 2-D.
        return after[0].isupper() and next_word in STARTERS
    return True


def _continues(token: str) -> bool:
    """Whether no sentence starts with this token."""
    return token[0].islower() or token in (";", ":", ",", ".", "!", "?")
