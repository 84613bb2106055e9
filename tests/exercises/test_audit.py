"""Handouts with one mistake each, and the same handouts put right."""

import doctest
import json
import re
from contextlib import nullcontext
from pathlib import Path

import pytest

from clearhead.exercises.audit.audit import audit
from clearhead.exercises.audit.digits import agree
from clearhead.exercises.audit.formulas import normalize
from clearhead.exercises.audit.handout import read_handout
from clearhead.exercises.audit.rules import CODE_RULES, RULES
from clearhead.exercises.sandbox.direct import DirectSession

DOCS = Path(__file__).parent.parent.parent / "docs"


class Direct:
    """No sandbox: the handouts of these tests are ours."""

    level = "none"

    def open(self, **_):
        return nullcontext(DirectSession())


@pytest.fixture
def check(tmp_path):
    """Audit a text: the report."""

    def check(text, name="handout.md"):
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return audit(path, Direct())

    return check


def code(*lines):
    return "\n".join(["```python", *lines, "```"])


# (id of the rule, wrong, right): sentences of a handout, each in two forms
TEXTS = [
    ("doubled_exponent",
     r"$$PE(pos, i) = \sin\left(\frac{pos}{10000^{2i/d}}\right)$$",
     r"$$PE(pos, 2i) = \sin\left(\frac{pos}{10000^{2i/d}}\right)$$"),
    ("doubled_exponent",
     "Dimension dim has the angle pos / 10000^(2·dim/d).",
     "Dimension dim has the angle pos / 10000^(2·(dim // 2)/d)."),
    ("doubled_exponent",
     "Position 1 should look like 1.0677 1.0222 1.4808.",
     "Position 1 should look like 1.0677 0.9929 1.5007."),
    ("cosine_own_index",
     r"$PE(pos, 2i+1) = \cos(pos / 10000^{(2i+1)/d})$",
     r"$PE(pos, 2i+1) = \cos(pos / 10000^{2i/d})$"),
    ("variance",
     r"If the entries have variance $\sigma^2$, then $\mathrm{Var}(q \cdot k) = d_k \sigma^2$.",
     r"If the entries have variance $\sigma^2$, then $\mathrm{Var}(q \cdot k) = d_k \sigma^4$."),
    ("variance", "So Var(q·k) = dσ², and we divide.", "So Var(q·k) = dσ⁴, and we divide."),
    ("variance", "Var[q^T k] = d * sigma**2", "Var[q^T k] = d * sigma**2 * sigma**2"),
    ("inverted_mask",
     "Fill the scores where position < length with −∞.",
     "Fill the scores where position >= length with −∞."),
    ("inverted_mask",
     r"Set the scores of all positions < valid_len to $-\infty$.",
     r"Keep the scores of all positions < valid_len and set the others to $-\infty$."),
    ("length_off_by_one",
     "The mask keeps the keys with position <= length.",
     "The mask keeps the keys with position < length."),
    ("heads_without_transpose",
     "To split the heads, use `x.reshape(B, H, T, Dh)`.",
     "To split the heads, use `x.reshape(B, T, H, Dh).transpose(1, 2)`."),
    ("features_without_cross_terms",
     "The features of (q·k + 1)² are 1, √2·x_i and x_i².",
     "The features of (q·k + 1)² are 1, √2·x_i and x_i², and √2·x_i x_j for i < j."),
    ("features_without_cross_terms",
     r"For $(x \cdot y + 1)^2$ take $(1, \sqrt{2} x_1, \sqrt{2} x_2, x_1^2, x_2^2)$.",
     r"For $(x \cdot y + 1)^2$: $(1, \sqrt{2}x_1, \sqrt{2}x_2, x_1^2, x_2^2, \sqrt{2}x_1x_2)$."),
    ("fourier_width",
     r"For $k(x,y) = \exp(-\|x-y\|^2 / 2\sigma^2)$ draw $w \sim \mathcal{N}(0, \sigma^2 I)$.",
     r"For $k(x,y) = \exp(-\|x-y\|^2 / 2\sigma^2)$ draw $w \sim \mathcal{N}(0, \sigma^{-2} I)$."),
    ("fourier_width",
     "The kernel exp(−‖x − y‖²/2σ²): the frequencies are drawn with the standard deviation σ.",
     "The kernel exp(−‖x − y‖²/2σ²): the frequencies are drawn with the standard deviation 1/σ."),
    ("summed_scores",
     r"Attention: $\alpha_t = \sum_j (Q x_t) \cdot (K x_j) / \sqrt{T}$, then softmax over t.",
     r"Attention: $\alpha_{tj} = (Q x_t) \cdot (K x_j) / \sqrt{d}$, then softmax over j."),
    ("same_keys",
     "To find the first token, use the same key for every position.",
     "To find the first token, give position 0 a key of its own."),
    ("scale_without_root",
     r"$$\mathrm{softmax}\left(\frac{QK^\top}{d_k}\right)V$$",
     r"$$\mathrm{softmax}\left(\frac{QK^\top}{\sqrt{d_k}}\right)V$$"),
    ("scale_after_softmax",
     r"$\text{softmax}(QK^T) V / \sqrt{d_k}$",
     r"$\text{softmax}(QK^T / \sqrt{d_k}) V$"),
    ("slice", "The even columns are `table[:, 0:2:]`.", "The even columns are `table[:, 0::2]`."),
    ("randint",
     "`np.random.randint(1, 5)` draws a number from 1 to 5.",
     "`np.random.randint(1, 6)` draws a number from 1 to 5."),
    ("rtol",
     "Compare with `np.allclose(answer, expected, rtol=1)`.",
     "Compare with `np.allclose(answer, expected, rtol=1e-3)`."),
    ("softmax_overflow",
     "The softmax is `np.exp(s) / np.exp(s).sum()`.",
     "The softmax is `np.exp(s - s.max()) / np.exp(s - s.max()).sum()`."),
]  # fmt: skip
CODES = [
    ("slice", "pe[:, 0:2:] = torch.sin(x)", "pe[:, 0::2] = torch.sin(x)"),
    ("softmax_overflow",
     "def f(x):\n    e = torch.exp(x)\n    return e / e.sum(-1, keepdim=True)",
     "def f(x):\n    e = torch.exp(x - x.max())\n    return e / e.sum(-1, keepdim=True)"),
    ("inverted_mask",
     "mask = torch.arange(n)[None] < valid_lens[:, None]\ns = s.masked_fill(mask, -1e9)",
     "mask = torch.arange(n)[None] < valid_lens[:, None]\ns = s.masked_fill(~mask, -1e9)"),
    ("inverted_mask",
     "mask = torch.tril(torch.ones(T, T)).bool()\ns = s.masked_fill(mask, float('-inf'))",
     "mask = torch.tril(torch.ones(T, T)).bool()\ns = s.masked_fill(mask == 0, float('-inf'))"),
    ("inverted_mask",
     "s[torch.arange(n) < length] = -float('inf')",
     "s[torch.arange(n) >= length] = -float('inf')"),
    ("length_off_by_one",
     "mask = torch.arange(n) <= lens[:, None]", "mask = torch.arange(n) < lens[:, None]"),
    ("doubled_exponent",
     "for i in range(0, d, 2):\n    pe[:, i] = torch.sin(p / 10000 ** (2 * i / d))",
     "for i in range(0, d, 2):\n    pe[:, i] = torch.sin(p / 10000 ** (i / d))"),
    ("doubled_exponent",
     "f = 1 / 10000 ** (2 * torch.arange(0, d, 2) / d)",
     "f = 1 / 10000 ** (torch.arange(0, d, 2) / d)"),
    ("heads_without_transpose",
     "q = self.q_proj(x).view(B, H, T, -1)",
     "q = self.q_proj(x).view(B, T, H, -1).transpose(1, 2)"),
    ("features_without_cross_terms",
     "def phi(x):\n    return torch.cat([torch.ones(1), math.sqrt(2) * x, x**2])",
     "def phi(x):\n    i, j = torch.triu_indices(len(x), len(x), 1)\n"
     "    return torch.cat([torch.ones(1), math.sqrt(2) * x, x**2, math.sqrt(2) * x[i] * x[j]])"),
    ("fourier_width",
     "w = sigma * torch.randn(m, d)\nkernel = torch.exp(-r / (2 * sigma ** 2))",
     "w = torch.randn(m, d) / sigma\nkernel = torch.exp(-r / (2 * sigma ** 2))"),
    ("rtol", "torch.allclose(a, b, rtol=1.0)", "torch.allclose(a, b, rtol=1e-4)"),
]  # fmt: skip
SENTENCES = {rule.id: rule.sentence for rule in RULES}
SENTENCES |= {name: sentence for name, (sentence, _) in CODE_RULES.items()}


@pytest.mark.parametrize(("rule", "wrong", "right"), TEXTS)
def test_a_wrong_claim_in_a_text_is_found_and_a_right_one_is_not(check, rule, wrong, right):
    report = check(f"# Week 4\n\n{wrong}\n")
    assert SENTENCES[rule] in [each.sentence for each in report.findings], normalize(wrong)
    assert {each.line for each in report.findings} == {3}
    assert all(each.proof for each in report.findings)
    assert check(f"# Week 4\n\n{right}\n").findings == [], normalize(right)


@pytest.mark.parametrize(("rule", "wrong", "right"), CODES)
def test_a_wrong_line_of_code_is_found_and_a_right_one_is_not(check, rule, wrong, right):
    report = check(f"Write it like this:\n\n{code(wrong)}\n")
    assert [each.sentence for each in report.findings] == [SENTENCES[rule]]
    assert 4 <= report.findings[0].line <= 6
    assert check(f"Write it like this:\n\n{code(right)}\n").findings == []


def test_equal_keys_for_first_are_found_in_code(check):
    text = "Set the weights by hand for `first`.\n\n" + code("Km = np.ones((5, 1))")
    assert [each.sentence for each in check(text).findings] == [SENTENCES["same_keys"]]
    assert check(text.replace("first", "identity")).findings == []


@pytest.mark.parametrize("name", [*SENTENCES])
def test_every_proof_runs_and_every_rule_has_a_handout(name):
    proof = next((r.proof for r in RULES if r.id == name), None) or CODE_RULES[name][1]
    test = doctest.DocTestParser().get_doctest(proof + "\n", {}, name, None, 0)
    assert doctest.DocTestRunner().run(test).failed == 0
    assert name in {each[0] for each in TEXTS + CODES}


def test_an_example_of_unique_is_computed(check):
    wrong = check("For `unique`, [C, A, C] gives [−1, 1, 1].")
    assert wrong.findings[0].sentence == "for [C, A, C] unique gives [-1, 1, -1], not [-1, 1, 1]"
    assert check("For `unique`, [C, A, C] gives [−1, 1, −1].").findings == []


def test_a_text_that_calls_a_claim_wrong_is_noted_and_not_accused(check):
    report = check("A common mistake: Var(q·k) = dσ².")
    assert report.findings == []
    assert report.notes[0].sentence == "variance: the text itself calls it wrong"


# Running the code


SEEDED = "import torch\ntorch.manual_seed(0)\nprint(torch.randn(3))"


@pytest.mark.parametrize("between", ["", "\nYour result should look like this:\n"])
def test_printed_numbers_are_computed_again(check, between):
    right = f"{code(SEEDED)}\n{between}\n```\ntensor([ 1.5410, -0.2934, -2.1788])\n```\n"
    assert check(right).findings == []
    assert check(right).checked == 1
    (finding,) = check(right.replace("2934", "2834")).findings
    assert finding.kind == "wrong"
    assert "the code prints tensor([ 1.5410, -0.2934, -2.1788])" in finding.sentence


def test_numbers_without_a_seed_are_unchecked(check):
    report = check(code("import torch", "print(torch.randn(2))") + "\n```\ntensor([0.5, 0.1])\n```")
    assert report.findings == []
    assert "no seed is set" in report.notes[0].sentence


def test_examples_comments_and_notebooks_are_read(check):
    assert check("```python\n>>> 2 ** 0.5\n1.4142135\n```").checked == 1
    assert len(check("```python\n>>> 2 ** 0.5\n1.5\n```").findings) == 1
    assert len(check(code("print(1 / 3)  # 0.3334")).findings) == 1
    assert check(code("print(1 / 3)  # prints 0.3333")).findings == []
    cells = [
        {"cell_type": "markdown", "source": ["# Title\n", "Var(q·k) = dσ²"]},
        {"cell_type": "code", "source": "%matplotlib inline\n1 / 4",
         "outputs": [{"output_type": "execute_result", "data": {"text/plain": ["0.26"]}}]},
    ]  # fmt: skip
    report = check(json.dumps({"cells": cells}), "sheet.ipynb")
    assert [each.where for each in report.findings] == ["cell 1, line 2", "cell 2, line 1"]
    text = (
        "Run this:\n\nimport torch\ntorch.manual_seed(0)\nprint(torch.randn(1))\n\ntensor([1.6])\n"
    )
    assert [each.line for each in check(text, "sheet.txt").findings] == [7]


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("x = torch.zeros(2, 5, 8)  # (2, 5, 9)", "x = torch.zeros(2, 5, 8)  # (2, 5, 8)"),
        ("x.mT  # torch.Size([4, 3])", "x.mT  # torch.Size([4, 7])"),
        ("T, B = 4, 7\ny = x + 1  # (T, B)", "T, B = 7, 4\ny = x + 1  # shape: (T, B)"),
        (
            "def f(x):\n    return x.mT  # (7, 4)\nf(x)",
            "def f(x):\n    return x.mT  # (4, 7)\nf(x)",
        ),
    ],
)
def test_shapes_in_comments_are_compared(check, wrong, right):
    start = "import torch\nx = torch.zeros(7, 4)\n"
    (finding,) = check(code(start + wrong)).findings
    assert "the shape is" in finding.sentence
    assert check(code(start + right)).findings == []


def test_shapes_in_sentences_are_compared(check):
    start = code("import torch", "out = torch.zeros(2, 5, 256)")
    assert check(start + "\n\nThe tensor `out` has shape (2, 5, 256).").findings == []
    (finding,) = check(start + "\n\nThe tensor `out` has shape (2, 256, 5).").findings
    assert finding.sentence == "the shape is (2, 5, 256), not (2, 256, 5)"
    assert check("Then `other.shape` is (3, 4).\n\n" + start).notes[0].line == 1


# Tests with wrong answers

TASK = """\
Write `attention(q, k, v)`.

```python
import math
import torch

def attention(q, k, v):
    raise NotImplementedError
```

```python
torch.manual_seed(1)
q, k, v = torch.randn(2, 5, 4), torch.randn(2, 7, 4), torch.randn(2, 7, 3)
output = attention(q, k, v)
output = output[0] if isinstance(output, tuple) else output
expected = (q @ k.mT / math.sqrt(4)).softmax(-1) @ v
assert {}
```
"""


def test_a_loose_test_is_shown_by_the_wrong_answers_that_pass(check):
    report = check(TASK.format("torch.allclose(output, expected, atol=10)"))
    kinds = {each.kind for each in report.findings}
    proofs = "\n".join(each.proof for each in report.findings)
    assert kinds == {"weak test"}
    assert "accepted by: " in proofs
    assert "scaled_by_d" in proofs
    assert "an answer of zeros passes" in report.text


@pytest.mark.parametrize("weak", ["output.shape == (2, 5, 3)", "output.isfinite().all()"])
def test_a_test_of_shapes_alone_is_weak(check, weak):
    (finding,) = check(TASK.format(weak)).findings
    assert (finding.kind, finding.line) == ("weak test", 17)
    assert "no_scaling" in finding.proof
    assert "softmax" in finding.proof


def test_shapes_of_what_the_student_writes_are_those_of_a_right_answer(check):
    text = TASK.format("torch.allclose(output, expected, atol=1e-5)")
    text = text.replace("else output", "else output  # (2, 7, 3)")
    (finding,) = check(text).findings
    assert finding.sentence == "the shape is (2, 5, 3), not (2, 7, 3)"
    assert check(text.replace("(2, 7, 3)\n", "(2, 5, 3)\n")).findings == []


def test_a_strict_test_is_not_accused(check):
    report = check(TASK.format("torch.allclose(output, expected, atol=1e-5)"))
    assert report.findings == [], report.text
    assert any("cannot show" in each.sentence for each in report.notes)


def test_a_test_that_expects_a_mistake_is_wrong(check):
    text = TASK.format("torch.allclose(output, expected, atol=1e-5)")
    (finding,) = check(text.replace("math.sqrt(4)", "4")).findings
    assert finding.kind == "wrong"
    assert "it expects scaled_by_d" in finding.sentence


def test_numbers_of_a_wrong_answer_are_named(check):
    task = code("import torch", "torch.manual_seed(1)", "q = torch.randn(2, 3, 4)",
                "out = attention(q, q + 1, q)", "out = out[0] if isinstance(out, tuple) else out",
                "print(out[0, 0])")  # fmt: skip
    right = "\n```\ntensor({})\n```"
    import torch

    torch.manual_seed(1)
    q = torch.randn(2, 3, 4)
    for scale, n in ((2, 0), (4, 1)):
        printed = ((q @ (q + 1).mT / scale).softmax(-1) @ q)[0, 0]
        report = check(task + right.format([round(x, 4) for x in printed.tolist()]))
        assert len(report.findings) == n, report.text
    assert "scaled_by_d" in report.findings[0].sentence
    printed = ((q @ (q + 1).mT / 2).softmax(-1) @ q)[0, 0] + torch.tensor([0, 0, 0.001, 0])
    report = check(task + right.format([round(x, 4) for x in printed.tolist()]))
    assert report.findings[0].sentence.startswith("the code prints"), report.text


def test_tests_without_known_answers_are_counted_as_unchecked(check):
    report = check(code("def strange(x):\n    return x", "assert strange(1) == 1"))
    assert report.findings == []
    assert "no wrong answers are known" in report.notes[0].sentence


# Small parts


def test_digits_agree_to_what_is_printed():
    assert agree("tensor([0.12, 3.])", "tensor([0.1234, 3.0])")
    assert agree("[1.0, ..., 4.0]", "[1.0, 2.0, 3.0, 4.0]")
    assert agree("1e-3", "0.0012")
    assert agree("0.13", "0.15") is False
    assert agree("1 2 3", "1 2") is None


def test_json_text_and_usage(tmp_path):
    path = tmp_path / "a.md"
    path.write_text("Var(q·k) = dσ².\n\n$E = mc$")
    found = audit(path).to_json()
    assert found["file"] == "a.md"
    assert set(found["findings"][0]) >= {"line", "kind", "sentence", "proof"}
    assert (found["checked"], found["unchecked"]) == (1, 1)
    with pytest.raises(ValueError, match=r"must be a \.md, \.txt or \.ipynb file"):
        read_handout(tmp_path / "a.pdf")


def test_every_claim_of_the_errata_is_found(check):
    claims = re.findall(r"\*\*Claim: (.*?)\*\*", (DOCS / "errata.md").read_text(), re.DOTALL)
    found = {
        claim: [e.sentence for e in check(f"Attention.\n\n{claim}").findings] for claim in claims
    }
    assert len(found) == 13
    assert [claim for claim, sentences in found.items() if not sentences] == []


def test_our_own_pages_are_not_accused():
    for page in sorted(DOCS.glob("*.md")):
        handout = read_handout(page)
        from clearhead.exercises.audit.audit import _check_static

        found = [each for each in _check_static(handout.blocks) if hasattr(each, "proof")]
        assert found == [], page.name
