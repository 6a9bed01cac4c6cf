"""Tests of random programs: compiled, on the reference, on any number of threads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import toolkit
from tests.compiler.graphs import compiled
from tests.compiler.programs import RandomProgram, resemble
from toolkit import ops
from toolkit.backends.numpy.jit.processor import Processor
from toolkit.core.tensor import backend
from toolkit.core.trace import Trace
from toolkit.core.variable import Variable
from toolkit.ir import Spec

LEVELS = {"x86-64-v2": "sse4.2", "x86-64-v3": "avx2", "x86-64-v4": "avx512vl"}
# Programs of one test, each of a few milliseconds to half a second.
PROGRAMS_PER_TEST = 5
seeds = pytest.mark.parametrize(
    "first",
    [
        *range(0, 10, PROGRAMS_PER_TEST),
        *(
            pytest.param(s, marks=pytest.mark.slow)
            for s in range(10, 500, PROGRAMS_PER_TEST)
        ),
    ],
)


def arrays_of(results: Any) -> list[Any]:
    return [np.asarray(x) for x in results]


def check(actual: Any, expected: Any, label: Any) -> None:
    """Check that values are equal; 0.0 equals -0.0."""
    assert len(actual) == len(expected)
    for number, (a, b) in enumerate(zip(arrays_of(actual), expected, strict=True)):
        assert (a.shape, a.dtype) == (b.shape, b.dtype), (label, number)
        wide = [x.astype("float64") if x.dtype.kind not in "biu" else x for x in (a, b)]
        np.testing.assert_array_equal(*wide, err_msg=f"{label}, output {number}")


@pytest.fixture
def threads():
    yield toolkit.config.set_num_threads
    toolkit.config.set_num_threads(None)


@pytest.fixture
def on_reference():
    """Compute a function on the reference backend."""
    before = toolkit.config.backend()

    def run(function, arrays):
        toolkit.config.set_backend("reference")
        try:
            return arrays_of(function(*arrays))
        finally:
            toolkit.config.set_backend(before)

    return run


@seeds
def test_compiled_and_eager(first, threads, on_reference):
    for seed in range(first, first + PROGRAMS_PER_TEST):
        program = RandomProgram(seed)
        expected = arrays_of(program.values[i] for i in program.outputs)
        check(on_reference(program, program.arrays), expected, (seed, "reference"))
        function = toolkit.function(program)
        for count in (1, 2, 3):
            threads(count)
            check(function(*program.arrays), expected, (seed, count))
        arrays = program.other_arrays()
        repeated = arrays_of(program(*arrays))
        check(function(*arrays), repeated, (seed, "other values"))
        transposed = [np.asarray(x.T, order="C").T for x in arrays]
        check(function(*transposed), repeated, (seed, "other strides"))


@pytest.mark.parametrize("name", LEVELS)
@seeds
def test_other_processors(first, name):
    pytest.importorskip("llvmlite")
    host = Processor.host()
    if host.architecture != "x86_64" or not host.has(LEVELS[name]):
        pytest.skip(f"this is no {name}")
    (processor,) = backend().generator.processors(name, True)
    # Every level runs separate programs: a program rarely fails on one level only.
    start = first + 10_000 * list(LEVELS).index(name)
    for seed in range(start, start + PROGRAMS_PER_TEST // 3):
        program = RandomProgram(seed)
        with Trace("random") as trace:
            specs = [Spec(x.shape, str(x.dtype)) for x in program.arrays]
            outputs = program(*map(trace.placeholder, specs))
            results = [trace.localize(y) for y in outputs]
        run = compiled(trace.finish(results), processor=processor)
        expected = arrays_of(program.values[i] for i in program.outputs)
        check(run(program.arrays), expected, seed)


def as_updates(program, seed):
    """Return Variables for all inputs but the last, and their updates."""
    kinds = np.random.default_rng(seed).integers(0, 6, len(program.arrays)).tolist()
    variables = [
        Variable(x, dtype=str(x.dtype), trainable=False) for x in program.arrays[:-1]
    ]

    def step(x):
        before = [ops.convert_to_tensor(v) for v in variables]
        outputs = program(*before, x)
        for kind, variable, old in zip(kinds, variables, before, strict=False):
            new, other = (
                resemble(outputs[kind % len(outputs)], old),
                before[kind % len(before)],
            )
            if kind == 0 and old.ndim:
                new = ops.flip(old, 0)
            elif kind == 1 and other.spec == old.spec:
                new = other
            elif kind == 2:
                new = ops.where(ops.cast(old, "bool"), new, old)
            if kind == 3:
                ops.cond(ops.any(new), lambda v=variable, n=new: write(v, n), zero)
            else:
                variable.assign(new)
        return outputs

    return variables, step


def write(variable, value):
    variable.assign(value)
    return zero()


def zero():
    return ops.zeros(())


@seeds
def test_updates(first):
    for seed in range(first + 5000, first + 5000 + PROGRAMS_PER_TEST):
        program = RandomProgram(seed)
        eager, step = as_updates(program, seed)
        destinations, function = as_updates(program, seed)
        function = toolkit.function(function)
        for call, x in enumerate(
            (program.arrays[-1], *program.other_arrays()[-1:] * 2)
        ):
            expected = arrays_of(step(x))
            check(function(x), expected, (seed, call))
            check(destinations, arrays_of(eager), (seed, call, "variables"))
