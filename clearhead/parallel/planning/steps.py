"""The formulas: what a training step needs in each mode.

P parameters on N processes, in bytes; a float32 number has 4, and S = 4P is a whole gradient.

             weights   gradient   AdamW    Muon                  buffers
    none     4P        S          8P       4 for each number of  S, while a batch's is added
    exact    4P        S          8P       an inner matrix, 8    sums and slices, 2 S or more
    ddp      4P        S          8P       for each other one    S, in the first step
    fsdp     4P/N      S/N        8P/N                           blocks that are gathered

SGD keeps nothing. Activations (counting.py) come on top. Not everything is there at the same time:
the memory of a step is that of its worst moment. The gradient is counted in each of these moments:

    pass        the forward pass is done, and every activation is kept
    exchange    the gradients of all batches and processes are added
    update      the optimizer computes, Muon with copies of its matrices

The time of a step is three times that of the forward pass (for each of its products the backward
pass has two), plus the update, plus the part of the exchange that does not overlap with a pass:

             sent and received by each process, in bytes          overlaps with
    exact    2 (N − 1)/N · S               gradients, then new weights
    ddp      2 (N − 1)/N · S               a ring                 the backward pass
    fsdp     (N − 1)/N · (4P + 4P + S)     two gathers, a sum     both passes

With products in bfloat16, fsdp gathers half as much; it gathers again for each batch of a step. In
exact mode each process updates 1/N of the
weights (owners.py), and so does ddp with Muon, which then sends (N − 1)/N · S more. All speeds are
peaks from data sheets; what part of a peak is reached, UTILISATION, is an assumption, and so are
LAUNCH and NETWORK.
"""

from dataclasses import dataclass

from clearhead.parallel.counting import Cost
from clearhead.parallel.planning.cards import CARDS_OF_A_MACHINE, Card
from clearhead.parallel.planning.sizes import FLOAT, Sizes
from clearhead.training.chunks import count_chunks, list_subtrees, share_chunks
from clearhead.training.recipe import TrainingConfig

UTILISATION = 0.4  # part of the peak that large models reach in products; small ones far less
LAUNCH = 5e-6  # seconds that each operation takes at least
NETWORK = 25e9  # bytes/s between machines: 200 Gbit/s for each card
MUON_COPIES = 5  # of matrices: before, between and after the products, and two of their squares


@dataclass(frozen=True)
class Memory:
    """Bytes of one process, at one moment of a step."""

    moment: str  # "pass", "exchange" or "update"
    weights: int
    gradient: int
    optimizer: int
    buffers: int
    activations: int

    @property
    def total(self) -> int:
        held = self.weights + self.gradient + self.optimizer
        return held + self.buffers + self.activations


@dataclass(frozen=True)
class Time:
    """Seconds of one step; `hidden` is the part of the exchange that overlaps the passes."""

    passes: float
    update: float
    exchange: float
    hidden: float

    @property
    def total(self) -> float:
        return self.passes + self.update + self.exchange - self.hidden


@dataclass(frozen=True)
class Share:
    """What one process computes in a step: n_passes, each with n_examples."""

    n_passes: int
    n_examples: int


def share_step(c: TrainingConfig, mode: str, n: int) -> Share:
    """A step has accumulate · batch_size examples, whatever the number of processes.

    "exact" divides the step into chunks; "ddp" and "fsdp" divide each of its batches by n.
    """
    if mode != "exact":
        return Share(c.accumulate, -(-c.batch_size // n))
    n_parts = -(-c.chunks // c.accumulate)  # of each batch
    n_chunks = count_chunks(c)
    return Share(-(-n_chunks // n), -(-c.batch_size // n_parts))


def compute_memory(sizes: Sizes, mode: str, n: int, *, mixed: bool, checkpoint: bool) -> Memory:
    """The memory of a process at the worst moment of a step."""
    c, held = sizes.recipe.training, sizes.hold(n if mode == "fsdp" else 1)
    share = share_step(c, mode, n)
    cost = sizes.count(share.n_examples, mixed)
    buffers = count_buffers(sizes, mode, n, share, mixed)
    activations = count_activations(cost, checkpoint=checkpoint, shares_copies=mode == "fsdp")
    kept = held.weights, held.gradient, held.optimizer
    moments = [
        Memory(name, *kept, size, activations if name == "pass" else 0)
        for name, size in buffers.items()
    ]
    return max(moments, key=lambda memory: memory.total)


def count_activations(cost: Cost, *, checkpoint: bool, shares_copies: bool) -> int:
    """What autograd keeps, and the gradients of the largest tensor and of the one before it.

    Products in bfloat16 need copies of the weights. With shares_copies they need none, because
    fsdp gathers the weights in bfloat16 already.
    """
    kept = cost.kept_by_checkpoints if checkpoint else cost.kept
    return kept + 2 * cost.largest + (0 if shares_copies else cost.copies)


def count_buffers(sizes: Sizes, mode: str, n: int, share: Share, mixed: bool) -> dict[str, int]:
    """Bytes beside weights, gradient, optimizer and activations, at each moment of a step.

    none      S, the gradient of a batch beside the sum of those before it: when it is added, and
              in the pass if several batches are accumulated
    exact     pass: a process with c chunks keeps up to log₂ c sums, S each, until they are added
              exchange: one sum more; or the sum of a subtree, S to send and S to receive, each of
              the three m times if its chunks are m subtrees; one S is counted as the gradient
              update: the new weights, S/N to send and S to receive
    ddp       S, in the first step, which finds the order of the gradients
    fsdp      the weights of the largest block twice, because the next block is gathered meanwhile;
              all weights outside the blocks; and a whole gradient: of a block or of the weights
              outside, whichever is larger, or of the model if several batches are accumulated

    In the update Muon has copies of all matrices of one shape; in fsdp, of one matrix; in exact
    mode, of one matrix beside the steps of all matrices of its shape.
    """
    S, c = sizes.hold(1).gradient, sizes.recipe.training
    copied = sizes.most_in_a_shape if mode in ("none", "ddp") else sizes.most_in_a_matrix
    kept = sizes.most_in_a_shape if mode == "exact" else 0
    update = FLOAT * (MUON_COPIES * copied + kept) * (c.optimizer == "muon")
    if mode == "none":
        return {"pass": S * (c.accumulate > 1), "exchange": S, "update": update}
    if mode == "ddp":
        return {"pass": S, "exchange": S, "update": update}
    if mode == "exact":
        waiting = (share.n_passes - 1).bit_length()
        m = count_subtrees(count_chunks(c), n)
        sent = 3 * m - 1 if n > 1 else 0
        gathered = S + S // n if n > 1 else 0
        exchange = max(waiting + 1, sent) * S
        return {"pass": waiting * S, "exchange": exchange, "update": max(update, gathered)}
    block, rest = sizes.block_sizes
    width = 2 if mixed else FLOAT
    gathered = width * (2 * block + rest)
    whole = S if c.accumulate > 1 else FLOAT * max(block, rest)
    return {"pass": gathered + whole, "update": update}


def count_subtrees(n_chunks: int, n: int) -> int:
    """How many subtrees the chunks of one process form, at most."""
    shares = (share_chunks(n_chunks, rank, n) for rank in range(n))
    return max(len(list_subtrees(share, (0, n_chunks))) for share in shares)


def compute_time(
    sizes: Sizes, card: Card, mode: str, n: int, *, mixed: bool, checkpoint: bool
) -> Time:
    """The time of a step."""
    share = share_step(sizes.recipe.training, mode, n)
    cost = sizes.count(share.n_examples, mixed)
    peak = card.half if mixed and card.half is not None else card.single
    flops = 3 * cost.flops + cost.block_flops * checkpoint
    both = max(flops / (UTILISATION * peak), 3 * LAUNCH * cost.n_kernels)  # forward and backward
    passes = share.n_passes * both
    exchange = count_traffic(sizes, mode, n, share, mixed) / find_link(card, n)
    hideable = {"ddp": both * 2 / 3, "fsdp": passes}.get(mode, 0.0)
    return Time(passes, compute_update(sizes, card, mode, n), exchange, min(exchange, hideable))


def compute_update(sizes: Sizes, card: Card, mode: str, n: int) -> float:
    """The seconds of the optimizer: the bytes that it reads and writes, and the products of Muon.

    In exact mode, and in ddp with Muon, the processes share it out. In fsdp each process reads and
    writes its own rows, but gathers every matrix of Muon and computes all products.
    """
    held = sizes.hold(n if mode == "fsdp" else 1)
    moved = 2 * held.weights + held.gradient + 2 * held.optimizer  # the gradient is only read
    uses_muon = sizes.recipe.training.optimizer == "muon"
    n_shares = n if mode == "exact" or (mode == "ddp" and uses_muon) else 1
    seconds = moved / card.bandwidth / n_shares
    if uses_muon:
        seconds += sizes.muon_flops / (UTILISATION * card.single) / n_shares
    if uses_muon and mode == "fsdp":
        gathered = FLOAT * sum(matrix.numel() for matrix in sizes.inner) * (n - 1) / n
        seconds += gathered / find_link(card, n)
    return seconds


def count_traffic(sizes: Sizes, mode: str, n: int, share: Share, mixed: bool) -> float:
    """Bytes that a process sends in a step, and as many that it receives."""
    S, others = sizes.hold(1).gradient, (n - 1) / n
    if mode != "fsdp":
        is_shared = mode == "ddp" and sizes.recipe.training.optimizer == "muon"
        return (3 if is_shared else 2) * others * S
    width = 2 if mixed else FLOAT
    gathers = 2 * width * sizes.n_parameters * share.n_passes
    return others * (gathers + S)


def find_link(card: Card, n: int) -> float:
    """Bytes per second between processes: those of the card's link, or of the network."""
    return card.link if n <= CARDS_OF_A_MACHINE else min(card.link, NETWORK)
