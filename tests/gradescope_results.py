"""What Gradescope reads: the rules for results.json, as its documentation states them."""

import math

VISIBILITIES = ("visible", "hidden", "after_due_date", "after_published")


def check_results(results):
    """Refuse what Gradescope would not read, or would show wrongly."""
    kinds = {"score": float, "execution_time": int, "output": str, "output_format": str}
    kinds |= {"stdout_visibility": str, "extra_data": dict, "tests": list}
    assert {key: type(value) for key, value in results.items()} == kinds
    assert results["execution_time"] >= 0
    assert results["stdout_visibility"] in VISIBILITIES
    for test in results["tests"]:
        assert 0 <= test["score"] <= test["max_score"] < math.inf
        assert test["status"] in ("passed", "failed")
        assert test["visibility"] in VISIBILITIES
        assert test["output_format"] == "text"
        assert type(test["name"]) is str
        assert test["tags"]
    total = math.fsum(test["max_score"] for test in results["tests"])
    assert 0 <= results["score"] <= total + 0.005
    for text in [results["output"], *(test["output"] for test in results["tests"])]:
        assert len(text.encode()) <= 10_000
        assert all(c.isprintable() or c in "\n\t" for c in text)
