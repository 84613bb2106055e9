"""Wrong formulas and claims in the text of a handout, by the rules of rules.py."""

import re
from collections.abc import Iterator

from clearhead.exercises.audit.findings import Finding, Note
from clearhead.exercises.audit.handout import Block
from clearhead.exercises.audit.rules import RULES, Rule

GROUP = r"\{([^{}]*(?:\{[^{}]*\}[^{}]*)*)\}"  # braces with at most one level inside

# LaTeX and typography → one plain form. Applied in order, to one line at a time.
PLAIN = [
    (rf"\\[dt]?frac\s*{GROUP}\s*{GROUP}", r"(\1)/(\2)"),
    (r"\\(?:mathrm|operatorname\*?|text|mathbf|boldsymbol|mathcal|textbf|mathit|bm|textrm)\b", ""),
    (r"\\(?:left|right|big|Big|quad|qquad|displaystyle|limits|,|;|!|:| )", ""),
    (r"\\sqrt\s*\{([^{}]*)\}", r"√(\1)"),
    (r"(?:math|np|torch)\.sqrt\(|\bsqrt\(", "√("),
    (r"\\sigma", "σ"), (r"\bsigma\b", "σ"), (r"\\(?:var)?phi", "φ"), (r"\\omega", "ω"),
    (r"\\alpha|\balpha(?=_)", "α"), (r"\\sum|∑", "Σ"), (r"\\infty|\binfinity\b|\binf\b", "∞"),
    (r"\\(?:top|intercal)|⊤|ᵀ", "^t"), (r"\^\s*\^", "^"), (r"\\(?:lVert|rVert|Vert|\|)|\|\|", "‖"),
    (r"\\(?:leq?)\b|≤", "<="), (r"\\geq?\b|≥", ">="), (r"\\lt\b", "<"), (r"\\sim|∼", "~"),
    (r"\\lfloor", "⌊"), (r"²", "^2"), (r"⁴", "^4"), (r"−|–", "-"), (r"\bminus\s+(?=∞)", "-"),
    (r"(?<=[\w)])\s*\*\*\s*(?=[\w(])", "^"), (r"\*\*", ""), (r"\\(?:cdot|times)|×|∙|\*", "·"),
    (r"\^\s*\{", "^("), (r"_\s*\{", "_("), (r"(?<=[\^_])\(([^{}()]*)\}", r"(\1)"),
    (r"([\^_])\((\w)\)", r"\1\2"), (r"\\_", "_"), (r"10,000|10 000|10\^4(?!\d)", "10000"),
    (r"[\s$`{}\\]", ""),
]  # fmt: skip
REFUTED = re.compile(
    r"\b(wrong(?:ly)?|mistakes?|incorrect(?:ly)?|errat(?:um|a)|bugs?|contradicts?|inverted|"
    r"not true|false claim|doubles the exponent|common error)\b|\bclaim:",
    re.IGNORECASE,
)
AROUND = 70  # characters before and after a claim that may make it right
EQUATION = re.compile(r"\$\$.+?\$\$|\$[^$\n]*=[^$\n]*\$|\\\[.+?\\\]", re.DOTALL)
LETTERS, SIGNS = r"[A-Za-z](?:\s*,\s*[A-Za-z])+", r"[-−+]?1(?:\s*,\s*[-−+]?1)+"
UNIQUE = re.compile(rf"[\[(]({LETTERS})[\])][^\[\n.]{{0,60}}[\[(]({SIGNS})[\])]")


def normalize(text: str) -> str:
    """A line in the plain form that the patterns of the rules are written in."""
    for pattern, plain in PLAIN:
        text = re.sub(pattern, plain, text)
    return "Σ".join(part.lower() for part in text.split("Σ"))  # Σ.lower() would be σ


def is_refuted(text: str) -> bool:
    """Whether a text itself says that something in it is wrong."""
    return bool(REFUTED.search(text))


def check_text(blocks: list[Block], i: int) -> Iterator[Finding | Note | int]:
    """Check one block of text: yield findings, notes on claims that the text calls wrong, and 1 for
    each topic that was checked."""
    block = blocks[i]
    near = [each for each in blocks[max(0, i - 3) : i + 3] if each.kind == "text"]
    context = "".join(normalize(line) for each in near for line in each.text.split("\n"))
    lines = [normalize(line) for line in block.text.split("\n")]
    plain = "".join(lines)
    for rule in RULES:
        yield len(re.findall(rule.topic, plain)) and 1
        if rule.needs and not re.search(rule.needs, context):
            continue
        for found in re.finditer(rule.wrong, plain):
            around = plain[max(0, found.start() - AROUND) : found.end() + AROUND]
            if rule.unless and re.search(rule.unless, around):
                continue
            line = block.line + _find_row(lines, found.start())
            yield _report(rule, block, line)
    yield from _check_unique(block, context)
    yield from _note_unknown(block)


def _report(rule: Rule, block: Block, line: int) -> Finding | Note:
    if is_refuted(block.text):
        return Note(line, f"{rule.id}: the text itself calls it wrong")
    return Finding(line, "wrong", rule.sentence, rule.proof)


def _find_row(lines: list[str], offset: int) -> int:
    """The index of the line that contains the character at this offset of the whole text."""
    for i, line in enumerate(lines):
        if offset < len(line):
            return i
        offset -= len(line)
    return len(lines) - 1


def _check_unique(block: Block, context: str) -> Iterator[Finding | Note | int]:
    """Check examples of `unique`: 1 for a letter that occurs once, else −1."""
    for found in UNIQUE.finditer(block.text) if "unique" in context else ():
        letters = re.split(r"\s*,\s*", found[1])
        said = [int(each.replace("−", "-")) for each in re.split(r"\s*,\s*", found[2])]
        right = [1 if letters.count(each) == 1 else -1 for each in letters]
        line = block.line + block.text[: found.start()].count("\n")
        if len(said) != len(right):
            continue
        yield 1
        if said != right and is_refuted(block.text):
            yield Note(line, "unique: the text itself calls it wrong")
        elif said != right:
            sentence = f"for [{', '.join(letters)}] unique gives {right}, not {said}"
            proof = (
                f">>> x = {letters}\n>>> [1 if x.count(each) == 1 else -1 for each in x]\n{right}"
            )
            yield Finding(line, "wrong", sentence, proof)


def _note_unknown(block: Block) -> Iterator[Note]:
    """Note the equations that no rule is about."""
    for found in EQUATION.finditer(block.text):
        plain = "".join(normalize(line) for line in found[0].split("\n"))
        if "=" in plain and not any(re.search(rule.topic, plain) for rule in RULES):
            line = block.line + block.text[: found.start()].count("\n")
            yield Note(line, "no rule is about this formula")
