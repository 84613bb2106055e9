"""Pages and examples that are made from the contracts are up to date."""

import json
from pathlib import Path

from clearhead.exercises.pages import make_pages
from clearhead.exercises.template import EXAMPLES, make_examples

PAGES = Path(__file__).parents[2] / "docs" / "exercises"


def test_the_pages_say_what_the_contracts_say():
    assert {p.name: p.read_text(encoding="utf-8") for p in PAGES.glob("*.md")} == make_pages()


def test_the_examples_of_the_templates_are_right():
    assert json.loads(EXAMPLES.read_text(encoding="utf-8")) == make_examples()
