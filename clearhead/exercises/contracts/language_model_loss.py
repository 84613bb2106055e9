"""The loss of a language model: each token predicts the next one; padding is not a target."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from clearhead.exercises.contracts.shared.cross_entropy import CrossEntropy
from clearhead.exercises.draw import Draw
from clearhead.exercises.exercise import Answer, Case, mistake
from clearhead.exercises.forms import ask_in_forms, change
from clearhead.exercises.student import Student

Pairs = tuple[Tensor, Tensor, Tensor]  # logits, targets, whether each target is real
PAD = 0  # the id of the padding token in all cases
COSTS = ("cross_entropy", "gather", "nll_loss", "criterion", "view", "reshape")
IGNORED = -100  # the label that PyTorch's cross_entropy leaves out


class LanguageModelLoss(CrossEntropy):
    """logits (B, T, V), tokens (B, T) and a mask (B, T) that is 1 for real tokens → a scalar.

    The mask is given as bool, or as 0 and 1 to code that does not take bools. Code that takes
    `labels` and no mask may expect −100 in them for padding, as PyTorch's cross_entropy does.
    """

    name = "language_model_loss"
    title = "The loss of a language model"
    formula = "the mean of −log softmax(logits[t])[tokens[t+1]] over t whose tokens[t+1] is real"
    signature = "DialogueLoss()(logits, input_ids, inp_mask), or a function of these three"
    page = "training.md#losses"
    names = (
        "DialogueLoss",
        "LanguageModelLoss",
        "LMLoss",
        "NextTokenLoss",
        "language_model_loss",
        "next_token_loss",
        "lm_loss",
        "dialogue_loss",
        "compute_lm_loss",
        "causal_lm_loss",
        "masked_cross_entropy",
        "compute_loss with mask inp_mask input_mask attention_mask input_ids tokens ids token_ids",
    )
    terms = {
        "pair": "the pairs of logits[t] and tokens[t+1]",
        "choose": "the mask, which belongs to the targets",
        "cost": "the cost −log softmax(logits)[target] of one prediction",
        "average": "the mean over the real targets",
    }
    parameters = {
        "logits": "logits outputs output preds predictions y_pred scores lm_logits y_hat",
        "tokens": "tokens input_ids ids targets labels target inputs x idx token_ids y inp_ids",
        "mask": "mask inp_mask input_mask attention_mask token_mask padding_mask loss_mask pad_mask"
        " inputs_mask",
        "pad": "pad pad_id pad_token_id pad_idx ignore_index padding_idx pad_index pad_token",
    }
    constructor = {"pad": parameters["pad"]}
    optional = ("mask", "pad")

    # The formula

    def answer(self, logits: Tensor, tokens: Tensor, mask: Tensor, **_: Any) -> Tensor:
        mask = mask.bool()
        logits, targets, shifted = self.pair(logits, tokens, mask)
        costs = self.cost(logits, targets)  # (B, T − 1)
        return self.average(costs, self.choose(shifted, mask))

    def pair(self, logits: Tensor, tokens: Tensor, mask: Tensor) -> Pairs:
        return logits[:, :-1], tokens[:, 1:], mask[:, 1:]

    def choose(self, shifted: Tensor, mask: Tensor) -> Tensor:
        return shifted

    def average(self, costs: Tensor, is_real: Tensor) -> Tensor:
        return torch.where(is_real, costs, 0).sum() / is_real.sum()

    # Mistakes

    @mistake(
        "pair",
        "the targets are not shifted: each position predicts its own token, which it can see; "
        "logits[t] must predict tokens[t+1]",
        line=COSTS,
    )
    def not_shifted(self, logits: Tensor, tokens: Tensor, mask: Tensor) -> Pairs:
        return logits[:, 1:], tokens[:, 1:], mask[:, 1:]

    @mistake(
        "pair",
        "the targets are not shifted, and the start token is a target, too: each position "
        "predicts its own token",
        line=COSTS,
    )
    def not_shifted_at_all(self, logits: Tensor, tokens: Tensor, mask: Tensor) -> Pairs:
        return logits, tokens, mask

    @mistake(
        "pair",
        "the targets are shifted twice: logits[t] is compared with tokens[t+2]",
        line=("2:", ":-2", "1:", ":-1"),
    )
    def shifted_twice(self, logits: Tensor, tokens: Tensor, mask: Tensor) -> Pairs:
        return logits[:, :-2], tokens[:, 2:], mask[:, 2:]

    @mistake(
        "pair",
        "the shift goes the wrong way: logits[t+1] is compared with tokens[t], the past",
        line=("1:", ":-1"),
    )
    def shifted_backwards(self, logits: Tensor, tokens: Tensor, mask: Tensor) -> Pairs:
        return logits[:, 1:], tokens[:, :-1], mask[:, :-1]

    @mistake(
        "pair",
        "the targets are rolled instead of cut, so the last position has to predict the start "
        "token",
        line=("roll",),
    )
    def start_token_supervised(self, logits: Tensor, tokens: Tensor, mask: Tensor) -> Pairs:
        return logits, tokens.roll(-1, 1), mask.roll(-1, 1)

    @mistake(
        "pair",
        "the last position is used although no token follows it: its target is padding",
        line=("cat", "pad", "zeros", "full"),
    )
    def last_logit_used(self, logits: Tensor, tokens: Tensor, mask: Tensor) -> Pairs:
        targets = torch.cat([tokens[:, 1:], torch.full_like(tokens[:, :1], PAD)], 1)
        return logits, targets, mask

    @mistake(
        "choose",
        "padding is counted: the mask is not used, so the model learns to predict padding",
        line=("cross_entropy", "mean", "nll_loss"),
    )
    def padding_counted(self, shifted: Tensor, mask: Tensor) -> Tensor:
        return torch.ones_like(shifted)

    @mistake(
        "choose",
        "the mask is not shifted with the targets: it says whether tokens[t] is real, so the first "
        "padding after each text is a target",
        line=("mask[:, :-1]", "mask[..., :-1]", "mask"),
    )
    def mask_of_inputs(self, shifted: Tensor, mask: Tensor) -> Tensor:
        return mask[:, :-1]

    @mistake("choose", "the mask is inverted: only padding is counted", line=("mask",))
    def mask_inverted(self, shifted: Tensor, mask: Tensor) -> Tensor:
        return ~shifted

    @mistake(
        "average",
        "the sum is divided by the number of all positions, padding included, so the loss "
        "falls when padding is added",
        line=("mean", "numel", "/"),
    )
    def mean_over_all(self, costs: Tensor, is_real: Tensor) -> Tensor:
        return torch.where(is_real, costs, 0).mean()

    @mistake(
        "average",
        "the losses are averaged within each text and then over the texts, so a token of a "
        "short text counts more",
        line=("sum(1", "sum(dim", "sum(-1", "mean"),
    )
    def mean_of_means(self, costs: Tensor, is_real: Tensor) -> Tensor:
        return (torch.where(is_real, costs, 0).sum(1) / is_real.sum(1)).mean()

    @mistake("average", "the losses are summed instead of averaged", line=("sum",))
    def summed(self, costs: Tensor, is_real: Tensor) -> Tensor:
        return torch.where(is_real, costs, 0).sum()

    @mistake(
        "average", "the sum is divided by the number of texts, not of tokens", line=("/", "len(")
    )
    def mean_over_texts(self, costs: Tensor, is_real: Tensor) -> Tensor:
        return torch.where(is_real, costs, 0).sum() / len(costs)

    # Cases

    def ask(self, student: Student, case: Case) -> Answer | None:
        """Pass mask and padding id if the code takes them."""
        names = student.signature(student.name, "forward" if student.is_class else None)
        given = self._choose_inputs(names, case)
        plain = replace(case, given=given)
        if "mask" in given or "pad" in given or "labels" not in dict(names):
            return student.ask(self, plain)
        labels = case.inputs["tokens"].where(case.inputs["mask"], IGNORED)
        return ask_in_forms(self, student, [plain, change(plain, lambda _: labels, "tokens")])

    def forms(self, case: Case) -> Iterable[Case]:
        given = case.inputs if case.given is None else case.given
        if "mask" not in given:
            yield case
            return
        for dtype in (torch.bool, torch.long, torch.float):
            yield replace(case, given={**given, "mask": given["mask"].to(dtype)})

    def _choose_inputs(self, names: Sequence[tuple[str, bool]], case: Case) -> dict[str, Any]:
        """Choose the inputs by name; a third parameter of unknown name gets the mask."""
        named = {name.lower() for name, _ in names}
        taken = [
            name
            for name in self.parameters
            if name not in self.optional or named & set(self.parameters[name].lower().split())
        ]
        n_required = sum(not has_default for name, has_default in names if name != "self")
        if n_required > len(taken):
            taken = [*taken[:2], "mask", *taken[2:]]
        return {name: case.inputs[name] for name in taken}

    def cases(self, draw: Draw) -> Iterable[Case]:
        def case(
            says: str, term: str, V: int, lengths: list[int], scale: float = 1.0, **more: Any
        ) -> Case:
            B, T = len(lengths), max(lengths) + more.pop("extra", 0)
            mask = torch.arange(T) < torch.tensor(lengths)[:, None]
            tokens = draw.whole(PAD + 1, V - 1, B, T).where(mask, PAD)
            logits = draw.normal(B, T, V, scale=scale)
            inputs = {"logits": logits, "tokens": tokens, "mask": mask, "pad": PAD}
            return Case(says, term, inputs, {"pad": PAD}, **more)

        yield case("one prediction has the loss −log softmax(logits[0])[tokens[1]]", "cost", 5, [2])
        yield case("every token predicts the next one", "pair", 6, [5])
        yield case("texts of one length are averaged", "average", 4, [6, 6, 6])
        yield case("padding is not a target", "choose", 7, [5, 2, 4])
        yield case("more padding changes nothing", "average", 9, [4, 3], extra=3)
        yield case("the gradient reaches the logits", "average", 5, [3, 6, 2], gradient=True)
        yield case("logits as large as 1000 stay finite", "cost", 6, [5, 5, 5, 5], scale=600.0)
        sure = case("a right prediction of probability 1 has the loss 0", "cost", 7, [4, 4, 4])
        target = sure.inputs["tokens"].roll(-1, 1)[..., None]
        logits = sure.inputs["logits"].scatter_add(-1, target, torch.full((3, 4, 1), 600.0))
        yield replace(sure, inputs={**sure.inputs, "logits": logits})

    def small_cases(self, draw: Draw) -> Iterable[Case]:
        for V, T, length in ((2, 2, 2), (3, 3, 3), (3, 3, 2), (3, 4, 3)):
            for _ in range(3):
                mask = torch.arange(T)[None] < length
                tokens = draw.whole(PAD + 1, V - 1, 1, T).where(mask, PAD)
                inputs = {"logits": draw.small(1, T, V), "tokens": tokens, "mask": mask, "pad": PAD}
                yield Case("a small example", "pair", inputs, {"pad": PAD})
        yield from self.cases(draw)
