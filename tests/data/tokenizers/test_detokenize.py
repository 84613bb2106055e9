"""Tokens as people write them: ordinary prose comes back as it was."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clearhead.data import WordTokenizer
from clearhead.data.tokenizers.detokenize import detokenize
from clearhead.data.tokenizers.word_rules import split_words

PROSE = """\
Before we proceed any further, hear me speak.
The quick brown fox (a red one) didn't jump; it slept.
"Where are you going?" she asked. "Home," said Tom, "if I can."
He paid $3.88 for 20% of the #1 brand at 10:30, i.e. 1,000 pieces.
We'll see: they're late, I've waited, you'd know, I'm sure it's Ann's.
'Tis the boys' ball, and the girls' too... isn't it?
I cannot stay, I'm gonna go; gimme that, lemme see! I wanna, I gotta.
He said--and I quote--"never again".
She asked, 'Why not?' and left.
That cries 'Retire,' if Warwick bid him stay.
“Don’t,” he said, “it’s Bob’s hat.” ‘Fine’ – she nodded.
A pause—a long one—and then nothing.
Write to bob@example.com [or call] {now} & wait.
Rock 'n' roll isn't dead.
The state-of-the-art, 3/4 full, U.S.A. based firm.
One i' the neck, and two o' the thigh: tell th' other.
If you'll bestow a small--of what you have little--
DON'T SHOUT, WE'LL HEAR; IT'S LATE.
What? No! Yes... Well, well.
He was goin' home, singin' all the way.""".splitlines()


def there_and_back(text):
    tokenizer = WordTokenizer.of(text, keep_newlines=True)
    return tokenizer.detokenize(tokenizer.encode(text))


@pytest.mark.parametrize("line", PROSE)
def test_a_line_of_prose_comes_back(line):
    assert there_and_back(line) == line


def test_lines_and_empty_lines_come_back():
    text = "\n".join(PROSE[:3]) + "\n\nAll:\nSpeak, speak.\n"
    assert there_and_back(text) == text


@pytest.mark.parametrize(
    ("tokens", "text"),
    [
        ("", ""),
        ("word", "word"),
        (", word", ", word"),
        ("a ( b ) c", "a (b) c"),
        ("`` a '' `` b ''", '"a" "b"'),
        ("he said -- '' no '' .", 'he said--"no".'),
        ("' a '", "'a'"),
        ("say ' ay ' and ' no '", "say 'ay' and 'no'"),
        ("do n't", "don't"),
        ("can not", "cannot"),
        ("Gon na", "Gonna"),
        ("' Tis", "'Tis"),
        ("we see ' em", "we see 'em"),
        ("it ’ s", "it’s"),
        ("the boys ’ hats", "the boys’ hats"),
        ("$ 5", "$5"),
        ("5 %", "5%"),
        ("<unk> , <unk>", "<unk>, <unk>"),
    ],
)
def test_tokens_stand_where_people_write_them(tokens, text):
    assert detokenize(tokens.split()) == text


def test_a_quote_that_is_open_is_closed_by_the_next_mark_over_lines():
    tokens = ["``", "We", "know", ",", "\n", "we", "know", ".", "''", "he", "said"]
    assert detokenize(tokens) == '"We know,\nwe know." he said'


def test_no_blank_stands_at_a_line_break():
    assert detokenize(["a", "\n", "b", ":", "\n", "\n", "(", "c", ")"]) == "a\nb:\n\n(c)"


@given(
    st.lists(st.sampled_from([*"ab,.;:!?()'’", "''", "``", "--", "n't", "'s", "\n", "can", "not"]))
)
def test_letters_and_marks_are_never_lost_or_doubled(tokens):
    """Only blanks and the spelling of quotes are chosen."""
    written = detokenize(tokens)
    plain = "".join(tokens).replace("``", '"').replace("''", '"')
    assert written.replace(" ", "").replace('"', "").replace("'", "") == plain.replace(
        '"', ""
    ).replace("'", "")
    assert "  " not in written


@given(st.lists(st.sampled_from(["we", "know", "Bob", "12", ",", ".", "?", "\n"]), max_size=12))
def test_prose_is_read_as_the_same_words(tokens):
    """Lines of words and marks give their tokens again, up to where a line's full stop stands."""
    text = detokenize(tokens)
    again = [token for line in text.split("\n") for token in split_words(line)]
    assert "".join(again) == "".join(tokens).replace("\n", "")
