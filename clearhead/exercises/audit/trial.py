"""The exercises in a handout, and runs of it with our answers in place of its own."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from clearhead.exercises.audit.handout import Block
from clearhead.exercises.audit.instrument import Program, instrument
from clearhead.exercises.audit.rerun import FAR, Run, Runner
from clearhead.exercises.catalogue import read_catalogue, read_entry
from clearhead.exercises.corpus import CorpusEntry, read_corpus
from clearhead.exercises.definitions import Definition, find_definition, read_definitions


@dataclass
class Part:
    """An exercise in a handout. name: of the function there. uses: the blocks that call it."""

    exercise: str
    name: str
    uses: list[int]
    answers: list[CorpusEntry] = field(default_factory=list)

    @property
    def honest(self) -> list[CorpusEntry]:
        return [each for each in self.answers if each.expected == "honest"]

    @property
    def wrong(self) -> list[CorpusEntry]:
        return [each for each in self.answers if each.expected != "honest"]


def find_parts(blocks: Sequence[Block], programs: Mapping[int, Program]) -> list[Part]:
    """Find the exercises whose usual names the handout calls."""
    calls: dict[str, Definition] = {}
    for i in programs:
        calls |= {each.name: each for each in programs[i].calls}
    parts: dict[str, Part] = {}
    for entry in read_catalogue().values():
        found = find_definition(entry.names, calls)
        if found is None or found.name in parts:
            continue
        uses = [i for i in programs if any(call.name == found.name for call in programs[i].calls)]
        corpus = read_corpus(entry.name)
        answers = [each for each in corpus if _find_name(each, entry.names, found.name)]
        if answers:
            parts[found.name] = Part(entry.name, found.name, uses, answers)
    return list(parts.values())


def _find_name(answer: CorpusEntry, names: tuple[str, ...], wanted: str) -> str | None:
    """The name of an answer's function, or of its class if a class is wanted."""
    is_class = wanted[:1].isupper()
    own = read_definitions(answer.source)
    found = find_definition(names, {n: d for n, d in own.items() if d.is_class == is_class}, True)
    return found.name if found else None


class Trial:
    """Runs a handout with our answers in place of its own."""

    def __init__(self, runner: Runner, blocks: Sequence[Block], parts: list[Part]) -> None:
        self.runner, self.parts = runner, parts
        names = {part.name for part in parts}
        self.programs = {
            i: instrument(block, names, is_test=True)
            for i, block in enumerate(blocks)
            if block.kind == "code"
        }
        self.cells = [cell for program in self.programs.values() for cell in program.cells]

    def run(self, part: Part, answer: CorpusEntry, seed: int = 1) -> Run:
        """Run the handout with this answer, and with the first honest one for each other part."""
        cells: list[tuple[int, str]] = []
        for each in self.parts:
            chosen = answer if each is part else [*each.honest, *each.answers][0]
            own = _find_name(chosen, read_entry(each.exercise).names, each.name)
            watched = f"audit_watch({own})" if each is part else own
            cells += [(FAR, chosen.source), (FAR, f"{each.name} = {watched}")]
        return self.runner.run([cells, self.cells], seed)

    def find_tests(self, part: Part) -> list[int]:
        """The lines of tests from the first block that uses the exercise."""
        start = min(part.uses)
        return [n for i, program in self.programs.items() if i >= start for n in program.tests]
