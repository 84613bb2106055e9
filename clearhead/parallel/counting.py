"""What a forward pass costs, counted without computing it: bytes kept, and FLOPs of products.

    cost = count_pass(model, task.loss, batch)          model and batch on the meta device
    cost.kept, cost.flops

On the meta device tensors have shapes and no numbers, so a model of any size can be counted in a
moment. Autograd tells its hooks which tensors it keeps; those that share memory count once, and
those of the model and of the batch not at all. On a real device the same function counts what is
really kept there, and a test compares the two counts.

Where the model asks for a number that the meta device does not have, it gets the answer that needs
the most memory: for example, no target is padding. Fused attention keeps no attention weights, as
on CPUs and GPUs.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.nn.functional import scaled_dot_product_attention
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only
from torch.utils.flop_counter import flop_registry, sdpa_flop_count

from clearhead.data.batch import Batch
from clearhead.layers.stack import Stack
from clearhead.runtime import widen

# The functions of our models that torch.autocast computes in bfloat16 (NARROW) or float32 (WIDE).
# https://docs.pytorch.org/docs/stable/amp.html#cuda-op-specific-behavior
F = nn.functional
NARROW = {F.linear, torch.matmul, Tensor.matmul, Tensor.__matmul__, Tensor.__rmatmul__}
NARROW |= {torch.bmm, torch.baddbmm, torch.einsum, torch.conv2d, scaled_dot_product_attention}
WIDE = {F.layer_norm, F.cross_entropy, F.softmax, F.log_softmax, Tensor.softmax, torch.softmax}
FUSED = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu


@dataclass
class Cost:
    """What one forward pass of a batch costs."""

    flops: int = 0  # of its matrix products: 2 for each multiplication and addition
    n_kernels: int = 0  # operations that are not views
    copies: int = 0  # bytes of bfloat16 copies of the weights
    outside: int = 0  # bytes kept by everything that is not a block
    blocks: list[int] = field(default_factory=list)  # bytes kept by each block
    inputs: list[int] = field(default_factory=list)  # bytes of the input of each block
    block_flops: int = 0  # the part of flops in blocks, which checkpointing computes twice
    largest: int = 0  # bytes of the largest tensor that was computed

    @property
    def kept(self) -> int:
        """Bytes that autograd keeps from the forward to the backward pass."""
        return self.outside + sum(self.blocks)

    @property
    def kept_by_checkpoints(self) -> int:
        """The same with checkpointing: blocks keep only their inputs and are computed again."""
        return self.outside + sum(self.inputs) + max(self.blocks, default=0)


def find_blocks(model: nn.Module) -> list[nn.Module]:
    """The blocks of all stacks of a model: the units that are checkpointed and sharded."""
    stacks = (module for module in model.modules() if isinstance(module, Stack))
    return [block for stack in stacks for block in stack.blocks]


def count_pass(
    model: nn.Module, loss: Callable[[Any, Batch], Tensor], batch: Batch, *, mixed: bool = False
) -> Cost:
    """The cost of one loss; mixed: products in bfloat16, as torch.autocast computes them."""
    counter = _Counter(model, batch)
    on_meta = batch.inputs.is_meta
    with contextlib.ExitStack() as stack:
        if on_meta:
            stack.enter_context(_WithoutNumbers(mixed, counter))
        else:
            device = batch.inputs.device.type
            stack.enter_context(torch.autocast(device, dtype=torch.bfloat16, enabled=mixed))
        stack.enter_context(counter.watch_blocks(find_blocks(model)))
        stack.enter_context(saved_tensors_hooks(counter.keep, lambda tensor: tensor))
        stack.enter_context(counter)
        loss(model, batch)
    return counter.cost


class _Counter(TorchDispatchMode):
    """Adds up every operation, and every tensor that autograd keeps."""

    def __init__(self, model: nn.Module, batch: Batch) -> None:
        super().__init__()
        self.cost = Cost()
        self.block: int | None = None  # the block that is being computed
        own = (
            *model.parameters(),
            *model.buffers(),
            *filter(torch.is_tensor, vars(batch).values()),
        )
        # The tensors are kept alive, so that no later storage can get the same address.
        self.seen = {_find_storage(tensor): tensor for tensor in own}

    def keep(self, tensor: Tensor) -> Tensor:
        """Count a tensor that autograd keeps, unless its memory is counted already."""
        if (storage := _find_storage(tensor)) not in self.seen:
            self.seen[storage] = tensor.detach()
            n_bytes = tensor.untyped_storage().nbytes()
            if self.block is None:
                self.cost.outside += n_bytes
            else:
                self.cost.blocks[self.block] += n_bytes
        return tensor

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        output = func(*args, **(kwargs or {}))
        if func.is_view:
            return output
        flops = _count_flops(func, args, kwargs or {}, output)
        self.cost.flops += flops
        self.cost.block_flops += flops if self.block is not None else 0
        self.cost.n_kernels += 1
        sizes = [x.untyped_storage().nbytes() for x in tree_leaves(output) if torch.is_tensor(x)]
        self.cost.largest = max(self.cost.largest, *sizes, 0)
        return output

    @contextlib.contextmanager
    def watch_blocks(self, blocks: Sequence[nn.Module]) -> Iterator[None]:
        """In a `with` block, record in self.block which block is being computed."""

        def enter(block: nn.Module, args: tuple[Any, ...]) -> None:
            self.block = len(self.cost.blocks)
            self.cost.blocks.append(0)
            self.cost.inputs.append(args[0].numel() * args[0].element_size())

        def leave(block: nn.Module, args: Any, output: Any) -> None:
            self.block = None

        hooks = [block.register_forward_pre_hook(enter) for block in blocks]
        hooks += [block.register_forward_hook(leave) for block in blocks]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()


class _WithoutNumbers(TorchFunctionMode):
    """Makes the meta device compute as an accelerator would, and answer questions about numbers."""

    def __init__(self, mixed: bool, counter: _Counter) -> None:
        super().__init__()
        self.mixed, self.counter = mixed, counter
        self.copies: dict[Tensor, Tensor] = {}

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if self.mixed and func in NARROW | WIDE:
            change = self._narrow if func in NARROW else widen
            args, kwargs = tree_map_only(Tensor, change, (args, kwargs))
        if func is scaled_dot_product_attention:
            return _attend(*args, **kwargs)
        if func is Tensor.__getitem__ and getattr(args[1], "dtype", None) == torch.bool:
            return args[0].flatten(0, args[1].ndim - 1).clone()
        if func is torch.equal:
            return True
        return func(*args, **kwargs)

    def _narrow(self, x: Tensor) -> Tensor:
        """x in bfloat16; autocast keeps the copy of a weight for all its uses."""
        if x.dtype != torch.float32:
            return x
        if not isinstance(x, nn.Parameter):
            return x.bfloat16()
        if x not in self.copies:
            self.copies[x] = x.bfloat16()
            self.counter.seen[_find_storage(self.copies[x])] = self.copies[x]
            self.counter.cost.copies += 2 * x.numel()
        return self.copies[x]


def _attend(
    q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None = None, **settings: Any
) -> Tensor:
    """The fused kernel. It keeps q, k, v, the output, a number per row, and the mask."""
    if q.size(-1) != v.size(-1):  # no fused kernel
        return scaled_dot_product_attention(q, k, v, attn_mask, **settings)
    if attn_mask is not None:  # a learned one is kept, too; its gradient is not needed here
        attn_mask = attn_mask.detach().to(q.dtype)
    output: Tensor = FUSED(
        q,
        k,
        v,
        0.0,
        settings.get("is_causal", False),
        attn_mask=attn_mask,
        scale=settings.get("scale"),
    )[0]
    return output


def _find_storage(tensor: Tensor) -> int:
    return tensor.untyped_storage()._cdata


def _count_flops(func: Any, args: Any, kwargs: Any, output: Any) -> int:
    """FLOPs of an operation, from PyTorch's table, which lacks the fused attention of CPUs."""
    packet = func._overloadpacket
    if packet is FUSED:
        return int(sdpa_flop_count(*(x.shape for x in args[:3])))
    if packet not in flop_registry:
        return 0
    return int(flop_registry[packet](*args, **kwargs, out_val=output))
