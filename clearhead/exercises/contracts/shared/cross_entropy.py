"""The loss of one prediction, −log softmax(logits)[target], and the mistakes made in it."""

from torch import Tensor

from clearhead.exercises.exercise import Exercise, mistake


class CrossEntropy(Exercise):
    """Adds the term `cost` to an exercise: logits (B, T, V), targets (B, T) → losses (B, T)."""

    def cost(self, logits: Tensor, targets: Tensor) -> Tensor:
        return -logits.log_softmax(-1).gather(-1, targets[..., None])[..., 0]

    # Mistakes

    @mistake(
        "cost",
        "the softmax is applied twice: cross_entropy takes logits and applies its own",
        line=("softmax",),
    )
    def softmax_twice(self, logits: Tensor, targets: Tensor) -> Tensor:
        again = logits.softmax(-1).log_softmax(-1)
        return -again.gather(-1, targets[..., None])[..., 0]

    @mistake(
        "cost",
        "the minus sign is missing: minimising the log probability makes the right token unlikely",
        line=("log_softmax", "log(", "gather", "return"),
    )
    def sign_forgotten(self, logits: Tensor, targets: Tensor) -> Tensor:
        return logits.log_softmax(-1).gather(-1, targets[..., None])[..., 0]

    @mistake(
        "cost",
        "log(softmax(x)) is computed in two steps: a probability that rounds to 0 makes the loss "
        "infinite; use log_softmax",
        line=("log(", ".log"),
    )
    def log_of_softmax(self, logits: Tensor, targets: Tensor) -> Tensor:
        return -logits.softmax(-1).log().gather(-1, targets[..., None])[..., 0]

    @mistake(
        "cost",
        "the softmax overflows: exp of a large logit is infinite; use log_softmax or logsumexp",
        line=("exp(", ".exp"),
        variants=("no_max_in_logsumexp",),
    )
    def no_max_subtraction(self, logits: Tensor, targets: Tensor) -> Tensor:
        probs = logits.exp() / logits.exp().sum(-1, keepdim=True)
        return -probs.log().gather(-1, targets[..., None])[..., 0]

    def no_max_in_logsumexp(self, logits: Tensor, targets: Tensor) -> Tensor:
        return logits.exp().sum(-1).log() - logits.gather(-1, targets[..., None])[..., 0]

    @mistake(
        "cost",
        "the logits are viewed as (B, V, T) where they must be transposed: rows and columns are "
        "mixed",
        line=("view", "reshape"),
    )
    def viewed_not_transposed(self, logits: Tensor, targets: Tensor) -> Tensor:
        B, T, V = logits.shape
        mixed = logits.reshape(B, V, T).mT
        return -mixed.log_softmax(-1).gather(-1, targets[..., None])[..., 0]

    @mistake("cost", "the softmax runs over the positions instead of the vocabulary", line=("dim",))
    def softmax_over_time(self, logits: Tensor, targets: Tensor) -> Tensor:
        return -logits.log_softmax(1).gather(-1, targets[..., None])[..., 0]
