"""The gradient of a step, by one worker or by several."""

import copy
import dataclasses
import threading

import pytest
import torch
from torch import Tensor

from clearhead.data.batch import Batch
from clearhead.models import GPT, GPTConfig, VisionTransformer, ViTConfig
from clearhead.training.gradient import Gradients
from clearhead.training.losses import class_loss

TINY = ViTConfig(
    n_classes=3, image_size=16, channels=2, stem="convolution", patch_size=8, class_token=False,
    pool="mean", d_model=12, n_layers=1, n_heads=3,
)  # fmt: skip


def loss_of(model: VisionTransformer, batch: Batch) -> Tensor:
    return class_loss(model(batch.inputs), batch.targets)


def made(seed: int = 0) -> VisionTransformer:
    torch.manual_seed(seed)
    return VisionTransformer(TINY)


def batches(*sizes: int) -> list[Batch]:
    g = torch.Generator().manual_seed(5)
    return [
        Batch(torch.randn(n, 2, 16, 16, generator=g), torch.randint(3, (n,), generator=g))
        for n in sizes
    ]


def gradients(model: torch.nn.Module) -> dict[str, Tensor]:
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def with_threads(n: int, workers: int, *sizes: int) -> dict[str, Tensor]:
    before = torch.get_num_threads()
    torch.set_num_threads(n)
    try:
        model = made()
        losses = Gradients(model, loss_of, workers=workers).accumulate(batches(*sizes))
        assert torch.get_num_threads() == n
    finally:
        torch.set_num_threads(before)
    return {
        **gradients(model),
        **{name: b.clone() for name, b in model.named_buffers()},
        "losses": torch.stack(losses),
    }


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_the_gradient_is_the_mean_over_the_batches(workers: int) -> None:
    model, parts = made(), batches(5, 3, 4)
    Gradients(model, loss_of, workers=workers).accumulate(parts)
    found = gradients(model)
    plain = made().train()
    (sum(loss_of(plain, part) for part in parts) / 3).backward()
    assert found.keys() == gradients(plain).keys()
    for name, gradient in gradients(plain).items():
        torch.testing.assert_close(found[name], gradient, msg=lambda text, n=name: f"{n}: {text}")


def test_losses_come_in_the_order_of_the_batches() -> None:
    model, parts = made(), batches(5, 3, 4)
    losses = Gradients(model, loss_of, workers=2).accumulate(parts)
    expected = [loss_of(made().train(), part) for part in parts]
    torch.testing.assert_close(torch.stack(losses), torch.stack(expected))
    assert not any(loss.requires_grad for loss in losses)


@pytest.mark.parametrize("sizes", [(5, 3), (5, 3, 4, 2), (5, 3, 4)])
def test_numbers_do_not_depend_on_how_many_workers_run_at_once(sizes: tuple[int, ...]) -> None:
    alone, together = with_threads(1, 2, *sizes), with_threads(2, 2, *sizes)
    assert alone.keys() == together.keys()
    for name, tensor in alone.items():
        assert torch.equal(tensor, together[name]), name


def test_two_workers_do_run_at_once() -> None:
    meeting = threading.Barrier(2, timeout=20)  # broken if the second never comes

    def waits(model: VisionTransformer, batch: Batch) -> Tensor:
        meeting.wait()
        return loss_of(model, batch)

    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        Gradients(made(), waits, workers=2).accumulate(batches(2, 3))
    finally:
        torch.set_num_threads(before)


def test_running_means_are_averaged_and_parameters_shared() -> None:
    parts = batches(5, 3)
    model = made()
    gradients = Gradients(model, loss_of, workers=2)
    gradients.accumulate(parts)
    each = []
    for part in parts:
        alone = made().train()
        loss_of(alone, part)
        each.append(dict(alone.named_buffers()))
    for name, buffer in model.named_buffers():
        if buffer.is_floating_point():
            torch.testing.assert_close(buffer, (each[0][name] + each[1][name]) / 2)
        else:
            assert torch.equal(buffer, each[0][name]), name
    for mine, its in zip(model.parameters(), gradients.models[1].parameters(), strict=True):
        assert mine is its


def test_buffers_of_a_resumed_model_reach_every_worker() -> None:
    model = made()
    gradients = Gradients(model, loss_of, workers=2)
    with torch.no_grad():
        model.patches.norm_1.running_mean.fill_(7.0)
    gradients.accumulate(batches(5, 3))
    assert float(model.patches.norm_1.running_mean.min()) > 6.0  # 0.9 · 7 + 0.1 · about 0


def test_a_parameter_that_is_not_used_gets_no_gradient() -> None:
    model = made()
    model.extra = torch.nn.Parameter(torch.ones(2))
    Gradients(model, loss_of).accumulate(batches(2))
    assert model.extra.grad is None
    assert model.head.weight.grad is not None


def test_a_fault_in_a_worker_is_raised_and_the_threads_are_set_back() -> None:
    def fails(model: VisionTransformer, batch: Batch) -> Tensor:
        raise RuntimeError("broken")

    before = torch.get_num_threads()
    with pytest.raises(RuntimeError, match="broken"):
        Gradients(made(), fails, workers=2).accumulate(batches(2, 3))
    assert torch.get_num_threads() == before


def test_workers_refuse_dropout() -> None:
    model = VisionTransformer(dataclasses.replace(TINY, dropout=0.1))
    Gradients(model, loss_of)
    with pytest.raises(
        ValueError, match=r"workers=2 .* take training.workers=1 or model.dropout=0"
    ):
        Gradients(model, loss_of, workers=2)


def test_it_learns_a_text_too() -> None:
    torch.manual_seed(0)
    model = GPT(GPTConfig(vocab_size=7, max_len=9, d_model=8, n_layers=1, n_heads=2))
    g = torch.Generator().manual_seed(1)
    parts = [Batch(*torch.randint(7, (2, 3, 9), generator=g).unbind()) for _ in range(2)]

    def loss(model: GPT, batch: Batch) -> Tensor:
        return class_loss(model(batch.inputs).flatten(0, 1), batch.targets.flatten())

    losses = Gradients(model, loss, workers=2).accumulate(parts)
    assert len(losses) == 2
    assert all(p.grad is not None for p in model.parameters())


def test_buffers_that_all_have_alike_stay_to_the_bit() -> None:
    model = made()
    before = model.patches.whitening.clone()
    with torch.no_grad():
        model.patches.whitening.copy_(before + torch.rand(before.shape) / 3)
    before = model.patches.whitening.clone()
    Gradients(model, loss_of, workers=3).accumulate(batches(2, 3, 4))
    assert torch.equal(model.patches.whitening, before)


@pytest.mark.parametrize("workers", [1, 2])
def test_gradients_lie_in_memory_as_their_parameters(workers: int) -> None:
    """AdamW's fused kernel goes by the place in memory, and would move other weights."""
    model = made()
    Gradients(model, loss_of, workers=workers).accumulate(batches(5, 3))
    for name, p in model.named_parameters():
        assert p.grad is not None
        assert p.grad.stride() == p.stride(), name


def test_a_step_is_that_of_a_plain_backward_pass() -> None:
    ours, plain = made(), made().train()
    (part,) = batches(5)
    Gradients(ours, loss_of).accumulate([part])
    loss_of(plain, part).backward()
    for model in (ours, plain):
        torch.optim.AdamW(model.parameters(), lr=0.1, fused=True).step()
    for (name, a), b in zip(ours.named_parameters(), plain.parameters(), strict=True):
        assert torch.equal(a, b), name


@pytest.mark.parametrize("precision", ["auto", "float32", "bfloat16"])
def test_precision_is_that_of_the_products_and_never_of_the_gradient(precision: str) -> None:
    # Patches instead of the stem, whose batch norm over a few pictures magnifies the rounding.
    exact = VisionTransformer(dataclasses.replace(TINY, stem="patch"))
    rounded, parts = copy.deepcopy(exact), batches(5, 3)
    seen: set[torch.dtype] = set()
    rounded.head.register_forward_hook(lambda *call: seen.add(call[-1].dtype))
    Gradients(exact, loss_of).accumulate(parts)
    Gradients(rounded, loss_of, precision=precision).accumulate(parts)
    assert seen == {torch.bfloat16 if precision == "bfloat16" else torch.float32}
    assert all(p.grad is not None and p.grad.dtype == torch.float32 for p in rounded.parameters())
    right, got = (torch.cat([g.flatten() for g in gradients(x).values()]) for x in (exact, rounded))
    error = (got - right).norm() / right.norm()
    assert 1e-4 < error < 0.05 if precision == "bfloat16" else error == 0


def test_workers_in_bfloat16_give_the_numbers_of_one() -> None:
    parts, found = batches(4, 4), []
    for threads in (1, 2):
        before, model = torch.get_num_threads(), made()
        torch.set_num_threads(threads)
        try:
            Gradients(model, loss_of, workers=2, precision="bfloat16").accumulate(parts)
        finally:
            torch.set_num_threads(before)
        found.append(gradients(model))
    assert all(torch.equal(found[0][name], found[1][name]) for name in found[0])
