"""Random programs: any mixture of the parts of the language."""

import random

from clearhead.programs import aggregate, indices, select, selector_width, tokens

SYMBOLS = ("==", "!=", "<", "<=", ">", ">=")


class Maker:
    """Draws sequences with whole numbers as values, so that each operation fits each sequence."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        digits = tokens.map(ord, label="code") % 7
        self.sequences = [digits.named("digit"), indices]

    def draw_program(self, n_parts):
        """A program of n_parts sequences, of which each can use those before it."""
        for number in range(n_parts):
            make = self.random.choice(
                (self.draw_map, self.draw_pair, self.draw_width, self.draw_copy, self.draw_mean)
            )
            self.sequences.append(make().named(f"x{number}"))
        return self.sequences[-1]

    def pick(self):
        return self.random.choice(self.sequences)

    def draw_map(self):
        table = [self.random.randrange(3) for _ in range(5)]
        return self.pick().map(lambda value: table[value % 5])

    def draw_pair(self):
        table = [[self.random.randrange(3) for _ in range(3)] for _ in range(3)]
        return self.pick().map(lambda a, b: table[a % 3][b % 3], self.pick())

    def draw_select(self):
        if self.random.random() < 0.5:
            return select(self.pick(), self.pick(), self.random.choice(SYMBOLS))
        table = [[self.random.random() < 0.5 for _ in range(3)] for _ in range(3)]
        return select(self.pick(), self.pick(), lambda key, query: table[key % 3][query % 3])

    def draw_selector(self):
        selector = self.draw_select()
        for _ in range(self.random.choice((0, 0, 1, 2))):
            other = self.draw_select()
            selector = selector & other if self.random.random() < 0.5 else selector | other
            selector = ~selector if self.random.random() < 0.3 else selector
        return selector

    def draw_width(self):
        return selector_width(self.draw_selector())

    def draw_copy(self):
        """A copy from one key: at one place, or where all values are equal."""
        source = self.pick()
        if self.random.random() < 0.5:
            shift = self.random.choice((-1, 0, 1))
            return aggregate(select(indices, indices + shift, "=="), source, default=1)
        return aggregate(self.draw_selector() & select(source, source, "=="), source, default=0)

    def draw_mean(self):
        mean = aggregate(self.draw_selector(), self.pick().numeric(), default=0)
        limit = self.random.choice((0.25, 0.5, 1, 1.6))
        return (mean - self.pick().numeric() * self.random.choice((0, 0.5))).map(
            lambda number: int(number > limit) + int(number > 2)
        )
