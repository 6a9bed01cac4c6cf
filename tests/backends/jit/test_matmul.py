"""Generated products of matrices against the reference backend."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings, strategies as st

pytest.importorskip("llvmlite")

from tests.backends.jit.running import graph_of, operand_of, run_lowered, vectors_of
from tests.helpers import assert_close
from toolkit import ops
from toolkit.backends import get_backend
from toolkit.backends.numpy.jit import engine, llvm
from toolkit.backends.numpy.jit.calls import Lowered, prepared, redirect_operands
from toolkit.backends.numpy.jit.kernels.gemm.tiling import tiling
from toolkit.backends.numpy.jit.kernels.matmul import lower_matmul
from toolkit.backends.numpy.jit.kernels.matmul.lower import Lowering
from toolkit.backends.numpy.jit.kernels.matmul.plan import (
    BLOCK,
    PRODUCT,
    ROW,
    ProductPlan,
)
from toolkit.backends.numpy.jit.kernels.matmul.problem import problem_of
from toolkit.backends.numpy.jit.kernels.matmul.strategies import (
    EACH,
    ONCE,
    Strategy,
    choose,
)
from toolkit.backends.numpy.jit.kernels.matmul.tile import tile_function
from toolkit.backends.numpy.jit.processor import PROCESSORS, Processor
from toolkit.backends.target import Target
from toolkit.compiler.pipeline import optimize
from toolkit.core.tensor import backend
from toolkit.plans.operands import align_up, contiguous
from toolkit.plans.rules import rules

LANES = [4, 8, 16]
DTYPES = ["float32", "float64"]
INTEGERS = ["int32", "int64", "uint32", "uint64"]


def blank(shape, dtype):
    """Return an array of values that no product has."""
    return np.full(shape, 99 if dtype in INTEGERS else np.nan, dtype)


def unchanged(x):
    return x


def columns_first(x):
    return np.ascontiguousarray(x.swapaxes(-1, -2)).swapaxes(-1, -2)


def strided(x):
    wide = blank((*x.shape[:-1], 3 * x.shape[-1]), x.dtype)
    wide[..., 1::3] = x
    return wide[..., 1::3]


def backwards(x):
    return np.ascontiguousarray(x[..., ::-1, :])[..., ::-1, :]


def batch_inside(x):
    """Return a view whose row stride is a whole batch, as for attention heads."""
    if x.ndim < 3:
        return x
    return np.ascontiguousarray(x.swapaxes(-3, -2)).swapaxes(-3, -2)


LAYOUTS = [unchanged, unchanged, columns_first, strided, backwards, batch_inside]


def numbers(shape, dtype, seed=0):
    rng = np.random.default_rng(seed)
    if dtype in INTEGERS:  # so large that sums of products wrap around
        limits = np.iinfo(dtype)
        return rng.integers(limits.min, limits.max, shape, dtype, endpoint=True)
    return rng.standard_normal(shape).astype(dtype)


def body_of(function, *arrays):
    """Return one graph of an anchor and its epilogue, the product first."""
    graph = optimize(graph_of(function, *arrays), Target(backend()))
    return graph.replace(sorted(graph.nodes, key=lambda n: n.op.name != "matmul"))


def computed(lower, function, *arrays, chunk=0):
    """The outputs of generated functions."""
    body = body_of(function, *arrays)
    outputs = [blank(v.spec.shape, v.spec.dtype) for v in body.outputs]
    lowered = lower(body, [operand_of(a) for a in arrays], [])
    assert lowered is not None
    run_lowered(lowered, arrays, outputs, chunk)
    return outputs


def referenced(function, *arrays):
    """The outputs of the reference backend's kernels."""
    body, kernels = body_of(function, *arrays), get_backend("reference").kernels
    values = dict(zip(body.inputs, arrays, strict=True))
    for node in body.nodes:
        inputs = [values.get(x, x.constant) for x in node.inputs]
        values[node.outputs[0]] = kernels[node.op.name](*inputs, **node.attrs)
    return [values[v] for v in body.outputs]


def check(function, *arrays, lower=lower_matmul, chunk=0):
    """Compare with the reference, and chunks of rows with all rows at once."""
    actual = computed(lower, function, *arrays)
    exact = referenced(function, *(a.astype(np.float64) for a in arrays))
    # The error of a sum grows with the size of its terms, not of its result.
    scale = 1 + float(np.sqrt(arrays[0].shape[-1]))
    for y, expected in zip(actual, exact, strict=True):
        assert_close(y / scale, expected / scale)
    chunked = computed(lower, function, *arrays, chunk=chunk)
    for y, chunked_result in zip(actual, chunked, strict=True):
        np.testing.assert_array_equal(y, chunked_result)


def product(a, b):
    return ops.matmul(a, b)


extents = st.one_of(st.integers(0, 20), st.integers(0, 80))
layouts = st.sampled_from(LAYOUTS)


@st.composite
def factors(draw, dtype):
    """Two arrays that can be multiplied, with batches that broadcast."""
    rows, depth, columns = (draw(extents) for _ in "mkn")
    batch = draw(st.lists(st.integers(0, 3), max_size=2))
    shapes = [(*batch, rows, depth), (*batch, depth, columns)]
    which = draw(st.integers(0, 3))
    if batch and which == 0:  # one axis of one factor is repeated
        shapes[draw(st.integers(0, 1))] = (1, *shapes[0][1:])
        shapes[0] = (*shapes[0][:-2], rows, depth)
        shapes[1] = (*shapes[1][:-2], depth, columns)
    if which == 1:  # one factor has no batch
        shapes[1] = (depth, columns)
    if which == 2:
        shapes[0] = (rows, depth)
    a, b = (numbers(shape, dtype, i) for i, shape in enumerate(shapes))
    return draw(layouts)(a), draw(layouts)(b)


@given(
    data=st.data(),
    dtype=st.sampled_from(DTYPES),
    lanes=st.sampled_from(LANES),
    chunk=st.integers(0, 5),
)
@settings(max_examples=50, deadline=None)
def test_any_product(data, dtype, lanes, chunk):
    with vectors_of(lanes):
        check(product, *data.draw(factors(dtype)), chunk=chunk)


@given(
    data=st.data(),
    dtype=st.sampled_from(INTEGERS),
    lanes=st.sampled_from(LANES),
    chunk=st.integers(0, 5),
)
@settings(max_examples=30, deadline=None)
def test_integers_wrap_around(data, dtype, lanes, chunk):
    a, b = data.draw(factors(dtype))
    with vectors_of(lanes):
        (y,) = computed(lower_matmul, product, a, b, chunk=chunk)
        (z,) = computed(lower_matmul, lambda a, b: ops.matmul(a, b) + 7, a, b)
    np.testing.assert_array_equal(y, np.matmul(a, b))
    np.testing.assert_array_equal(z, y + y.dtype.type(7))


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("shapes", [((1, 3000), (3000, 700)), ((70, 2500), (2500, 90))])
def test_many_terms_of_integers(shapes, dtype):
    a, b = (numbers(shape, dtype, i) for i, shape in enumerate(shapes))
    (y,) = computed(lower_matmul, product, a, b)
    np.testing.assert_array_equal(y, np.matmul(a, b))


@st.composite
def ways(draw, p):
    """Any way to compute a product, good or bad."""
    t = tiling(p.rows, p.columns, p.dtype, p.is_across)
    panels, depth = -(-p.columns // t.width), max(1, p.depth)
    units = [BLOCK] if p.is_across else [ROW, BLOCK]
    unit = draw(st.sampled_from([PRODUCT, BLOCK, BLOCK] if p.batch else units))
    near = p.b_line == p.itemsize
    packings = [ONCE] if unit == ROW else [ONCE, EACH]
    if unit == PRODUCT and not p.is_shared:
        packings = [EACH]
    strategy = Strategy(t, unit, p.rows, panels, depth, depth, "", "", 1)
    fields = {
        "pack_a": draw(st.sampled_from(["", EACH])),
        "pack_b": draw(st.sampled_from([*packings, *([""] if near else [])])),
        "grain": draw(st.integers(1, 9)),
    }
    if unit == BLOCK:
        fields["rows"] = p.rows if p.is_across else draw(st.integers(1, max(1, p.rows)))
        fields["panels"] = draw(st.integers(1, panels))
    if unit == BLOCK and not p.batch and draw(st.booleans()):
        # Tiles that are packed before are whole ones but for the last.
        fields |= {"pack_a": ONCE, "rows": -(-fields["rows"] // t.rows) * t.rows}
    if unit == BLOCK and not p.is_across:
        slots = 1 if p.batch else draw(st.integers(1, 3))
        fields["depth"] = fields["step"] = -(-depth // slots)
        fields["step"] = min(fields["depth"], draw(st.sampled_from([16, 32, depth])))
    return replace(strategy, **fields)


def dense(a, b, bias):
    return ops.relu(ops.matmul(a, b) + bias)


def masked(a, b, mask, scale):
    y = ops.matmul(a, b)
    return ops.where(mask > 0, y, 0.0) * scale, ops.tanh(y)


def residual(a, b):
    return ops.matmul(a, b) + a


@given(
    data=st.data(),
    dtype=st.sampled_from(DTYPES),
    lanes=st.sampled_from(LANES),
    followed=st.booleans(),
    chunk=st.integers(0, 3),
)
@settings(max_examples=50, deadline=None)
def test_any_blocking(data, dtype, lanes, followed, chunk):
    with vectors_of(lanes):
        a, b = data.draw(factors(dtype))
        p = problem_of(body_of(product, a, b), [operand_of(a), operand_of(b)])
        if p.is_dot or not p.products * p.size:
            return
        way = data.draw(ways(p))

        def lower(body, inputs, outputs):
            return Lowering(p, way, body).lower()

        if followed:
            bias = numbers((b.shape[-1],), dtype, 2)
            check(dense, a, b, bias, lower=lower, chunk=chunk)
        else:
            check(product, a, b, lower=lower, chunk=chunk)


# --- one row --------------------------------------------------------------------------


def lower_frozen(body, inputs, outputs):
    """Where the second factor never changes: in a run after one whose results are lost.

    Every other run goes from the last panel to the first.
    """
    first, second = inputs[:2]
    operands = [first, replace(second, is_frozen=True), *inputs[2:]]
    lowered = lower_matmul(body, operands, outputs)
    pack, multiply = lowered.calls
    assert pack.prepares
    operands_of_calls, work = {}, lowered.work
    for i, y in enumerate(body.outputs):
        operands_of_calls["out", i] = "work", work
        work += align_up(y.spec.nbytes)
    return Lowered(
        [pack, redirect_operands(multiply, operands_of_calls), multiply], work
    )


def is_row(a, b):
    return problem_of(body_of(product, a, b), [operand_of(a), operand_of(b)]).is_row


@given(
    depth=st.integers(20, 70),
    columns=st.integers(65, 400),
    dtype=st.sampled_from(DTYPES),
    lanes=st.sampled_from(LANES),
    layout=st.sampled_from([unchanged, strided, batch_inside]),
    lower=st.sampled_from([lower_matmul, lower_frozen]),
    chunk=st.integers(0, 5),
)
@settings(max_examples=50, deadline=None)
def test_any_row(depth, columns, dtype, lanes, layout, lower, chunk):
    a, b = numbers((1, depth), dtype), numbers((depth, columns + 8), dtype, 1)
    b = b[:, :columns]
    bias = numbers((columns,), dtype, 2)
    # Matrices are larger than half of the cache, and fill it at most twice.
    processor = replace(
        Processor.host().with_lanes(lanes), cache_bytes=14_000 * b.itemsize
    )
    with rules.override(processor=processor):
        assume(is_row(a, b))
        check(dense, layout(a), b, bias, lower=lower, chunk=chunk)
        check(masked, a, b, bias[None], bias[:1], lower=lower, chunk=chunk)


@pytest.mark.parametrize("depth", [40, 2304])
@pytest.mark.parametrize("lower", [lower_matmul, lower_frozen])
def test_bits_of_a_row_do_not_depend_on_the_batch(lower, depth):
    a, b = numbers((20, depth), "float32"), numbers((depth, 600), "float32", 1)
    bias = numbers((600,), "float32", 2)
    processor = replace(Processor.host(), cache_bytes=1600 * depth)
    with rules.override(rows_independent=True, processor=processor):
        assert is_row(a[:1], b)
        (all_rows,) = computed(lower_matmul, dense, a, b, bias)
        (single_row,) = computed(lower, dense, a[3:4], b, bias)
    np.testing.assert_array_equal(single_row, all_rows[3:4])


@pytest.mark.parametrize(("rows", "is_packed"), [(2, True), (31, True), (32, False)])
def test_many_rows_keep_no_packed_copy(rows, is_packed):
    x, w = np.empty((rows, 8192), "float32"), np.empty((8192, 8192), "float32")
    operand = replace(operand_of(w), is_frozen=True)
    lowered = lower_matmul(body_of(product, x, w), [operand_of(x), operand], [])
    copies = prepared(lowered, [1]).kept_sizes
    assert bool(copies) == is_packed


def test_rows_are_packed_if_caches_hold_a_fraction():
    x = np.empty((1, 8192), "float32")
    processor = replace(PROCESSORS["x86-64-v4"], cache_bytes=1 << 23)
    for columns, is_frozen in ((512, True), (512, False), (1 << 20, True)):
        w = np.broadcast_to(np.float32(0), (8192, columns))
        spec = contiguous(operand_of(w).spec)
        operand = replace(spec, is_frozen=is_frozen)
        with rules.override(processor=processor):
            lowered = lower_matmul(body_of(product, x, w), [operand_of(x), operand], [])
        is_packed = any(call.prepares for call in lowered.calls)
        assert is_packed == (is_frozen and columns == 512)


@pytest.mark.parametrize("depth", [5000, 5003])
def test_depth_is_divided_into_blocks(depth):
    a, b = numbers((1, depth), "float32"), numbers((depth, 333), "float32", 1)
    bias = numbers((333,), "float32", 2)
    lowered = lower_matmul(
        body_of(dense, a, b, bias), [operand_of(x) for x in (a, b, bias)], []
    )
    assert lowered.calls[0].rows > 1
    (actual,) = computed(lower_matmul, dense, a, b, bias)
    expected = np.maximum(a.astype("float64") @ b + bias, 0)
    np.testing.assert_allclose(actual, expected, 1e-5, 1e-4)


# --- epilogues ------------------------------------------------------------------------


SHAPES = {
    "rows": (37, 20, 45),
    "few rows": (2, 300, 40),
    "a row": (1, 33, 50),
    "a row of whole panels": (1, 33, 512),
    "a row of a panel and a rest": (1, 33, 200),
    "a row of a transposed factor": (1, 33, 50),
    "a column": (50, 33, 1),
    "few columns": (45, 40, 3),
    "columns that are few, of a transposed factor": (90, 21, 5),
    "blocks": (130, 600, 200),
    "a long sum": (24, 2048, 40),
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", SHAPES)
def test_epilogues(name, dtype):
    rows, depth, columns = SHAPES[name]
    a, b = numbers((rows, depth), dtype), numbers((depth, columns), dtype, 1)
    if "transposed" in name:
        a, b = columns_first(a), columns_first(b)
    elif name == "a long sum":
        a = columns_first(a)
    check(dense, a, b, numbers((columns,), dtype, 2), chunk=1)
    mask, scale = numbers((rows, columns), dtype, 3), numbers((), dtype, 4)
    check(masked, a, b, mask, scale, chunk=3)


@pytest.mark.parametrize("lanes", LANES)
def test_epilogues_of_each_vector_width(lanes):
    with vectors_of(lanes):
        for name in ("rows", "blocks"):
            rows, depth, columns = SHAPES[name]
            a = numbers((rows, depth), "float32")
            b = numbers((depth, columns), "float32", 1)
            mask, scale = (numbers((rows, columns), "float32", 2), np.float32(3))
            check(masked, a, b, mask, np.asarray(scale), chunk=3)


def test_factor_may_be_the_addend():
    x = numbers((40, 40), "float32")
    check(residual, x, columns_first(numbers((40, 40), "float32", 1)), chunk=4)
    check(lambda x: ops.matmul(x, x) + x, x, chunk=3)


def test_an_epilogue_on_a_batch():
    a, b = numbers((3, 2, 20, 9), "float32"), numbers((3, 2, 9, 21), "float32", 1)
    check(dense, a, batch_inside(b), numbers((21,), "float32", 2), chunk=1)


# --- decisions ------------------------------------------------------------------------


def chosen(a, b):
    operands = [operand_of(x) for x in (a, b)]
    return choose(problem_of(body_of(product, a, b), operands))


def test_narrow_panels_are_packed_if_they_conflict_in_the_cache():
    x, wide = np.empty((4096, 128), "float32"), np.empty((128, 512), "float32")
    with rules.override(processor=PROCESSORS["x86-64-v3"]):
        assert chosen(x, wide).pack_b == ONCE
        assert chosen(x, wide[:, :120].copy()).pack_b == ""
        assert chosen(x[:128], np.empty((128, 2048), "float32")).pack_b == EACH
    with rules.override(processor=PROCESSORS["x86-64-v4"]):
        assert chosen(x, wide).pack_b == ""


def test_narrow_panels_are_read_once_for_few_rows():
    x, w = np.empty((64, 512), "float32"), np.empty((512, 128), "float32")
    with rules.override(processor=PROCESSORS["x86-64-v3"]):
        assert chosen(x, w).unit == BLOCK and chosen(x, w).rows == 64
    with rules.override(processor=PROCESSORS["x86-64-v4"]):
        assert chosen(x, w).unit == ROW


def test_shared_factor_is_packed_once():
    x = batch_inside(np.zeros((80, 64, 128), "float32"))
    w = np.zeros((128, 512), "float32")
    with rules.override(processor=PROCESSORS["x86-64-v3"]):
        lowered = lower_matmul(
            body_of(product, x, w), [operand_of(x), operand_of(w)], []
        )
    pack, _ = lowered.calls
    assert pack.prepares == w.nbytes


def test_batches_become_rows():
    x, w = np.zeros((4, 6, 5), "float32"), np.zeros((5, 70), "float32")
    p = problem_of(body_of(product, x, w), [operand_of(x), operand_of(w)])
    assert (p.batch, p.rows, p.a_row) == ((), 24, 20)


def test_code_does_not_depend_on_the_batch():
    w = np.zeros((70, 40), "float32")
    calls = [
        lower_matmul(body_of(product, x, w), [operand_of(x), operand_of(w)], []).calls
        for x in (np.zeros((rows, 70), "float32") for rows in (5, 64, 1000))
    ]
    assert len({call.code for (call,) in calls}) == 1


def test_long_sums_of_few_elements_are_divided():
    x, g = np.empty((32768, 64), "float32"), np.empty((32768, 64), "float32")
    with rules.override(processor=PROCESSORS["x86-64-v4"]):
        strategy = chosen(x.T, g)
    assert strategy.depth == 4096
    assert strategy.step < strategy.depth


def test_packed_tiles_and_panels_fit_the_first_level_cache():
    x, g = np.empty((2048, 256), "float32"), np.empty((2048, 2000), "float32")
    with rules.override(processor=PROCESSORS["x86-64-v4"]):
        strategy = chosen(x.T, g)
    assert strategy.pack_a and strategy.pack_b == EACH
    assert strategy.step <= 192


@pytest.mark.parametrize("frozen", [(0,), (1,), (0, 1)])
@pytest.mark.parametrize("lanes", LANES)
def test_packed_factor_may_be_cached(frozen, lanes):
    """Wide rows: the code packs several whole panels contiguously."""

    def lower(body, inputs, outputs):
        operands = [replace(x, is_frozen=i in frozen) for i, x in enumerate(inputs)]
        p = problem_of(body, operands)
        way = replace(choose(p), unit=BLOCK, rows=t.rows * 2, panels=5, pack_a=ONCE)
        return Lowering(p, replace(way, pack_b=EACH, step=48), body).lower()

    x, g = numbers((150, 70), "float32"), numbers((150, 500), "float32", 1)
    with vectors_of(lanes):
        t = tiling(70, 500, "float32")
        check(product, x.T, g, lower=lower)
        check(dense, x.T, g, numbers((500,), "float32", 2), lower=lower)


def test_large_factors_are_packed_in_blocks():
    x, g = np.empty((65536, 384), "float32"), np.empty((65536, 1536), "float32")
    with rules.override(processor=PROCESSORS["x86-64-v3"]):
        assert chosen(x.T, g).pack_a == EACH


def test_tiles_are_packed_once_for_many_columns():
    x = np.empty((2048, 384), "float32")
    wide, narrow = (np.empty((2048, n), "float32") for n in (1536, 192))
    with rules.override(processor=PROCESSORS["x86-64-v3"]):
        assert chosen(x.T, wide).pack_a == ONCE
        assert chosen(x.T, narrow).pack_a == EACH
        assert chosen(np.empty((384, 2048), "float32"), wide).pack_a == ""


def test_conflicting_rows_of_large_tiles_are_packed():
    x, wide = (np.empty((600, n), "float32") for n in (1024, 1040))
    w, few = (np.empty((1024, n), "float32") for n in (600, 40))
    with rules.override(processor=PROCESSORS["x86-64-v4"]):
        assert chosen(x, w).pack_a == EACH
        assert chosen(wide, np.empty((1040, 600), "float32")).pack_a == ""
        assert chosen(x, few).pack_a == ""
    with rules.override(processor=PROCESSORS["x86-64-v3"]):
        assert chosen(x, w).pack_a == ""


def test_large_products_are_enough_tasks():
    for shape in ((128, 784, 512), (1024, 1024, 1024), (16, 4096, 4096)):
        x, w = (np.empty(shape[i : i + 2], "float32") for i in range(2))
        body, operands = body_of(product, x, w), [operand_of(x), operand_of(w)]
        assert max(call.tasks for call in lower_matmul(body, operands, []).calls) >= 8


def test_small_products_are_one_call_and_one_task():
    x, w = np.empty((32, 16), "float32"), np.empty((16, 32), "float32")
    (call,) = lower_matmul(
        body_of(product, x, w), [operand_of(x), operand_of(w)], []
    ).calls
    assert call.tasks == 1


def test_bytes_that_rows_access():
    x, w = np.empty((4096, 64), "float32"), np.empty((64, 64), "float32")
    (call,) = lower_matmul(
        body_of(residual, x, w), [operand_of(x), operand_of(w)], []
    ).calls
    assert call.row_operands == {("in", 0), ("out", 0)}
    square = np.empty((60, 60), "float32")
    body = body_of(lambda x: ops.matmul(x, x), square)
    (call,) = lower_matmul(body, [operand_of(square)], []).calls
    assert call.row_operands == {("out", 0)}


def test_short_integers_use_numpy():
    x = np.ones((3, 3), "int16")
    assert lower_matmul(body_of(product, x, x), [operand_of(x)] * 2, []) is None


def test_views_in_an_epilogue_use_numpy():
    a, b, mask = (numbers((8, 8), "float32") for _ in range(3))
    body = body_of(lambda a, b, mask: ops.matmul(a, b) * mask, a, b, mask)
    operands = [operand_of(x) for x in (a, b, mask.T)]
    assert lower_matmul(body, operands, []) is None


@pytest.mark.parametrize(("rows", "packed"), [(100, False), (100, True), (1, False)])
def test_tiles_stay_in_registers(rows, packed):
    host = Processor.host()
    if host.lanes != 16:
        pytest.skip("counts the registers of AVX-512")
    t = tiling(rows, 256, "float32")
    plan = ProductPlan(
        t,
        *(ROW, 0, 0, 1),
        has_tiles=packed,
        has_contiguous_terms=not packed,
        is_chained=True,
    )
    function = tile_function("tile", plan, t.vectors, is_tail=False)
    text = "\n".join(sorted(function)).replace("internal", "")
    text += '\nattributes #0 = { nounwind "prefer-vector-width"="512" }'
    module = llvm.binding().parse_assembly(text)
    lines = engine.machine(host).emit_assembly(module).splitlines()
    assert not [line for line in lines if "%rsp" in line and "zmm" in line]
