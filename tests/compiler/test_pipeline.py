"""Tests of the pipeline: values as keys, passes of a backend, programs as data."""

from __future__ import annotations

from dataclasses import FrozenInstanceError

import numpy as np
import pytest

from tests.compiler.graphs import target, trace_of
from toolkit import ops
from toolkit.backends import get_backend
from toolkit.backends.target import BackendPasses
from toolkit.compiler.bound import BoundProgram
from toolkit.compiler.pipeline import compile_program
from toolkit.core.tensor import Tensor
from toolkit.core.variable import Variable
from toolkit.ir import Constant, Spec, Value


def test_values_compare_by_identity():
    spec = Spec((2,), "float32")
    tensors = [Tensor(np.ones(2, "float32")) for _ in range(2)]
    values = [Value(spec), Value(spec), *tensors, Constant(np.ones(2, "float32"))]
    names = {value: i for i, value in enumerate(values)}
    assert [names[value] for value in values] == list(range(5))
    assert Value(spec) not in names and Tensor(np.ones(2, "float32")) not in names


def test_tensors_and_variables_are_keys_of_one_dict():
    keys = [Variable(1.0), Tensor(np.ones(())), Variable(1.0)]
    unique_keys = dict.fromkeys(keys)
    assert len(unique_keys) == 3 and all(
        a is b for a, b in zip(unique_keys, keys, strict=True)
    )


def test_functions_of_open_constants_are_open():
    assert Constant(np.ones(()), is_open=True).is_open
    assert not Constant(np.ones(())).is_open
    assert not Value(Spec((), "float32")).is_open


class RecordingBackend(type(get_backend("reference"))):
    """A backend that records when its passes run."""

    def __init__(self):
        super().__init__(get_backend("reference").kernels)
        self.ran = []
        positions = (
            "after_trace",
            "after_expansion",
            "before_fusion",
            "after_scheduling",
        )
        self.generator.passes = BackendPasses(
            **{position: (self.note(position),) for position in positions}
        )

    def note(self, position):
        def backend_pass(graph, target):
            self.ran.append((position, {node.op.name for node in graph.nodes}))
            return graph

        return backend_pass


@pytest.mark.parametrize("generate", [True, False])
def test_backend_adds_passes_at_their_positions(generate):
    backend = RecordingBackend()
    graph = trace_of(lambda x: (ops.log_softmax(x), ops.exp(x) * 1.0)[1], (2, 3))
    compile_program(graph, target(backend, generate=generate))
    first = ["after_trace", "after_expansion"]
    later = ["before_fusion", "after_scheduling"] if generate else []
    assert [position for position, _ in backend.ran] == first + later
    assert "multiply" in backend.ran[0][1]
    if generate:
        assert backend.ran[2][1] == {"exp"}  # simplified before


def test_programs_are_immutable_and_bound_separately():
    graph = trace_of(lambda x: ops.sum(ops.exp(x) @ x), (3, 3))
    program = compile_program(graph, target())
    with pytest.raises(FrozenInstanceError):
        program.name = "another"
    x = np.eye(3, dtype="float32")
    bound = [BoundProgram(program) for _ in range(2)]
    assert bound[0].arena is not bound[1].arena
    with program.backend.kernels.errstate():
        first, second = (b.run([x], None)[0] for b in bound)
    np.testing.assert_array_equal(first, second)
    np.testing.assert_allclose(first, np.exp(x).sum(), rtol=1e-6)
