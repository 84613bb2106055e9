"""Vocabularies with gaps, doubles and strange ids."""

import pytest

from clearhead.data.tokenizers.subword_tokenizer import sort_by_id


def test_F18_a_gap_a_double_and_a_strange_id_are_refused():
    assert sort_by_id({"b": 1, "a": 0}) == ["a", "b"]
    with pytest.raises(ValueError, match="no token has the id 1, but ids go up to 2"):
        sort_by_id({"a": 0, "b": 2})
    with pytest.raises(ValueError, match="'a' and 'b' have the same id, 0"):
        sort_by_id({"a": 0, "b": 0})
    with pytest.raises(ValueError, match="no token has the id 0"):
        sort_by_id({"a": -1})
    for value in (True, 0.0, "0", None, [0]):
        with pytest.raises(ValueError, match="the id of 'a' must be a whole number"):
            sort_by_id({"a": value})


def test_F18_too_many_tokens_are_refused():
    class Huge(dict):
        def __len__(self):
            return 10_000_000

    with pytest.raises(ValueError, match="a vocabulary has 1 to 1,000,000 tokens, got 10,000,000"):
        sort_by_id(Huge())
