"""Graphics cards, as their data sheets describe them: memory, speed, and links to other cards.

    find_card("a100").memory            40e9 bytes

The FLOP/s are peaks for dense matrix products; sheets often print twice as much, for sparse ones.
`link` is the speed in one direction between cards of one machine: half of what sheets print for
NVLink, PCIe and Infinity Fabric, since they add both directions. Real programs stay below a peak.
"""

import os
from dataclasses import dataclass, replace

from clearhead.config import suggest


@dataclass(frozen=True)
class Card:
    """A kind of device that trains; sizes in bytes, speeds per second."""

    name: str
    memory: float
    half: float | None  # FLOP/s of bfloat16 products, None if the card has no instructions for them
    single: float  # FLOP/s of float32 products
    bandwidth: float  # bytes/s between its memory and its processors
    link: float  # bytes/s to another card, in one direction


def _card(
    name: str, gigabytes: float, half: float | None, single: float, bandwidth: float, link: float
) -> Card:
    """Memory in GB, products in TFLOP/s, bandwidth and link in GB/s, as data sheets have them."""
    half = None if half is None else half * 1e12
    return Card(name, gigabytes * 1e9, half, single * 1e12, bandwidth * 1e9, link * 1e9)


_CARDS = (
    # NVIDIA V100 data sheet (SXM2, 32 GB): FP16 only, 125 TFLOPS; NVLink 300 GB/s.
    _card("v100", 32, None, 15.7, 900, 150),
    # NVIDIA T4 data sheet: FP16 only, 65 TFLOPS; PCIe 3.0 × 16, 32 GB/s.
    _card("t4", 16, None, 8.1, 300, 16),
    # NVIDIA A10 data sheet: 250 TFLOPS when sparse; PCIe 4.0 × 16, 64 GB/s.
    _card("a10", 24, 125, 31.2, 600, 32),
    # NVIDIA A100 data sheet (SXM4): NVLink 600 GB/s.
    _card("a100", 40, 312, 19.5, 1555, 300),
    _card("a100-80gb", 80, 312, 19.5, 2039, 300),
    # NVIDIA L4 data sheet: 242 TFLOPS when sparse; PCIe 4.0 × 16, 64 GB/s.
    _card("l4", 24, 121, 30.3, 300, 32),
    # NVIDIA L40S data sheet: 733 TFLOPS when sparse; PCIe 4.0 × 16, 64 GB/s.
    _card("l40s", 48, 362, 91.6, 864, 32),
    # NVIDIA H100 data sheet (SXM5): 1,979 TFLOPS when sparse; NVLink 900 GB/s.
    _card("h100", 80, 989, 67, 3350, 450),
    # NVIDIA H200 data sheet (SXM5): 1,979 TFLOPS when sparse; NVLink 900 GB/s.
    _card("h200", 141, 989, 67, 4800, 450),
    # NVIDIA Ampere GA102 white paper, appendix A: BF16 with FP32 sums; PCIe 4.0 × 16, 64 GB/s.
    _card("rtx-3090", 24, 71, 35.6, 936, 32),
    # NVIDIA Ada white paper, appendix A: BF16 with FP32 sums; PCIe 4.0 × 16, 64 GB/s.
    _card("rtx-4090", 24, 165.2, 82.6, 1008, 32),
    # NVIDIA RTX A6000 data sheet: 309.7 TFLOPS when sparse; NVLink 112.5 GB/s.
    _card("rtx-a6000", 48, 154.8, 38.7, 768, 56),
    # AMD Instinct MI300X data sheet: one of seven Infinity Fabric links has 128 GB/s.
    _card("mi300x", 192, 1307.4, 163.4, 5300, 64),
)
CARDS = {card.name: card for card in _CARDS}
CARDS_OF_A_MACHINE = 8
CARD_NAMES = (*CARDS, "cpu")  # cpu: this machine, measured when it is asked for


def check_card(name: str) -> None:
    """Refuse a card that is not in the table."""
    if name not in CARD_NAMES:
        known = ", ".join(CARD_NAMES)
        raise ValueError(f"gpu must be one of {known}, got {name!r:.40}{suggest(name, CARD_NAMES)}")


def find_card(name: str) -> Card:
    """The card with this name; "cpu" measures this machine."""
    check_card(name)
    return measure_this_machine() if name == "cpu" else CARDS[name]


def measure_this_machine() -> Card:
    """This machine: its memory, and a product and a copy by one core, timed."""
    import torch

    from clearhead.timing import best_seconds

    n, words = 512, 1 << 22
    a, b, x = torch.ones(n, n), torch.ones(n, n), torch.ones(words)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        best = best_seconds({"product": lambda: a @ b, "copy": x.clone}, seconds=0.2, rounds=3)
    finally:
        torch.set_num_threads(threads)
    bandwidth = 2 * 4 * words / best["copy"]  # read and written
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return Card("cpu", memory, None, 2 * n**3 / best["product"], bandwidth, bandwidth / 4)


def share_machine(machine: Card, n: int) -> Card:
    """What each of n processes has of the memory and the cores of this machine."""
    cores = min(1.0, (os.cpu_count() or 1) / n)
    return replace(machine, memory=machine.memory / n, single=machine.single * cores)
