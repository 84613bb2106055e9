"""The beams that a search keeps, as a tree: each continues one beam of the step before.

    tree = BeamTree(end_id)
    found = beam_search(model, source, 20, watch=tree.watch)
    words = found.tokens[0, 0, : found.lengths[0, 0]].tolist()      of the winner
    tree.find_path(words)                                           its place at each step

For one source. Places are numbered from 0, the likeliest beam first.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from torch import Tensor


class Node(NamedTuple):
    """A beam at one step. place: its rank; parent: the place of the beam that it continues."""

    place: int
    parent: int
    word: int
    log_prob: float


class BeamTree:
    """Collects the steps of a search."""

    def __init__(self, end_id: int) -> None:
        self.end_id = end_id
        self.steps: list[list[Node]] = []
        self._paths: dict[tuple[int, ...], list[int]] = {(): []}  # words → places
        self._beams: list[tuple[int, ...]] = []  # the words of each beam now

    def watch(self, words: Tensor, parents: Tensor, log_probs: Tensor) -> None:
        """Add one step of beam_search. words, parents and log_probs: (1, n_beams).

        Beams that do not exist yet, with log_prob −∞, are left out.
        """
        rows = zip(parents[0].tolist(), words[0].tolist(), log_probs[0].tolist(), strict=True)
        nodes, beams = [], []
        for place, (parent, word, log_prob) in enumerate(rows):
            before = self._beams[parent] if self.steps else ()
            beams.append((*before, word))
            if math.isfinite(log_prob):
                nodes.append(Node(place, parent, word, log_prob))
                self._paths[beams[-1]] = [*self._paths[before], place]
        self.steps.append(nodes)
        self._beams = beams

    def find_path(self, words: list[int]) -> list[int]:
        """The place of the beam with these words at each step."""
        return self._paths[tuple(words)]

    def list_steps(self, spell: Callable[[list[int]], list[str]]) -> list[dict[str, Any]]:
        """The nodes of each step as plain values; a node is ended if its word is the end token."""
        return [
            {
                "places": [node.place for node in nodes],
                "parents": [node.parent for node in nodes],
                "words": spell([node.word for node in nodes]),
                "log_probs": [node.log_prob for node in nodes],
                "ended": [node.word == self.end_id for node in nodes],
            }
            for nodes in self.steps
        ]
