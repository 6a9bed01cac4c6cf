"""Fused bodies drawn at random: rows and columns, and numbers of one of each."""

import numpy as np

from toolkit import ops
from toolkit.core.trace import Trace
from toolkit.ir import Spec

UNARY = (ops.tanh, ops.sigmoid, ops.abs, ops.negative, ops.sin, ops.relu)
BINARY = (ops.add, ops.subtract, ops.maximum, ops.minimum)
OVER_ROWS = {"column": 0, "one": None}


class RandomBody:
    """A graph of random operations on values that stay small, most of it one body.

    Args:
        rng: random numbers.
        count: the number of operations.
        rows, columns: the extents of a full value.
        dtypes: the dtypes of the inputs; the body computes in the first one.
    """

    def __init__(self, rng, count, rows, columns, dtypes):
        self.rng, self.dtypes = rng, dtypes
        self.shapes = {
            "full": (rows, columns),
            "row": (rows, 1),
            "column": (columns,),
            "one": (),
        }
        with Trace("drawn") as self.trace:
            self.full, self.rows = [self.add_input("full")], []
            self.reduces = bool(rng.integers(2))
            for _ in range(count):
                self.step()
            outputs = [*self.unread(), *self.rows[-2:]]
            for x in outputs[: int(rng.integers(4))] if self.reduces else ():
                role = str(rng.choice(["column", "one"]))
                outputs.append(ops.sum(x, axis=OVER_ROWS[role]))
        self.graph = self.trace.finish(outputs)

    def add_input(self, role):
        """One more input."""
        spec = Spec(self.shapes[role], str(self.rng.choice(self.dtypes)))
        return ops.cast(self.trace.placeholder(spec), self.dtypes[0])

    def step(self):
        """One more value."""
        rng, kind = self.rng, self.rng.random()
        x, y = self.any_of(self.full), None
        if kind < 0.06 and self.reduces:
            reduce = (ops.max, ops.mean)[int(rng.integers(2))]
            row = reduce(x, axis=-1)
            # Some in another shape, as reshapes give it.
            self.rows.append(ops.expand_dims(row, -1))
            return
        if kind < 0.2:
            y = self.add_input(str(rng.choice(["full", "row", "column", "one"])))
        elif kind < 0.4:
            self.full.append(UNARY[int(rng.integers(len(UNARY)))](x))
            return
        elif kind < 0.5 and self.rows:
            y = self.any_of(self.rows)
        else:
            y = self.any_of(self.full)
        value = BINARY[int(rng.integers(len(BINARY)))](x, y)
        self.full.append(ops.where(x < y, value, y) if kind > 0.9 else value * 0.5)

    def any_of(self, values):
        """One of the values, of the last more often."""
        return values[-min(len(values), 1 + int(self.rng.exponential(12)))]

    def unread(self):
        """Full values that nothing was made of."""
        read = {x for node in self.trace.nodes for x in node.inputs}
        return [x for x in self.full if x not in read]


def draw_body(seed, dtypes=None, shape=None):
    """A graph of up to 200 operations, of any dtypes and shape if none is given."""
    rng = np.random.default_rng(seed)
    kinds = (["float32"], ["float64"], ["float32", "float16"], ["bfloat16", "float32"])
    kind = kinds[int(rng.integers(len(kinds)))]
    rows = int(rng.choice([1, 3, 8, 130]))
    columns = int(rng.choice([8, 30, 96, 512, 1000, 2048, 6002]))
    rows, columns = shape or (rows, columns)
    return RandomBody(
        rng, int(rng.integers(5, 200)), rows, columns, dtypes or kind
    ).graph
