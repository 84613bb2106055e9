"""What is made from the contracts is up to date: `make pages` writes it."""

from pathlib import Path

from clearhead.exercises.catalogue import FILE, make_catalogue, read_entry
from clearhead.exercises.categories import MISTAKES, TERMS
from clearhead.exercises.contracts import EXERCISES, find_exercise
from clearhead.exercises.pages import make_pages

PAGES = Path(__file__).parents[2] / "docs" / "exercises"


def test_the_pages_say_what_the_contracts_say():
    assert {p.name: p.read_text(encoding="utf-8") for p in PAGES.glob("*.md")} == make_pages()


def test_the_catalogue_says_what_the_contracts_say():
    assert FILE.read_text(encoding="utf-8") == make_catalogue()


def test_the_categories_are_those_of_default_and_their_terms_exist():
    known = "Embedding LayerNorm FFN Residual Output Masking QKV Positional Score Variant"
    used = {each for terms in TERMS.values() for each in terms.values()}
    assert used | {each for each in MISTAKES.values() if each} == {*known.split(), "KV cache"}
    every = {id for name in EXERCISES for id in find_exercise(name).mistakes}
    assert set(MISTAKES) <= every
    for name in TERMS:
        found = {each["category"] for each in read_entry(name).mistakes.values()}
        assert found - {None}, name


def test_a_mistake_has_its_category_in_the_catalogue():
    mistakes = read_entry("attention").mistakes
    assert mistakes["mask_inverted"]["category"] == "Masking"
    assert mistakes["no_scaling"]["category"] == "Score"
    assert read_entry("warmup_schedule").mistakes["no_decay"]["category"] is None
