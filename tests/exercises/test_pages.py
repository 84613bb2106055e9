"""What is made from the contracts is up to date: `make pages` writes it."""

from pathlib import Path

from clearhead.exercises.catalogue import FILE, make_catalogue
from clearhead.exercises.pages import make_pages

PAGES = Path(__file__).parents[2] / "docs" / "exercises"


def test_the_pages_say_what_the_contracts_say():
    assert {p.name: p.read_text(encoding="utf-8") for p in PAGES.glob("*.md")} == make_pages()


def test_the_catalogue_says_what_the_contracts_say():
    assert FILE.read_text(encoding="utf-8") == make_catalogue()
