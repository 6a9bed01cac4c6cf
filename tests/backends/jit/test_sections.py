"""Which calls join one section, and which must not."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("llvmlite")

import toolkit
from toolkit import ops
from toolkit.backends.numpy.jit.calls import Call, partition
from toolkit.backends.numpy.jit.code import Code
from toolkit.backends.numpy.jit.processor import current
from toolkit.backends.numpy.jit.sections import (
    Branches,
    parallelize,
    sections,
)
from toolkit.ir import Spec
from toolkit.plans.operands import Operand, OperandMemory, contiguous

FAR = 1 << 62
HEAVY = 10**7


def call(source, target, rows=64, by_rows=("in", "out"), **options):
    """A call that reads the memory `source` and writes `target`."""
    operands = (("in", source), ("out", target))
    shared = frozenset(o for o in operands if o[0] in by_rows)
    options.setdefault("grain", partition(rows))
    return Call(Code(print), operands, (), rows, row_operands=shared, **options)


def divide(*calls, is_complete=True, nbytes=64 * 1024, barrier=FAR):
    def shares(which, operand):
        return OperandMemory(operand[1], nbytes, is_complete)

    sections_of_calls = sections(list(enumerate(calls)), shares, barrier)
    return [
        [i for i, _ in section.calls] for section in sections_of_calls
    ], sections_of_calls


def test_a_chain_over_the_same_rows_is_one_section():
    order, (section,) = divide(call(0, 1), call(1, 2), call(2, 3, rows=128))
    assert order == [[0, 1, 2]]
    assert section.factors == [1, 1, 2]
    assert section.grain == 4
    assert section.group <= section.grain


def test_stream_is_a_single_task():
    _, (section,) = divide(call(0, 1, is_stream=True))
    assert section.is_stream
    assert section.group == section.rows > section.grain
    _, (joined,) = divide(call(0, 1, is_stream=True), call(1, 2))
    assert not joined.is_stream


def test_reader_of_all_rows_starts_a_section():
    order, _ = divide(call(0, 1), call(1, 2, by_rows=("out",)), call(2, 3))
    assert order == [[0], [1, 2]]


def test_scattered_writes_end_a_section():
    order, _ = divide(call(0, 1, by_rows=("in",)), call(1, 2))
    assert order == [[0], [1]]


def test_transposed_view_has_other_rows():
    order, _ = divide(call(0, 1), call(1, 2), is_complete=False)
    assert order == [[0], [1]]


def test_calls_that_are_slow_on_few_rows_enlarge_the_tasks():
    for calls in (
        (call(0, 1), call(1, 2, grain=8)),
        (call(0, 1, grain=8), call(1, 2)),
    ):
        order, (section,) = divide(*calls)
        assert order == [[0, 1]]
        assert section.grain == 8
    _, (section,) = divide(call(0, 1), call(1, 2, grain=64))
    assert section.grain == 4


def test_reductions_keep_their_tasks():
    total = call(1, 2, by_rows=("in",), grain=64)  # one task: there are no slots
    order, (first, second) = divide(call(0, 1, flops=HEAVY), total)
    assert order == [[0], [1]]
    assert first.is_shared and second.tasks == 1
    order, _ = divide(call(0, 1), call(1, 2, by_rows=("in",)))
    assert order == [[0, 1]]


def test_rows_of_a_view_are_in_the_rows_of_its_base():
    base = contiguous(Spec((4, 6), "float32"))
    view = Operand(Spec((4, 2), "float32"), (24, 4))
    assert view.count_local_rows(base, 16) == 4
    assert not view.count_local_rows(base, 20)
    assert not Operand(Spec((2, 2), "float32"), (24, 4)).count_local_rows(base, 0)
    transposed = Operand(Spec((4, 4), "float32"), (4, 24))
    assert not transposed.count_local_rows(base, 0) and not transposed.count_local_rows(
        transposed, 0
    )
    assert not Operand(Spec((4, 2), "float32"), (24, -4)).count_local_rows(base, 8)


def test_calls_over_other_rows_are_not_joined():
    order, _ = divide(call(0, 1, rows=60), call(1, 2, rows=64))
    assert order == [[0], [1]]


def test_call_joins_an_earlier_section_that_it_depends_on():
    order, _ = divide(call(0, 1), call(8, 9, by_rows=()), call(1, 2))
    assert order == [[1], [0, 2]]


def test_calls_are_not_joined_across_the_barrier():
    order, _ = divide(call(0, 1), call(1, 2), call(1, 3), barrier=2)
    assert order == [[0, 1], [2]]


def test_large_common_operands_keep_a_call_alone():
    weights = {"by_rows": ("out",)}
    order, _ = divide(call(0, 1), call(8, 2, **weights), nbytes=current().cache_bytes)
    assert order == [[0], [1]]


def test_independent_single_tasks_become_branches():
    heavy = {"rows": 1, "grain": 1, "flops": HEAVY}
    single_task = {"by_rows": (), **heavy}
    _, divided = divide(
        call(0, 1, **single_task), call(0, 2, **single_task), call(2, 3, **single_task)
    )
    joined = parallelize(divided)
    assert [type(section) for section in joined][0] is Branches
    assert [[i for i, _ in section.calls] for section in joined] == [[0, 1], [2]]


def test_light_sections_stay_in_line():
    light = {"rows": 1, "grain": 1}
    _, divided = divide(call(0, 1, **light), call(0, 2, **light))
    assert parallelize(divided) == divided


def test_section_runs_in_parallel_with_independent_sections():
    heavy = {"rows": 1, "grain": 1, "flops": HEAVY, "by_rows": ()}
    chain = [call(0, 1, **heavy), call(1, 2, **heavy), call(2, 3, **heavy)]
    _, divided = divide(*chain, call(8, 9, **heavy))
    joined = parallelize(divided)
    assert [[i for i, _ in section.calls] for section in joined] == [[0, 3], [1], [2]]


def test_sections_do_not_run_before_the_barrier():
    heavy = {"rows": 1, "grain": 1, "flops": HEAVY, "by_rows": ()}
    _, divided = divide(call(0, 1, **heavy), call(8, 9, **heavy), barrier=1)
    assert parallelize(divided) == divided


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_slices_of_a_concatenation_are_read_after_it(batch, dtype):
    """Of one image, rows are pixels: a slice's first row is no part of the first."""
    x = ops.cast(ops.reshape(ops.arange(batch * 9), (batch, 3, 3)), dtype)

    def pooled(x):
        joined = ops.concatenate([x + 1, ops.tanh(x), x], -1)
        return ops.adaptive_max_pool(joined, 3)

    for _ in range(3):  # unwritten memory may be right by chance
        actual = toolkit.function(lambda x: pooled(x))(x)
        np.testing.assert_allclose(actual.numpy(), pooled(x).numpy(), 1e-5)


def test_rows_of_several_axes_are_merged_if_possible():
    base = Operand(Spec((2, 3, 6), "float32"), (72, 24, 4))
    columns = Operand(Spec((2, 3, 2), "float32"), (72, 24, 4))
    assert columns.count_local_rows(base, 16) == 6
    assert base.count_local_rows(base, 0) == 36
    images = Operand(Spec((2, 1, 6), "float32"), (72, 24, 4))
    assert images.count_local_rows(base, 24) == 2
    row = Operand(Spec((1, 3, 6), "float32"), (72, 24, 4))
    pixels = Operand(Spec((1, 1, 6), "float32"), (72, 24, 4))
    assert pixels.count_local_rows(row, 24) == 1
