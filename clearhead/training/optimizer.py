"""How gradients become steps: SGD; AdamW; or Muon for the inner matrices, AdamW for the rest.

    SGD      w ← (1 − lr λ) w − lr g                                   plain: no momentum
    AdamW    m ← β₁ m + (1−β₁) g;   v ← β₂ v + (1−β₂) g²
             w ← (1 − lr λ) w − lr · m̂ / (√v̂ + ε)                     (Loshchilov & Hutter 2019)
    Muon     m ← μ m + g;   u = g + μ m
             w ← (1 − lr λ) w − lr · √max(1, rows / columns) · UVᵀ         where u = U Σ Vᵀ
             (Jordan et al. 2024): all singular values of the step become about 1, so that weak
             directions of a gradient learn as fast as strong ones

λ is weight_decay, 0 for vectors. UVᵀ comes from a few Newton–Schulz steps, X ← aX + (bA + cA²)X
with A = XXᵀ, which push each singular value towards 1 by the polynomial aσ + bσ³ + cσ⁵. Matrices of
one shape are stacked and updated together.

Between steps an optimizer keeps named tensors and nothing else, so that a run can be saved.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

import torch
from torch import Tensor, nn

from clearhead.shapes import check_choice

OPTIMIZERS = ("adamw", "muon", "sgd")
COEFFICIENTS = (3.4445, -4.7750, 2.0315)  # Jordan's: steep at 0, within ±0.3 of 1 after 5 steps
# The first and the last layer of a model, by name; "encoder" and "decoder" are older names.
OUTER = ("embedding", "head", "decoder", "encoder")

Parameters = dict[str, nn.Parameter]


class Optimizer:
    """Updates all parameters of a model by their gradients."""

    def __init__(
        self,
        model: nn.Module,
        kind: str = "adamw",
        *,
        lr: float = 1e-3,
        matrix_lr: float = 0.03,
        betas: tuple[float, float] = (0.9, 0.95),
        weight_decay: float = 0.0,
        momentum: float = 0.95,
        newton_steps: int = 5,
    ) -> None:
        """lr is AdamW's and SGD's, matrix_lr is Muon's; weight_decay pulls matrices towards 0."""
        check_choice("optimizer", kind, OPTIMIZERS)
        learned = {name: p for name, p in model.named_parameters() if p.requires_grad}
        inner = find_inner_matrices(model) if kind == "muon" else {}
        plain = learned if kind == "sgd" else {}
        rest = {name: p for name, p in learned.items() if name not in (inner | plain)}
        self.lr, self.matrix_lr, self.weight_decay = lr, matrix_lr, weight_decay
        self.muon, self.sgd = Muon(inner, momentum, newton_steps), list(plain.values())
        self.adamw = torch.optim.AdamW(
            [
                {"params": list(group.values()), "weight_decay": decay}
                for group, decay in (
                    ({n: p for n, p in rest.items() if p.ndim >= 2}, weight_decay),
                    ({n: p for n, p in rest.items() if p.ndim < 2}, 0.0),
                )
            ],
            lr=lr,
            betas=betas,
            fused=True,
        )
        self.names: dict[Tensor, str] = {p: name for name, p in rest.items()}
        self.parameters = list(learned.values())
        # AdamW would create these at the first gradient; a checkpoint may come before that.
        for parameter in self.names:
            self.adamw.state[parameter] = {
                "step": torch.zeros((), device=parameter.device),
                "exp_avg": torch.zeros_like(parameter, requires_grad=False),
                "exp_avg_sq": torch.zeros_like(parameter, requires_grad=False),
            }

    def step(self, factor: float = 1.0) -> None:
        """Update all parameters with the learning rates times this factor; clear the gradients."""
        for group in self.adamw.param_groups:
            group["lr"] = self.lr * factor
        if self.names:  # SGD and Muon may leave nothing to AdamW
            self.adamw.step()
        self.muon.step(self.matrix_lr * factor, self.weight_decay)
        sgd_step(self.sgd, self.lr * factor, self.weight_decay)
        for parameter in self.parameters:
            parameter.grad = None

    def tensors(self) -> dict[str, Tensor]:
        """Everything the optimizer needs to resume, by name: the tensors themselves, no copies."""
        found = {f"muon.{name}": tensor for name, tensor in self.muon.momenta.items()}
        for parameter, name in self.names.items():
            values = self.adamw.state[parameter]
            found |= {f"adamw.{key}.{name}": value for key, value in values.items()}
        return found

    def find_tensors(self, parameter: nn.Parameter) -> list[Tensor]:
        """What the optimizer keeps for a parameter: the tensors themselves."""
        if parameter in self.names:
            return list(self.adamw.state[parameter].values())
        momenta, matrices = self.muon.momenta, self.muon.parameters
        return [momenta[name] for name, matrix in matrices.items() if matrix is parameter]

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Continue from what `tensors` gave; all of it must be there, and nothing else."""
        own = self.tensors()
        if odd := sorted(own.keys() ^ tensors.keys()):
            word = "is missing" if odd[0] in own else "is not part of it"
            raise ValueError(f"the optimizer does not fit this model: {odd[0]!r} {word}")
        for name, tensor in own.items():
            given = tensors[name]
            if (given.shape, given.dtype) != (tensor.shape, tensor.dtype):
                raise ValueError(
                    f"the optimizer does not fit this model: {name!r} has shape "
                    f"{tuple(given.shape)} of {given.dtype}, not {tuple(tensor.shape)} of "
                    f"{tensor.dtype}"
                )
        for name, tensor in own.items():
            tensor.copy_(tensors[name])


@torch.no_grad()
def sgd_step(parameters: Sequence[nn.Parameter], lr: float, weight_decay: float) -> None:
    """Update all parameters that have a gradient; only matrices decay. Nothing is kept."""
    for parameter in parameters:
        if parameter.grad is not None:
            if parameter.ndim >= 2:
                parameter.mul_(1 - lr * weight_decay)
            parameter.add_(parameter.grad, alpha=-lr)


class Muon:
    """Momentum, then the nearest orthogonal matrix as the step."""

    def __init__(self, parameters: Parameters, momentum: float, newton_steps: int) -> None:
        self.parameters, self.momentum, self.newton_steps = parameters, momentum, newton_steps
        self.momenta = {name: torch.zeros_like(p) for name, p in parameters.items()}
        # Matrices of one shape → their steps; those of a sharded model are elsewhere, too.
        self.orthogonalise: Callable[[Sequence[Tensor], int], Iterable[Tensor]] = _stack_and_compute
        self.groups: dict[tuple[int, ...], list[str]] = defaultdict(list)
        for name, parameter in parameters.items():
            self.groups[tuple(parameter.flatten(1).shape)].append(name)

    @torch.no_grad()
    def step(self, lr: float, weight_decay: float) -> None:
        """Update all matrices that have a gradient, those of one shape together."""
        for (rows, columns), names in self.groups.items():
            learned = [name for name in names if self.parameters[name].grad is not None]
            if not learned:
                continue
            updates = self.orthogonalise(self._add_momentum(learned), self.newton_steps)
            rate = lr * max(1.0, rows / columns) ** 0.5
            for name, update in zip(learned, updates, strict=True):
                parameter = self.parameters[name]
                parameter.mul_(1 - lr * weight_decay)
                parameter.add_(update.view_as(parameter), alpha=-rate)

    def _add_momentum(self, names: Sequence[str]) -> list[Tensor]:
        """u = g + μ m (Nesterov's form); updates m."""
        found = []
        for name in names:
            gradient, momentum = self.parameters[name].grad, self.momenta[name]
            assert gradient is not None
            momentum.mul_(self.momentum).add_(gradient)
            found.append(gradient.add(momentum, alpha=self.momentum))
        return found


def find_inner_matrices(model: nn.Module) -> Parameters:
    """The weights of linear layers and convolutions between the first and the last layer.

    A weight that two layers share is inner only if both layers are.
    """
    modules = dict(model.named_modules(remove_duplicate=False))
    found: Parameters = {}
    inner: set[nn.Parameter] = set()
    outer: set[nn.Parameter] = set()
    for name, parameter in model.named_parameters(remove_duplicate=False):
        layer, _, last = name.rpartition(".")
        is_matrix = isinstance(modules[layer], nn.Linear | nn.Conv2d) and last == "weight"
        if not is_matrix or layer.rpartition(".")[2] in OUTER:
            outer.add(parameter)
        elif parameter.requires_grad and parameter not in inner:
            inner.add(parameter)
            found[name] = parameter
    return {name: parameter for name, parameter in found.items() if parameter not in outer}


def _stack_and_compute(matrices: Sequence[Tensor], n_steps: int) -> Tensor:
    return orthogonalise(torch.stack([matrix.flatten(1) for matrix in matrices]), n_steps)


def orthogonalise_each(matrices: Sequence[Tensor], n_steps: int) -> list[Tensor]:
    """One by one: in a stack, the last digits depend on where a matrix begins in memory."""
    return [_stack_and_compute([matrix], n_steps)[0] for matrix in matrices]


def orthogonalise(x: Tensor, n_steps: int = 5) -> Tensor:
    """Matrices (N, rows, columns) → the same with all singular values moved to about 1."""
    a, b, c = COEFFICIENTS
    tall = x.size(-2) > x.size(-1)
    x = x.mT if tall else x
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)  # no singular value above 1
    for _ in range(n_steps):
        square = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(square, square, square, beta=b, alpha=c), x, beta=a)
    return x.mT if tall else x
