"""Audit a handout: its text by rules, its numbers and shapes by running it, its tests by wrong
answers. Every claim is checked, found wrong or weak, or noted as unchecked."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from clearhead.exercises.audit.code_rules import check_code
from clearhead.exercises.audit.findings import AuditReport, Finding, Note
from clearhead.exercises.audit.formulas import check_text
from clearhead.exercises.audit.handout import Block, Handout, read_handout
from clearhead.exercises.audit.instrument import Program


def audit(path: str | Path, sandbox: Any = None) -> AuditReport:
    """Audit the handout in a file. sandbox: where its code runs; None makes one."""
    return audit_handout(read_handout(Path(path)), sandbox)


def audit_handout(handout: Handout, sandbox: Any = None) -> AuditReport:
    """Audit a handout that is already read."""
    report = AuditReport(handout.name)
    _add(report, _check_static(handout.blocks))
    if any(block.kind == "code" and block.text.strip() for block in handout.blocks):
        from clearhead.exercises.sandbox import Sandbox  # imports torch

        if sandbox is not None:
            _run(report, handout.blocks, sandbox)
        else:
            with Sandbox() as own:
                _run(report, handout.blocks, own)
    _finish(report, handout)
    return report


def _add(report: AuditReport, found: Iterable[Any]) -> list[Any]:
    """Add findings, notes and counts to the report; return everything else."""
    rest = []
    for each in found:
        if isinstance(each, Finding):
            report.findings.append(each)
        elif isinstance(each, Note):
            report.notes.append(each)
        elif isinstance(each, int):
            report.checked += each
        else:
            rest.append(each)
    return rest


def _check_static(blocks: Sequence[Block]) -> Iterator[Finding | Note | int]:
    """Check text and code by rules, without running anything."""
    before = ""
    for i, block in enumerate(blocks):
        if block.kind == "text":
            yield from check_text(list(blocks), i)
            before = block.text
        if block.kind in ("text", "code"):
            yield from check_code(block, before)


def _run(report: AuditReport, blocks: Sequence[Block], sandbox: Any) -> None:
    """Run the code and check printed numbers, shapes, tolerances and tests."""
    from clearhead.exercises.audit import answers, rerun
    from clearhead.exercises.audit.trial import Trial, find_parts

    report.sandbox = str(sandbox.level)
    programs, notes = rerun.read_programs(blocks)
    report.notes += notes
    runner = rerun.Runner(sandbox)
    groups = rerun.group_cells(blocks, programs)
    found = runner.run(groups)
    claims = list(rerun.find_claims(blocks, programs))
    again = runner.run(groups[: found.n_done], seed=2) if claims else found
    if found.stop:
        line = groups[min(found.n_done, len(groups) - 1)][0][0]
        report.notes.append(Note(line, f"the code was stopped here: {found.stop}"))
        blocks = [block for block in blocks if block.line < line]  # the trials below stop here, too
        programs = {i: program for i, program in programs.items() if i < len(blocks)}
    lines = rerun.find_shape_lines(blocks, programs)
    shapes = {line: rerun.check_shape(line, [found]) for line in lines}
    unknown = [line for line, result in shapes.items() if result is None]
    for result in shapes.values():
        _add(report, result or ())
    _add(report, rerun.check_closes(found))
    left = _add(report, rerun.check_claims(claims, found, again))
    parts = find_parts(blocks, programs)
    trial = Trial(runner, blocks, parts)
    for part in parts:
        own = [each for each in left if each.block in part.uses]
        left = [each for each in left if each not in own]
        _add(report, answers.check_part(trial, part, own, unknown))
    sentence = "this shape could not be checked: its names or its value are not known"
    report.notes += [Note(line, sentence) for line in unknown]
    for claim in left:
        reason = found.fails_in(claim.first, claim.last) or found.stop
        reason = reason or "what it prints cannot be compared"
        report.notes.append(Note(claim.line, f"not run: {rerun.shorten(reason)}"))
    _note_tests(report, programs, parts)
    runner.close()


def _note_tests(report: AuditReport, programs: dict[int, Program], parts: Sequence[Any]) -> None:
    """Note the tests of functions for which no wrong answers are known."""
    if not parts:
        lines = [line for program in programs.values() for line in program.tests]
        report.notes += [Note(n, "no wrong answers are known for what this tests") for n in lines]


def _finish(report: AuditReport, handout: Handout) -> None:
    """Drop duplicates, sort by line, and describe each line, such as "cell 3, line 2"."""
    refuted = {each.line for each in report.notes if each.sentence.startswith("rtol: ")}
    findings = {
        (each.line, _find_topic(each)): each
        for each in report.findings
        if each.line not in refuted or _find_topic(each) != "zeros"
    }
    notes = {(each.line, each.sentence): each for each in report.notes}
    report.findings = [
        replace(each, where=handout.describe_line(each.line))
        for each in sorted(findings.values(), key=lambda each: each.line)
    ]
    report.notes = [
        replace(each, where=handout.describe_line(each.line))
        for each in sorted(notes.values(), key=lambda each: each.line)
    ]


def _find_topic(finding: Finding) -> str:
    """Map a finding to its topic: two findings about the same tolerance share one."""
    return "zeros" if "an answer of zeros passes" in finding.sentence else finding.sentence
