"""Training steps on a table, on virtual ranks, for tests of sparse updates in jobs."""

import hashlib
from typing import NamedTuple

import numpy as np
import pytest

from tests.compiler.sharding.virtual import Split, local_graph, shard_of
from toolkit import ops
from toolkit.autodiff.tape import GradientTape
from toolkit.backends.registry import get_backend
from toolkit.backends.target import Target
from toolkit.comm import local
from toolkit.compiler.execute import Executable
from toolkit.compiler.pipeline import compile_program
from toolkit.compiler.sharding.buckets import join_exchanges
from toolkit.compiler.sharding.layouts import MeshAxis
from toolkit.core.variable import Variable
from toolkit.distribution import DataParallel
from toolkit.functions.decorator import function
from toolkit.ir import Kind

LEAVES, UNITS = 4, 3


def once(table, ids):
    return ops.take(table, ids, axis=0)


def in_two_parts(table, ids):
    """Look up the columns of the ids in two calls."""
    halves = ids[:, :1], ids[:, 1:]
    return ops.concatenate([ops.take(table, i, axis=0) for i in halves], axis=1)


class Result(NamedTuple):
    """The values of the variables of a rank, and the program of its last step."""

    state: dict
    program: object

    def of(self, variable):
        return self.state[id(variable)]

    @property
    def collectives(self):
        nodes = self.program.graph.nodes
        return [n for n in nodes if n.op.kind is Kind.COLLECTIVE]

    @property
    def collective_names(self):
        """The names of the collectives; the names in one message are joined by "+"."""
        return [
            "+".join(m.name for m in n.attrs.get("members", ())) or n.op.name
            for n in self.collectives
        ]

    @property
    def exchanged_bytes(self):
        return sum(y.spec.nbytes for n in self.collectives for y in n.outputs[:-1])

    def large_nodes(self, size):
        """The names of the operations whose results have this number of elements."""
        nodes = self.program.graph.nodes
        return {n.op.name for n in nodes if max(y.spec.size for y in n.outputs) >= size}

    def large_constants(self, size):
        nodes = self.program.graph.nodes
        inputs = [x for n in nodes for x in n.inputs]
        return [x for x in inputs if x.constant is not None and x.spec.size >= size]

    @property
    def digest(self):
        joined = b"".join(value.tobytes() for value in self.state.values())
        return hashlib.sha256(joined).hexdigest()


def variables_of(table, kernel, optimizer, dtype="float32"):
    """The variables of a step, and of an optimizer that is built for them."""
    kernel = Variable(kernel, dtype="float32", name="kernel")
    weights = [Variable(table, dtype=dtype, name="table"), kernel]
    optimizer.build(weights)
    return weights


def gradient_step(weights, optimizer, take=once, returns_loss=True):
    """A step whose gradients are `w` in the rows of the table, and the sum of `u`."""

    def step(ids, w, u):
        with GradientTape() as tape:
            rows = ops.cast(take(weights[0], ids), "float32")
            loss = ops.sum(rows * w) + ops.sum(ops.sum(u, axis=0) * weights[1])
            loss = optimizer.scale_loss(loss)
        updated = weights[::-1]  # the table last
        optimizer.apply(tape.gradient(loss, updated), updated)
        return loss if returns_loss else None

    return function(step)


def train(step, batches, ranks):
    """Run a step on virtual ranks, and return the `Result` of each rank.

    Args:
        step: a function that `function` has decorated.
        batches: for each step, arrays of equal numbers of rows.
        ranks: the number of ranks.
    """
    with DataParallel(shards=LEAVES).scope():
        tensors = [tuple(map(ops.convert_to_tensor, batch)) for batch in batches]
        concretes = [step.get_concrete_function(*batch) for batch in tensors]
    start = {id(v): np.array(v) for c in concretes for v in c.variables}

    def compute(group):
        axis = MeshAxis("batch", group, LEAVES, even=False)
        state, programs = dict(start), {}
        for concrete, batch in zip(concretes, batches, strict=True):
            if concrete not in programs:
                programs[concrete] = program_of(concrete, axis, len(batch))
            rows = [shard_of(np.asarray(x), Split(0), axis) for x in batch]
            arrays = rows + [state[id(v)] for v in concrete.variables]
            outputs = Executable(programs[concrete])(arrays)[concrete.num_outputs :]
            pairs = zip(concrete.written_variables, outputs, strict=True)
            state.update((id(v), np.array(y)) for v, y in pairs)
        return Result(state, programs[concrete])

    return local.run(ranks, compute)


def update_in_place(step, batch, ranks, error):
    """Return whether a step that raises an error changes no variable, for each rank."""
    with DataParallel(shards=LEAVES).scope():
        concrete = step.get_concrete_function(*map(ops.convert_to_tensor, batch))

    def compute(group):
        axis = MeshAxis("batch", group, LEAVES, even=False)
        program = program_of(concrete, axis, len(batch))
        assert program.in_place
        rows = [shard_of(np.asarray(x), Split(0), axis) for x in batch]
        values = {id(v): np.array(v) for v in concrete.variables}
        before = [value.tobytes() for value in values.values()]
        destinations = [values[id(v)] for v in concrete.written_variables]
        with pytest.raises(error):
            Executable(program).update(rows, [*values.values(), *destinations])
        return [value.tobytes() for value in values.values()] == before

    return local.run(ranks, compute)


def program_of(concrete, axis, batch):
    """The program of a rank, which updates variables in place."""
    layouts = [Split(0)] * batch + [None] * len(concrete.variables)
    graph = join_exchanges(local_graph(concrete.graph, axis, layouts))
    numbers = {id(v): batch + i for i, v in enumerate(concrete.variables)}
    updates = [
        (concrete.num_outputs + i, numbers.get(id(v)))
        for i, v in enumerate(concrete.written_variables)
    ]
    backend = get_backend("numpy")
    return compile_program(
        graph, Target(backend, updates=updates, rows_independent=True)
    )
