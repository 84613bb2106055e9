"""A whole string is classified by the logit of its first token, [CLS]: loss and accuracy."""

import copy
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, Self

import torch
from torch import Tensor

from clearhead.exercises.draw import Draw
from clearhead.exercises.exercise import Answer, Case, Exercise, mistake
from clearhead.exercises.sandbox.supervisor import StudentError

ACCURACY = (
    "class_token_accuracy",
    "cls_accuracy",
    "accuracy",
    "compute_accuracy",
    "get_accuracy",
    "binary_accuracy",
    "accuracy_fn",
)


class ClassTokenLoss(Exercise):
    """logits (B, T, 1) and labels (B,) of 0 and 1 → the loss, or (loss, accuracy).

    If the file also has a function for the accuracy, such as `accuracy(logits, labels)`, it is
    checked, too. Labels are given as floats (B,), or as (B, 1) or whole numbers if these raise.
    """

    name = "class_token_loss"
    title = "Loss and accuracy of the class token"
    formula = (
        "the mean of −y log σ(z) − (1−y) log σ(−z) with z = logits[:, 0]; right if (z > 0) = y"
    )
    signature = "class_token_loss(logits, labels), and accuracy(logits, labels)"
    page = "training.md#losses"
    names = (
        "class_token_loss",
        "ClassTokenLoss",
        "cls_loss",
        "CLSLoss",
        "cls_token_loss",
        "classification_loss",
        "loss_and_accuracy",
        "loss_fn",
        "bce_loss",
        "binary_loss",
        "compute_loss with labels label y y_true",
        "loss",
    )
    terms = {
        "choose": "the logit of the first token alone",
        "cost": "the binary cross-entropy of a logit",
        "average": "the mean over the batch",
        "count": "the accuracy: (logit > 0) == label",
    }
    parameters = {
        "logits": "logits outputs output preds predictions y_pred scores y_hat out",
        "labels": "labels label targets target y y_true",
    }

    wrong = "both"  # which results use the wrong logit: loss, accuracy or both

    # The formula

    def answer(self, logits: Tensor, labels: Tensor) -> dict[str, Tensor]:
        y = labels.float().flatten()
        chosen = self.choose(logits[..., 0], y)
        right = ClassTokenLoss.choose(self, logits[..., 0], y)
        loss = self.average(self.cost(*(right if self.wrong == "accuracy" else chosen)))
        return {
            "output": loss,
            "accuracy": self.count(*(right if self.wrong == "loss" else chosen)),
        }

    def dialects(self) -> Iterable[Self]:
        """Loss and accuracy may be two functions, and only one may have the mistake."""
        yield self
        for wrong in ("loss", "accuracy"):
            other = copy.copy(self)
            other.wrong = wrong
            yield other

    def choose(self, logits: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return logits[:, 0], y

    def cost(self, z: Tensor, y: Tensor) -> Tensor:
        return z.clamp(min=0) - z * y + (-z.abs()).exp().log1p()

    def average(self, costs: Tensor) -> Tensor:
        return costs.mean()

    def count(self, z: Tensor, y: Tensor) -> Tensor:
        return ((z > 0) == (y > 0.5)).float().mean()

    # Mistakes

    @mistake(
        "choose",
        "the logits of all tokens are used; only that of [CLS], the first token, classifies "
        "the string",
        line=("expand", "repeat", "cross_entropy", "mean"),
    )
    def all_tokens(self, logits: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return logits, y[:, None].expand_as(logits)

    @mistake(
        "choose",
        "the logit of the last token is used; [CLS] is the first one",
        line=("-1]", "-1,", "[:, -1"),
    )
    def last_token(self, logits: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return logits[:, -1], y

    @mistake(
        "choose",
        "the mean of all tokens' logits is used; use the logit of [CLS] alone",
        line=("mean(1", "mean(dim=1", "mean"),
    )
    def mean_logit(self, logits: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return logits.mean(1), y

    @mistake(
        "choose",
        "the first string of the batch is used instead of the first token of each string: "
        "logits[0] instead of logits[:, 0]",
        line=("[0]", "[0,"),
    )
    def first_string(self, logits: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return logits[0], y

    @mistake(
        "choose",
        "logits (B, 1) and labels (B,) are broadcast to (B, B): every logit is compared with every "
        "label",
        line=("[:, 0]", "[:,0]", "labels"),
    )
    def broadcast_labels(self, logits: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return logits[:, :1].expand(-1, len(y)), y.expand(len(logits), -1)

    @mistake(
        "cost",
        "the sigmoid is applied twice: binary_cross_entropy_with_logits applies its own",
        line=("sigmoid",),
    )
    def sigmoid_twice(self, z: Tensor, y: Tensor) -> Tensor:
        return ClassTokenLoss.cost(self, z.sigmoid(), y)

    @mistake(
        "cost",
        "the logarithm of a saturated sigmoid is infinite, and 0 · inf is NaN; use "
        "binary_cross_entropy_with_logits or softplus",
        line=("log(", ".log"),
    )
    def log_of_sigmoid(self, z: Tensor, y: Tensor) -> Tensor:
        p = z.sigmoid()
        return -(y * p.log() + (1 - y) * (1 - p).log())

    @mistake(
        "cost",
        "the labels are inverted: for label 1 a large logit must cost little",
        line=("1 - ", "-"),
    )
    def labels_inverted(self, z: Tensor, y: Tensor) -> Tensor:
        return ClassTokenLoss.cost(self, z, 1 - y)

    @mistake(
        "cost",
        "the squared error of the sigmoid is used instead of the binary cross-entropy",
        line=("mse", "** 2", "square"),
    )
    def squared_error(self, z: Tensor, y: Tensor) -> Tensor:
        return (z.sigmoid() - y).square()

    @mistake(
        "cost",
        "only strings with label 1 contribute to the loss: the term (1 − y) log(1 − p) is missing",
        line=("log",),
    )
    def negatives_forgotten(self, z: Tensor, y: Tensor) -> Tensor:
        return -y * torch.nn.functional.logsigmoid(z)

    @mistake("average", "the losses are summed instead of averaged", line=("sum",))
    def summed(self, costs: Tensor) -> Tensor:
        return costs.sum()

    @mistake(
        "count",
        "the logit is compared with 0.5, as if it were a probability: the threshold is 0",
        line=("0.5", "round"),
    )
    def threshold_half(self, z: Tensor, y: Tensor) -> Tensor:
        return ((z > 0.5) == (y > 0.5)).float().mean()

    @mistake(
        "count",
        "the sigmoid is compared with 0: it is always positive, so every prediction is 1",
        line=("> 0", ">0"),
    )
    def sigmoid_above_zero(self, z: Tensor, y: Tensor) -> Tensor:
        return ((z.sigmoid() > 0) == (y > 0.5)).float().mean()

    @mistake(
        "count",
        "the accuracy is the number of right predictions instead of their fraction",
        line=("sum",),
    )
    def accuracy_not_divided(self, z: Tensor, y: Tensor) -> Tensor:
        return ((z > 0) == (y > 0.5)).float().sum()

    @mistake("count", "the accuracy counts the wrong predictions", line=("!=",))
    def accuracy_inverted(self, z: Tensor, y: Tensor) -> Tensor:
        return ((z > 0) != (y > 0.5)).float().mean()

    # Cases

    def forms(self, case: Case) -> Iterable[Case]:
        labels = case.inputs["labels"]
        for each in (labels.float(), labels[:, None].float(), labels, labels[:, None]):
            yield replace(case, given={**case.inputs, "labels": each})

    def ask(self, student: Any, case: Case) -> Answer | None:
        """Ask for the loss with labels of a form it takes, then for the accuracy with the same."""
        answer: Answer | None = None
        for form in self.forms(case):
            answer = student.ask_form(self, form)
            if answer is not None and answer.results is not None:
                answer.results = self._add_accuracy(student, form, answer.results)
                break
        return answer

    def _add_accuracy(
        self, student: Any, case: Case, results: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        """Add the accuracy to the results; only one case compares it."""
        if case.term != "count":
            return {"output": results["output"]}
        for name in ACCURACY if "accuracy" not in results else ():
            other = replace(student, name=name, is_class=False, _signatures={})
            with suppress(StudentError):
                other.signature(name)
                found = other.ask_form(self, case)
                if found is not None:
                    return {**results, "accuracy": (found.results or {}).get("output")}
        return results

    def read(self, output: Any, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        if isinstance(output, tuple | list) and len(output) == 2:
            return {"output": output[0], "accuracy": output[1]}
        return {"output": output}

    def cases(self, draw: Draw) -> Iterable[Case]:
        def case(says: str, term: str, z: Tensor, y: Tensor, **more: Any) -> Case:
            return Case(says, term, {"logits": z, "labels": y}, **more)

        flips = torch.tensor([1, 0, 1, 1, 1, 0, 1])
        yield case("with label 1 the loss is −log σ(z)", "cost", draw.normal(1, 1, 1), flips[:1])
        yield case("with label 0 the loss is −log σ(−z)", "cost", draw.normal(1, 1, 1), flips[1:2])
        yield case("only the first token counts", "choose", draw.normal(1, 4, 1), flips[:1])
        yield case("the losses are averaged", "average", draw.normal(5, 1, 1), flips[:5])
        spread = torch.tensor([0.3, -0.3, 0.2, 2.0, 0.4, -1.0, -0.2])  # some between 0 and 0.5
        mixed = draw.normal(7, 7, 1)
        mixed[:, 0, 0] = spread + 0.05 * draw.normal(7)
        mixed[:, -1, 0] = torch.tensor([2.0, 2.0, 2.0, -2.0, -2.0, -2.0, -2.0])  # 3 of 7 are right
        yield case("the prediction is 1 if the logit is above 0", "count", mixed, flips)
        against = -(2 * flips - 1).view(7, 1, 1) * (1 + draw.normal(7, 7, 1).abs())
        against[:, 0] *= -1  # only the first token is right
        yield case("the accuracy is that of the first token", "count", against, flips)
        yield case("the gradient reaches the logits", "cost", draw.normal(5, 5, 1), flips[:5],
                   gradient=True)  # fmt: skip
        large = 600 * (2 * flips[:3] - 1).view(3, 1, 1) * (1 + draw.normal(3, 3, 1).abs())
        yield case("logits as large as 1000 stay finite", "cost", large, flips[:3])

    def small_cases(self, draw: Draw) -> Iterable[Case]:
        for B, T in ((1, 1), (1, 2), (2, 2), (3, 2)):
            for _ in range(4):
                labels = draw.whole(0, 1, B)
                inputs = {"logits": draw.small(B, T, 1), "labels": labels}
                yield Case("a small example", "choose", inputs)
        yield from self.cases(draw)
