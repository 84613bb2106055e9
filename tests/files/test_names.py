"""Names that are safe as the name of a file."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clearhead.files import BadFile, check_file_name

UNSAFE = [
    *("", ".", "..", "../x", "..\\x", "a/b", "a\\b", "/etc/passwd", "//server/x", "\\\\server\\x"),
    *("C:", "C:x", "c:\\x", "a:b", "~", "~root", "$HOME", "%TEMP%", "`id`", "a;b", "a|b", "a*"),
    *("a\0b", "a\nb", "a\rb", "a\tb", "\x1b[2J", "a\x7f", "a\u202eb", "a\u200bb", "\ud800"),
    *("x" * 101, "x" * 4000, "ü" * 101, "字" * 80, "con", "NUL", "nul.txt", "Aux.tar.gz", "COM1"),
    *("lpt9", "com¹", "conin$", "-rf", "--help", ".git", " a", "a ", "a.", "a..b", "a  b", "_"),
    *("e\u0301", "a<b", "a>b", 'a"b', "a'b", "a?b", "#a", "a&b", "(a)", "a,b", "\ufeffa"),
]


def test_F13_the_list_has_at_least_forty_names():
    assert len(set(UNSAFE)) >= 40


@pytest.mark.parametrize("name", UNSAFE)
def test_F13_an_unsafe_name_is_refused_in_one_line(name):
    with pytest.raises(BadFile, match=r"run name .*; use letters, digits") as fault:
        check_file_name(name, "run name")
    assert str(fault.value).isprintable()
    assert len(str(fault.value)) < 400


@pytest.mark.parametrize(
    "name",
    [
        "a",
        "7",
        "substring-0001",
        "vit_cifar10.json",
        "lr=0.1+warm",
        "my run",
        "größe",
        "模型",
        "x" * 100,
        *("console", "com", "com10", "null", "a.b.c", "auxiliary.txt"),
    ],
)
def test_a_plain_name_comes_back(name):
    assert check_file_name(name) == name


@given(st.text(max_size=120))
def test_a_name_that_passes_is_one_file_in_this_folder(tmp_path_factory, name):
    folder = tmp_path_factory.getbasetemp()
    try:
        check_file_name(name)
    except BadFile:
        return
    path = (folder / name).resolve()
    assert path.parent == folder.resolve()
    path.touch()
    assert path.name == name
    path.unlink()


def test_what_is_no_word_is_a_type_error():
    with pytest.raises(TypeError, match="name must be a word, got 7 of type int"):
        check_file_name(7)
