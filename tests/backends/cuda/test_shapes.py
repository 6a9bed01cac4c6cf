"""Generated CUDA on shapes and layouts drawn at random, against the reference."""

from itertools import product

import numpy as np
import pytest

from tests.backends.cases import Case, sample
from tests.backends.cases_nn import counts
from tests.backends.cuda.host import GXX, Host
from tests.backends.cuda.test_generated import check, generated, specs_of
from toolkit.backends import get_backend
from toolkit.backends.cupy.cuda.launch import Buffer
from toolkit.backends.cupy.cuda.move import copy
from toolkit.ir import Spec
from toolkit.plans.operands import Operand, contiguous

pytestmark = pytest.mark.skipif(GXX is None, reason="g++ is not installed")
DTYPES = ("bfloat16", "float16", "float32", "float64", "int32", "uint8", "int64")
REDUCED = ("sum", "max", "min", "prod", "argmax", "argmin")


def drawn(rng):
    """A case of random kind, shape and dtype."""
    kind = rng.choice(list(KINDS))
    dtype = str(rng.choice(DTYPES))
    rank = int(rng.integers(1, 5))
    shape = tuple(int(n) for n in rng.integers(1, (400, 60, 20, 8)[rank - 1], rank))
    return KINDS[kind](rng, shape, dtype, int(rng.integers(rank)))


def reduction(rng, shape, dtype, axis):
    name = str(rng.choice(REDUCED))
    x = sample(shape, dtype, 0.9 if name == "prod" else -3.0, 1.1)
    attrs = {"keepdims": bool(rng.integers(2))}
    if name.startswith("arg"):
        return Case(name, (x,), {"axis": axis, **attrs})
    axes = tuple(int(a) for a in np.flatnonzero(rng.integers(0, 2, len(shape))))
    exact = name in ("max", "min")
    return Case(name, (x,), {"axis": axes, **attrs}, 1 if exact else x.size + 1)


def arithmetic(rng, shape, dtype, axis):
    narrow = tuple(n if rng.integers(2) else 1 for n in shape[axis:])
    name = str(rng.choice(["add", "multiply", "maximum", "less", "remainder"]))
    return Case(name, (sample(shape, dtype), sample(narrow, dtype, seed="b")))


def cumulative(rng, shape, dtype, axis):
    attrs = {"axis": axis, "reverse": bool(rng.integers(2))}
    return Case("cumsum", (sample(shape, dtype),), attrs, shape[axis] + 1)


def order(rng, shape, dtype, axis):
    return Case("argsort", (sample(shape, dtype),), {"axis": axis})


def random_indices(rng, shape, dtype, axis):
    count = int(rng.integers(0, 40))
    index = rng.integers(-shape[axis], shape[axis], count).astype(np.int32)
    if rng.integers(2):
        return Case("gather", (sample(shape, dtype), index), {"axis": axis})
    new = sample((*shape[:axis], count, *shape[axis + 1 :]), dtype, seed="new")
    attrs = {"axis": axis, "mode": str(rng.choice(["add", "set", "max"]))}
    return Case("scatter", (sample(shape, dtype), index, new), attrs, count + 1)


def boxes(rng, shape, dtype, axis):
    if rng.integers(2):
        xs = [sample(shape, dtype, seed=k) for k in range(int(rng.integers(1, 4)))]
        return Case("concatenate", tuple(xs), {"axis": axis})
    widths = tuple((int(a), int(b)) for a, b in rng.integers(0, 4, (len(shape), 2)))
    return Case("pad", (sample(shape, dtype),), {"widths": widths, "value": 1})


def pools(rng, shape, dtype, axis):
    dtype = "float32" if dtype in ("uint8", "int64") else dtype
    spatial = tuple(int(n) for n in rng.integers(4, 12, 2))
    window, strides = (tuple(int(n) for n in rng.integers(1, 4, 2)) for _ in range(2))
    pairs = (rng.integers(0, n, 2) for n in window)
    padding = tuple((int(low), int(high)) for low, high in pairs)
    attrs = {"window": window, "strides": strides, "padding": padding}
    x = sample((2, *spatial, shape[axis] % 9 + 1), dtype)
    out = counts(spatial, window, strides, padding, (1, 1))
    g = sample((2, *out, x.shape[-1]), dtype, seed="g")
    if rng.integers(2):
        return Case("max_pool", (x,), attrs)
    return Case("sum_pool_grad", (g,), {"spatial": spatial, **attrs}, 10)


KINDS = {
    f.__name__: f
    for f in (reduction, arithmetic, cumulative, order, random_indices, boxes, pools)
}


@pytest.mark.parametrize("seed", range(9))
@pytest.mark.one_in(9)
def test_random_cases(seed, tmp_path):
    rng = np.random.default_rng(seed)
    check([drawn(rng) for _ in range(40 if seed == 0 else 150)], tmp_path)


def test_square_tiles_are_transposed_in_shared_memory(tmp_path):
    work, shapes = [], (((40, 70), (1, 0)), ((3, 33, 2, 65), (0, 3, 2, 1)))
    dtypes = ("uint8", "bfloat16", "float32", "float64")
    for (shape, axes), dtype in product(shapes, dtypes):
        x = sample(shape, dtype)
        y = x.transpose(axes)
        spec = Spec(y.shape, dtype)
        into = copy(
            Operand(spec, y.strides), contiguous(spec), (Buffer(0), Buffer(1)), True
        )
        assert [launch.kernel.name[:4] for launch in into] == ["turn"]
        work.append((x, y, spec, into))
    host = Host([launch for *_, into in work for launch in into], tmp_path)
    for x, y, spec, into in work:
        (actual,), _ = host.run(into, [x], [spec])
        np.testing.assert_array_equal(actual, y)


def test_wide_accesses_need_aligned_addresses(tmp_path):
    x = np.arange(65, dtype=np.float32)[1:]  # 4 bytes after a multiple of 16
    case = Case("negative", (x,))
    (narrow,) = generated(case, [x])
    (wide,) = generated(case, [x.copy()])
    assert "Pack<float, 4>" in wide.kernel.source.rpartition("#endif")[2]
    assert "Pack<float" not in narrow.kernel.source.rpartition("#endif")[2]
    host = Host([narrow, wide], tmp_path)
    for launch, array in ((narrow, x), (wide, x.copy())):
        (actual,), _ = host.run([launch], [array], [Spec((64,), "float32")])
        np.testing.assert_array_equal(actual, -x)


BAD = (
    Case(
        "gather", (np.ones((4, 3), "float32"), np.array([1, 4], "int32")), {"axis": 0}
    ),
    Case(
        "take_along_axis",
        (np.ones((4, 3), "float32"), np.full((4, 2), -4, "int64")),
        {"axis": 1},
    ),
    Case(
        "scatter",
        (np.ones((4, 3), "float32"), np.array([-5], "int32"), np.ones((1, 3), "f4")),
        {"axis": 0, "mode": "add"},
    ),
    Case(
        "put_along_axis",
        (np.ones((4, 3), "f4"), np.full((4, 1), 3, "int32"), np.ones((4, 1), "f4")),
        {"axis": 1, "mode": "set"},
    ),
)


def test_invalid_indices_are_reported_and_write_no_other_element(tmp_path):
    work = [(case, generated(case, case.arrays)) for case in BAD]
    host = Host([launch for _, launches in work for launch in launches], tmp_path)
    for case, launches in work:
        _, results = specs_of(case)
        _, problem = host.run(launches, case.arrays, results)
        axis = case.attrs["axis"]
        worst = case.arrays[1].reshape(-1)[-1]
        assert problem.tolist() == [1, worst, case.arrays[0].shape[axis]], case
        text = next(launch.problem for launch in launches if launch.problem)
        assert text.format(index=worst, limit=4).startswith(
            f"{case.name}: index {worst}"
        )


def test_pooling_vectorizes_over_channels(tmp_path):
    attrs = {"window": (3, 2), "strides": (2, 1), "padding": ((1, 1), (0, 1))}
    out = counts((7, 6), *attrs.values(), (1, 1))
    cases = []
    for dtype, channels in product(("float16", "float32", "float64"), (16, 12, 5)):
        x = sample((2, 7, 6, channels), dtype)
        g = sample((2, *out, channels), dtype, seed="g")
        won = get_backend("reference").kernels["max_pool"](x, **attrs)[1]
        spatial = {"spatial": (7, 6)}
        cases += [
            Case("max_pool", (x,), attrs),
            Case("sum_pool", (x,), attrs, 10),
            Case("sum_pool_grad", (g,), spatial | attrs, 10),
            Case("max_pool_scatter", (g, won), spatial | attrs, 10),
        ]
    check(cases, tmp_path)
    (wide,) = generated(cases[0], cases[0].arrays)
    assert "Pack<f16, 8> from" in wide.kernel.source


def test_updates_of_one_row_are_applied_in_order(tmp_path):
    x = np.zeros((5, 3), np.float32)
    index = np.array([2] * 70 + [4] + [2] * 30, np.int32)
    new = sample((len(index), 3), "float32", seed="new")
    attrs = {"axis": 0, "mode": "add"}
    case = Case("scatter", (x, index, new), attrs)
    launches = generated(case, case.arrays)
    (actual,), _ = Host(launches, tmp_path).run(
        launches, case.arrays, specs_of(case)[1]
    )
    expected = x.copy()
    for at, row in zip(index, new, strict=True):
        expected[at] += row
    np.testing.assert_array_equal(actual, expected)
