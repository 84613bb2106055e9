"""The learning rate: straight up from 0 during the warm-up, then straight down to 0."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from clearhead.exercises.draw import Draw
from clearhead.exercises.exercise import Answer, Case, Exercise, mistake
from clearhead.exercises.sandbox.supervisor import StudentError
from clearhead.exercises.student import CannotCall, Student, arrange

Names = Sequence[tuple[str, bool]]  # (name, has a default) of each parameter


# A schedule that is built first: a class whose object is called or has a method, or a function that
# returns a function of the step.
HELPERS = """
def _run_schedule(make, step, arguments):
    schedule = make(**arguments)
    for name in ("get_lr", "factor", "lr_lambda", "get_factor", "step", "lr"):
        if not callable(schedule) and hasattr(schedule, name):
            schedule = getattr(schedule, name)
    return schedule(step)
"""


class WarmupSchedule(Exercise):
    """A function of step, warmup and total, or a class built from (warmup, total) and called.

    A function of warmup and total alone must return one of step, as LambdaLR takes it. With a
    parameter for the peak (`lr`) the factor is multiplied by it. At step 0 of a schedule without
    warm-up both 0 and 1 are accepted.
    """

    name = "warmup_schedule"
    title = "A learning rate with warm-up"
    formula = "step / warmup, then (total − step) / (total − warmup), 0 from total on"
    signature = "factor(step, warmup, total), or get_lr(step, lr, warmup, total)"
    page = "training.md"
    names = (
        "factor",
        "warmup_schedule",
        "get_lr",
        "lr_factor",
        "get_factor",
        "warmup_factor",
        "lr_lambda",
        "lr_schedule",
        "schedule",
        "linear_warmup",
        "get_learning_rate",
        "warmup_linear",
        "linear_schedule",
        "WarmupSchedule",
        "WarmupLinear",
        "LinearWarmup",
    )
    terms = {
        "count": "the steps, which count from 0",
        "rise": "the warm-up, from 0 at step 0 to 1 at step `warmup`",
        "start": "a schedule without warm-up",
        "fall": "the decay, from 1 at step `warmup` to 0 at step `total`, and 0 after it",
        "divide": "the division",
        "multiply": "the product with the peak learning rate",
    }
    parameters = {
        "step": "step s t it i iteration current_step step_num n global_step num_steps",
        "warmup": "warmup warmup_steps num_warmup_steps n_warmup w warmup_iters warmup_step",
        "total": "total max_steps total_steps n_steps max_iters num_training_steps max T steps"
        " max_step num_steps_total total_iters",
        "peak": "lr max_lr peak_lr base_lr learning_rate peak max_learning_rate",
    }
    constructor = parameters
    optional = ("peak",)
    tolerance = 1e-5
    helpers = HELPERS

    # The formula

    def answer(
        self, step: int, warmup: int, total: int, peak: float | None = None, start: float = 1.0
    ) -> float:
        return self.multiply(self._factor(self.count(step), warmup, total, start), peak)

    def _factor(self, step: int, warmup: int, total: int, start: float) -> float:
        if step == warmup == 0:
            return self.start(start)
        return self.rise(step, warmup) if step < warmup else self.fall(step, warmup, total)

    def count(self, step: int) -> int:
        return step

    def start(self, start: float) -> float:
        return start

    def rise(self, step: int, warmup: int) -> float:
        return self.divide(step, warmup)

    def fall(self, step: int, warmup: int, total: int) -> float:
        return self.divide(total - step, total - warmup) if step < total else 0.0

    def divide(self, a: float, b: float) -> float:
        return a / b

    def multiply(self, factor: float, peak: float | None) -> float:
        return factor if peak is None else factor * peak

    # Mistakes

    @mistake(
        "count",
        "the schedule is one step ahead: it uses step + 1 everywhere",
        line=("step + 1", "step += 1", "+ 1", "+= 1"),
    )
    def one_step_ahead(self, step: int) -> int:
        return step + 1

    @mistake(
        "count",
        "the schedule is one step late: it uses step − 1",
        line=("step - 1", "- 1", "-= 1"),
    )
    def one_step_late(self, step: int) -> int:
        return max(0, step - 1)

    @mistake(
        "rise",
        "the warm-up is off by one: (step + 1) / warmup is not 0 at step 0, and reaches 1 one "
        "step early",
        line=("+ 1", "warmup"),
    )
    def starts_above_zero(self, step: int, warmup: int) -> float:
        return (step + 1) / warmup

    @mistake(
        "rise",
        "the warm-up divides by warmup + 1, so it does not reach the peak",
        line=("warmup + 1", "warmup_steps + 1", "+ 1"),
    )
    def never_reaches_peak(self, step: int, warmup: int) -> float:
        return step / (warmup + 1)

    @mistake(
        "rise",
        "there is no warm-up: the first steps already have the full learning rate",
        line=("warmup", "return"),
    )
    def no_warmup(self, step: int, warmup: int) -> float:
        return 1.0

    @mistake(
        "rise",
        "the warm-up goes down: 1 − step / warmup",
        line=("1 -", "1.0 -", "warmup -"),
    )
    def warmup_goes_down(self, step: int, warmup: int) -> float:
        return 1 - step / warmup

    @mistake(
        "start",
        "the warm-up divides by zero when warmup is 0",
        line=("/ warmup", "/warmup", "/ max", "/"),
    )
    def division_by_zero(self, start: float) -> float:
        return 1 / 0

    @mistake(
        "fall",
        "the decay divides by total instead of total − warmup: the rate jumps down at the end "
        "of the warm-up",
        line=("/ total", "/ max", "total"),
    )
    def decay_over_all_steps(self, step: int, warmup: int, total: int) -> float:
        return max(0.0, (total - step) / total)

    @mistake(
        "fall",
        "the decay takes `total` steps after the warm-up, so the rate is not 0 at `total`",
        line=("/ total", "/ max", "total"),
    )
    def decay_too_slow(self, step: int, warmup: int, total: int) -> float:
        return max(0.0, 1 - (step - warmup) / total)

    @mistake("fall", "there is no decay: the rate stays at its peak", line=("return 1", "return"))
    def no_decay(self, step: int, warmup: int, total: int) -> float:
        return 1.0

    @mistake(
        "fall",
        "the rate becomes negative after `total`, which turns descent into ascent; use max(0, …)",
        line=("/ (total", "/(total", "total -", "return"),
    )
    def negative_after_the_end(self, step: int, warmup: int, total: int) -> float:
        return (total - step) / (total - warmup)

    @mistake("fall", "the rate falls along a cosine instead of a straight line", line=("cos",))
    def cosine_decay(self, step: int, warmup: int, total: int) -> float:
        share = (step - warmup) / (total - warmup)
        return 0.5 * (1 + math.cos(math.pi * share)) if step < total else 0.0

    @mistake(
        "fall",
        "the rate falls as 1 / √step (the schedule of Vaswani et al. 2017), which is never 0",
        line=("sqrt", "** -0.5", "**-0.5", "** 0.5", "**0.5"),
    )
    def inverse_root_decay(self, step: int, warmup: int, total: int) -> float:
        return math.sqrt(max(1, warmup) / step)

    @mistake(
        "divide",
        "// rounds the factor down to a whole number, which is 0 during the warm-up; use /",
        line=("//",),
    )
    def integer_division(self, a: float, b: float) -> float:
        return a // b

    @mistake(
        "multiply",
        "the peak learning rate is not used: the factor alone is returned",
        line=("return",),
    )
    def peak_forgotten(self, factor: float, peak: float | None) -> float:
        if peak is None:
            raise ValueError("there is no peak in this form")
        return factor

    # Cases

    def ask(self, student: Student, case: Case) -> Answer | None:
        """Pass a peak if the code takes one; build the schedule first if it takes no step."""
        names = student.signature(student.name)
        words = {name: set(words.lower().split()) for name, words in self.parameters.items()}
        named = {name.lower() for name, _ in names}
        given = {n: v for n, v in case.inputs.items() if n != "peak" or named & words["peak"]}
        n_needed = sum(not has_default for _, has_default in names)
        answer: Answer | None
        if student.is_class or (n_needed < len(given) and not named & words["step"]):
            answer = self._ask_built(student, case, names, given)
        else:
            answer = student.ask(self, replace(case, inputs=given))
        if answer is not None:
            answer.choices = [{**given, "start": start} for start in (1.0, 0.0)]
        return answer

    def _ask_built(
        self, student: Student, case: Case, names: Names, given: Mapping[str, Any]
    ) -> Answer:
        """Ask a class or a function that takes all but the step."""
        sizes = {name: value for name, value in given.items() if name != "step"}
        arranged = arrange(names, self.parameters, sizes, ())
        if arranged is None:
            raise CannotCall(f"{student.name} does not take warmup and total")
        args, kwargs, _ = arranged
        kwargs = {**dict(zip((name for name, _ in names), args, strict=False)), **kwargs}
        call = [{"make": student.name}, given["step"], kwargs]
        try:
            reply = student.session.request("call", target="_run_schedule", args=call, kwargs={})
        except StudentError as error:
            return Answer([], error=error)
        return student.read(self, case, [], reply, [])

    def cases(self, draw: Draw) -> Iterable[Case]:
        def case(says: str, term: str, step: int, warmup: int, total: int) -> Case:
            inputs = {"step": step, "warmup": warmup, "total": total, "peak": 0.3}
            return Case(says, term, inputs)

        warmup, total = draw.number(7, 12), draw.number(40, 60)
        yield case("the factor is 0 at step 0", "rise", 0, warmup, total)
        yield case("the factor grows by 1 / warmup each step", "rise", 1, warmup, total)
        yield case("the factor grows by 1 / warmup each step", "rise", warmup - 3, warmup, total)
        yield case(
            "the factor is just below 1 before the warm-up ends", "rise", warmup - 1, warmup, total
        )
        yield case("the factor is 1 at step `warmup`", "fall", warmup, warmup, total)
        yield case(
            "the factor falls by 1 / (total − warmup) each step", "fall", warmup + 1, warmup, total
        )
        yield case("the factor is 1/2 half-way down", "fall", warmup + 15, warmup, warmup + 30)
        yield case("the factor is just above 0 before the end", "fall", total - 1, warmup, total)
        yield case("the factor is 0 at step `total`", "fall", total, warmup, total)
        yield case("the factor is 0 after `total`", "fall", total + 2 * warmup, warmup, total)
        yield case("the schedule works without a warm-up", "start", 0, 0, total)

    def small_cases(self, draw: Draw) -> Iterable[Case]:
        for step, warmup, total in ((0, 2, 4), (1, 2, 4), (2, 2, 4), (3, 2, 4), (4, 2, 4)):
            inputs = {"step": step, "warmup": warmup, "total": total, "peak": 0.5}
            yield Case("a small example", "rise", inputs)
        for step, warmup, total in ((9, 2, 4), (0, 0, 4)):
            inputs = {"step": step, "warmup": warmup, "total": total, "peak": 0.5}
            yield Case("a small example", "fall", inputs)
        yield from self.cases(draw)
