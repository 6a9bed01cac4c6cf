"""Kernels that combine pieces along a tree, on the processor and for devices."""

from dataclasses import replace

import numpy as np
import pytest

from tests.backends.cuda.assembler import ARCHITECTURES, check, needs_nvrtc
from tests.backends.cuda.host import GXX, Host
from tests.comm.test_ordered import add_rounded, leaf
from toolkit import dtypes
from toolkit.backends.cupy.cuda.prelude import STORED
from toolkit.backends.cupy.cuda.tree import generate_combine
from toolkit.comm import Leaves, ordered
from toolkit.comm.sum_plans import Combine, Location, Term, plan_all_reduce
from toolkit.errors import UnsupportedOnBackend
from toolkit.ir import Spec
from toolkit.plans.loops.plan import MERGES

SIZE = 300


def step_of(dtype, op="sum", rank=1, ranks=3, leaves=None):
    leaves = leaves or Leaves.of_rows(9, 5)
    plan = plan_all_reduce(rank, ranks, [Term(SIZE, dtype, leaves, op)])
    return next(step for step in plan.steps if isinstance(step, Combine))


CASES = [
    *((dtype, "sum") for dtype in STORED),
    *((dtype, op) for dtype in ("float32", "int8") for op in ("prod", "max", "min")),
    *(("bool", op) for op in ("any", "all")),
    ("bfloat16", "max"),
]


def arrays_of(step):
    """Return all pieces, and the operands: own pieces and the receive buffer."""
    count = len(flat(step.tree))
    pieces = [leaf(i, (SIZE,), step.dtype) for i in range(count)]
    own_count = len(step.local_pieces)
    kind = dtypes.numpy_dtype(step.dtype)
    received = np.zeros((count - own_count, step.stride // kind.itemsize), kind)
    for row, piece in zip(received, pieces[own_count:], strict=True):
        row[:SIZE] = piece
    return pieces, [*pieces[:own_count], received]


def flat(tree):
    return (
        [tree]
        if isinstance(tree, int)
        else [n for subtree in tree for n in flat(subtree)]
    )


def value(tree, pieces, combine):
    if isinstance(tree, int):
        return pieces[tree]
    return combine(*(value(subtree, pieces, combine) for subtree in tree))


@pytest.mark.skipif(GXX is None, reason="g++ is not installed")
def test_kernels_match_the_host(tmp_path):
    steps = [step_of(dtype, op) for dtype, op in CASES]
    launches = [generate_combine(step) for step in steps]
    host = Host(launches, tmp_path)
    for step, launch in zip(steps, launches, strict=True):
        pieces, inputs = arrays_of(step)
        assert len(pieces) > len(step.local_pieces) > 0
        (actual,), _ = host.run([launch], inputs, [Spec((SIZE,), step.dtype)])
        combine = add_rounded if step.op == "sum" else ordered.OPERATIONS[step.op]
        with np.errstate(all="ignore"):
            expected = value(step.tree, pieces, combine)
        name = step.dtype, step.op
        assert actual.tobytes() == expected.astype(actual.dtype).tobytes(), name


@pytest.mark.skipif(GXX is None, reason="g++ is not installed")
def test_empty_input_is_the_neutral_element(tmp_path):
    steps = [step_of("float32", op, leaves=Leaves(4, ())) for op in ("sum", "prod")]
    launches = [generate_combine(step) for step in steps]
    host = Host(launches, tmp_path)
    for launch, number in zip(launches, (0, 1), strict=True):
        (actual,), _ = host.run([launch], [], [Spec((SIZE,), "float32")])
        assert (actual == number).all()


def test_kernels_are_shared_by_sizes():
    step = step_of("float32")
    other = replace(step, size=7, stride=512, target=Location("out", 3, 64))
    assert generate_combine(step).kernel == generate_combine(other).kernel
    assert generate_combine(step).grid != generate_combine(other).grid


def test_complex_numbers_are_refused():
    with pytest.raises(UnsupportedOnBackend, match="complex64.*only real numbers"):
        generate_combine(step_of("complex64"))


def test_every_operation_has_a_code():
    assert MERGES.keys() == ordered.OPERATIONS.keys()


@needs_nvrtc
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_kernels_compile(arch):
    wide = [step_of(d, rank=0, ranks=16, leaves=Leaves.of_rows(64, 64)) for d in STORED]
    steps = [*(step_of(*case) for case in CASES), *wide]
    check([generate_combine(step).kernel for step in steps], arch)
