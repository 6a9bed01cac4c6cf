"""Tests of every kernel of one backend (--backend=NAME) against the reference."""

import numpy as np
import pytest

from tests.backends.cases import ARRAYS, ELEMENTWISE, VIEWS, sample
from tests.backends.cases_linalg import LINALG, canonicalize
from tests.backends.cases_nn import NN
from tests.backends.conftest import why_no_gpu
from tests.helpers import allocated_by
from toolkit import dtypes, ops, random  # noqa: F401  (declare primitives)
from toolkit.backends import workspace_bytes
from toolkit.backends.array import array_table
from toolkit.ir import PRIMITIVES, Kind, Spec

# Relative errors of one operation; see `tolerance` for sums.
EPSILON = {"bfloat16": 2.0**-7, "float16": 2.0**-10, "float32": 1e-6, "float64": 1e-14}
POISON = 0xA5
REST = [*ARRAYS, *LINALG, *NN]


def tolerance(case, dtype):
    """Return (relative, absolute): a sum's error grows with the size of its terms."""
    epsilon = EPSILON.get(dtype, 0.0)
    # Half precision accumulates in float32: only the result is rounded.
    terms = 0 if case.terms == 1 else 40 * case.terms * min(epsilon, 1e-6) / 16
    return 4 * epsilon, terms + epsilon * (1e-3 if case.terms == 1 else 1)


def compare(case, actual, expected):
    if isinstance(expected, tuple):
        specs = [[(a.shape, a.dtype) for a in xs] for xs in (actual, expected)]
        assert specs[0] == specs[1]
        actual, expected = (canonicalize(case.name, xs) for xs in (actual, expected))
        for a, e in zip(actual, expected, strict=True):
            compare(case, a, e)
        return
    actual, expected = np.asarray(actual), np.asarray(expected)
    assert (actual.shape, actual.dtype) == (expected.shape, expected.dtype)
    dtype = dtypes.name_of(expected.dtype)
    if dtypes.is_complex(dtype):
        for component in ("real", "imag"):
            compare(case, getattr(actual, component), getattr(expected, component))
        return
    if not dtypes.is_float(dtype):
        np.testing.assert_array_equal(actual, expected)
        return
    relative, absolute = tolerance(case, dtype)
    np.testing.assert_allclose(
        *(a.astype(np.float64) for a in (actual, expected)),
        relative,
        absolute,
        equal_nan=True,
    )


def run_quietly(backend, kernel, /, *arrays, **keywords):
    with backend.kernels.errstate():
        return kernel(*arrays, **keywords)


def specs_of(case):
    """Return the specs of a case's outputs, always as a tuple."""
    inputs = [Spec(a.shape, dtypes.name_of(a.dtype)) for a in case.arrays]
    result = PRIMITIVES[case.name].spec(*inputs, **case.attrs)
    return inputs, result if isinstance(result, tuple) else (result,)


def poisoned_array(backend, spec):
    """Return an array of a spec that is filled with invalid values."""
    out = backend.memory.arena(max(1, spec.nbytes))
    out[...] = POISON
    return backend.memory.view(out, 0, spec.shape, spec.dtype)


def guarded_scratch(backend, case, inputs):
    """Return scratch of exactly the declared size, and the guard bytes after it."""
    kernel = backend.kernels[case.name]
    size = workspace_bytes(kernel, inputs, case.attrs)
    block = backend.memory.arena(size + 4096)
    block[...] = POISON
    keywords = {"work": block[:size]} if size else {}
    return keywords, block[size:]


def run_planned(backend, case, arrays, outs=None):
    """Call a kernel like a program: with `out`, and with `work` if it needs scratch."""
    inputs, results = specs_of(case)
    keywords, guard = guarded_scratch(backend, case, inputs)
    outs = outs or tuple(poisoned_array(backend, spec) for spec in results)
    out = outs if len(results) > 1 else outs[0]
    kernel = backend.kernels[case.name]
    returned = run_quietly(backend, kernel, *arrays, out=out, **keywords, **case.attrs)
    assert returned is out or len(results) > 1
    assert (backend.memory.to_numpy(guard) == POISON).all(), "wrote past its scratch"
    numpy_outs = tuple(backend.memory.to_numpy(o) for o in outs)
    return numpy_outs if len(results) > 1 else numpy_outs[0]


def expected_of(reference, case):
    copies = [a.copy() for a in case.arrays]
    return run_quietly(reference, reference.kernels[case.name], *copies, **case.attrs)


def strided(backend, array):
    """Return the same values in an array without contiguous neighbours."""
    if array.ndim == 0:
        return backend.memory.asarray(array)
    wide = np.repeat(array, 2, axis=-1)
    return backend.memory.asarray(wide)[..., ::2]


@pytest.mark.cases("case", [*ELEMENTWISE, *REST])
def test_kernel(case, backend, reference):
    expected = expected_of(reference, case)
    arrays = [backend.memory.asarray(a) for a in case.arrays]
    before = [a.copy() for a in case.arrays]
    eager = run_quietly(backend, backend.kernels[case.name], *arrays, **case.attrs)
    is_tuple = isinstance(eager, tuple)
    actual = (
        tuple(map(backend.memory.to_numpy, eager))
        if is_tuple
        else backend.memory.to_numpy(eager)
    )
    compare(case, actual, expected)
    compare(case, run_planned(backend, case, arrays), expected)
    strided_arrays = [strided(backend, a) for a in case.arrays]
    compare(case, run_planned(backend, case, strided_arrays), expected)
    for array, copy in zip(case.arrays, before, strict=True):
        np.testing.assert_array_equal(
            array.view(np.uint8) if array.ndim else array,
            copy.view(np.uint8) if copy.ndim else copy,
        )


@pytest.mark.cases("case", ELEMENTWISE)
def test_out_may_be_an_input(case, backend, reference):
    expected = expected_of(reference, case)
    _, (result,) = specs_of(case)
    for i, array in enumerate(case.arrays):
        if (array.shape, dtypes.name_of(array.dtype)) == (result.shape, result.dtype):
            arrays = [backend.memory.asarray(a.copy()) for a in case.arrays]
            actual = run_planned(backend, case, arrays, (arrays[i],))
            compare(case, actual, expected)


# NumPy 2.4 writes strided results of these operations to wrong addresses.
_NOT_STRIDED = ("isnan", "isinf", "isfinite")


@pytest.mark.cases("case", [c for c in ELEMENTWISE if c.name not in _NOT_STRIDED])
def test_out_may_be_strided(case, backend, reference):
    _, (result,) = specs_of(case)
    if result.shape and result.size:
        wide = poisoned_array(
            backend, result.with_shape((*result.shape[:-1], result.shape[-1] * 2))
        )
        arrays = [backend.memory.asarray(a) for a in case.arrays]
        actual = run_planned(backend, case, arrays, (wide[..., ::2],))
        compare(case, actual, expected_of(reference, case))


@pytest.mark.cases("case", VIEWS)
def test_views_share_memory(case, backend, reference):
    x = backend.memory.asarray(case.arrays[0].copy())
    view = backend.kernels[case.name](x, **case.attrs)
    compare(case, backend.memory.to_numpy(view), expected_of(reference, case))
    if view.size:
        x[...] = 9.0
        assert (backend.memory.to_numpy(view) == 9.0).all()


@pytest.mark.cases("case", VIEWS)
def test_views_of_the_reference_share_memory(case, reference):
    view = reference.kernels[case.name](case.arrays[0], **case.attrs)
    assert np.shares_memory(view, case.arrays[0]) or not view.size


@pytest.mark.cases(
    "case",
    [c for c in (*ELEMENTWISE, *REST) if sum(a.nbytes for a in c.arrays) > 40_000],
)
def test_planned_call_allocates_no_large_array(case, backend):
    if backend.devices() != ("cpu:0",):
        pytest.skip("tracemalloc sees the host's memory only")
    if case.name not in array_table(np):
        pytest.skip("made from the rule, which has a name for what is in between")
    inputs, results = specs_of(case)
    keywords, _ = guarded_scratch(backend, case, inputs)
    outs = tuple(poisoned_array(backend, spec) for spec in results)
    out = outs if len(outs) > 1 else outs[0]
    kernel = backend.kernels[case.name]

    def call():
        run_quietly(backend, kernel, *case.arrays, out=out, **keywords, **case.attrs)

    call()  # prepares
    # The limit covers small Python objects, and never an array of more than 1 KB. Other
    # threads of the process may allocate during a call, so the minimum over many calls
    # counts: a kernel that allocates does so in each call.
    assert any(peak_of(call) < 12_000 for _ in range(30))


def peak_of(call):
    """Return the peak of the bytes that a call allocates."""
    # The buffers of NumPy's iterators are not arrays: use the minimum buffer size.
    size = np.setbufsize(16)
    try:
        return allocated_by(call)[1]
    finally:
        np.setbufsize(size)


def flip_factors(name, factors):
    """Return other valid factors, as another library may return them."""
    signs = np.where(np.arange(8) % 2, -1, 1)
    if name in ("eigh", "eig"):
        values, vectors = factors
        vectors = vectors * signs[: vectors.shape[-1]]
        step = -1 if name == "eig" else 1
        return values[..., ::step], vectors[..., ::step]
    first, *middle, right = factors
    is_shared = np.arange(right.shape[-2]) < first.shape[-1]
    rows = np.where(is_shared, signs[: right.shape[-2]], 1)
    return first * signs[: first.shape[-1]], *middle, right * rows[:, None]


@pytest.mark.cases(
    "case", [c for c in LINALG if c.name in ("qr", "svd", "eigh", "eig")]
)
def test_factorizations_are_compared_up_to_signs(case, reference):
    expected = expected_of(reference, case)

    def like_expected(outputs):
        pairs = zip(outputs, expected, strict=True)
        return tuple(x.astype(e.dtype) for x, e in pairs)

    compare(case, like_expected(flip_factors(case.name, expected)), expected)
    if expected[0].size:
        with pytest.raises(AssertionError):
            incorrect = like_expected((expected[0] * 1.01, *expected[1:]))
            compare(case, incorrect, expected)


def test_every_primitive_has_a_kernel(backend, reference):
    tested = {case.name for case in (*ELEMENTWISE, *REST, *VIEWS)}
    for name, primitive in PRIMITIVES.items():
        if primitive.kind not in (Kind.CONTROL, Kind.COMPOSITE):
            assert reference.kernels.supports(name), name
            assert backend.kernels.supports(name), name
            assert name in tested, name


def test_every_kernel_names_a_primitive(backend, reference):
    compilers_own = {"product"}  # a script cannot name it
    assert set(backend.kernels) - compilers_own <= set(PRIMITIVES)
    assert set(reference.kernels) <= set(PRIMITIVES)


def test_a_large_sum_of_half_precision_is_exact(backend):
    x = sample((100, 1000), "bfloat16", 1.0, 1.0)
    total = backend.kernels["sum"](
        backend.memory.asarray(x), axis=(0, 1), keepdims=False
    )
    assert (
        float(backend.memory.to_numpy(total)) == 99_840.0
    )  # 100,000 rounded to bfloat16


def test_every_conformance_test_runs_on_a_gpu(request):
    reason, config = why_no_gpu(), request.config
    if not reason or config.getoption("backend") or config.getoption("require_gpu"):
        return  # then they run, or skip with their own reason
    count = sum("backend" in item.fixturenames for item in request.session.items)
    pytest.skip(f"needs a GPU: {count} conformance tests: {reason}")
