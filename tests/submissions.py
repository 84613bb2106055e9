"""Check a text as a student's submission, without a sandbox: the texts in tests are ours."""

from clearhead.exercises.contracts import find_exercise
from clearhead.exercises.diagnosis import Diagnosis, diagnose
from clearhead.exercises.intake import find_definition, read_definitions
from clearhead.exercises.sandbox.direct import DirectSession
from clearhead.exercises.student import Student


def check_source(name: str, source: str, seed: int = 1) -> Diagnosis:
    """The diagnosis of the part for this exercise in a source text."""
    exercise = find_exercise(name)
    definitions = read_definitions(source)
    found = find_definition(exercise.names, definitions, is_asked=True)
    assert found is not None, f"none of {exercise.names} among {list(definitions)}"
    session = DirectSession()
    loaded = session.request("load", cells=[[1, source]], helpers=exercise.helpers)
    assert not loaded["failures"], loaded
    return diagnose(exercise, Student(session, found.name, found.is_class), seed)
