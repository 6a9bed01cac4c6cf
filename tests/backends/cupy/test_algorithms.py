"""How algorithms of cuBLASLt are chosen and called, on a library that only takes notes.

Its functions get the very arguments that the real one would.
"""

import ctypes

import pytest

from toolkit.backends import disk_cache
from toolkit.backends.cupy import algorithms, cublaslt
from toolkit.backends.cupy.algorithms import Algorithm, Plans, aligned_to
from toolkit.backends.cupy.cublaslt import Gemm
from toolkit.errors import DeviceError, UnsupportedOnBackend

LIMIT = 1 << 20


class Notes:
    """A library whose heuristic names algorithms by numbers from 10 on.

    Args:
        states: the state of each algorithm; 0 is usable.
        refused: the numbers of algorithms that fail in a call.
    """

    def __init__(self, states=(0, 0, 7, 0), refused=()):
        self.states, self.refused = states, refused
        self.objects = {}  # the attributes of each descriptor, by its address
        self.requests, self.called = [], []

    def __getattr__(self, name):
        if name.endswith("Create"):
            return self.create
        if name.endswith("Destroy"):
            return lambda pointer: 0
        raise AttributeError(name)

    def create(self, pointer, *arguments):
        number = 8 * (len(self.objects) + 1)
        self.objects[number] = {}
        pointer._obj.value = number
        return 0

    def note(self, pointer, attribute, cell, size):
        assert ctypes.sizeof(cell._obj) == size
        self.objects[pointer.value][attribute] = cell._obj.value
        return 0

    cublasLtMatmulDescSetAttribute = note
    cublasLtMatrixLayoutSetAttribute = note
    cublasLtMatmulPreferenceSetAttribute = note

    def cublasLtGetVersion(self):
        return 130100

    def cublasLtGetStatusString(self, status):
        return b"refused"

    def cublasLtMatmulAlgoGetHeuristic(self, *arguments):
        _, descriptor, a, b, c, d, preference, count, results, number = arguments
        assert c is d
        self.requests.append(dict(self.objects[preference.value]))
        self.requests[-1]["seen"] = dict(self.objects[descriptor.value])
        for i, state in enumerate(self.states):
            results[i].state, results[i].algorithm[0] = state, 10 + i
        number._obj.value = len(self.states)
        assert len(self.states) <= count == len(results)
        return 0 if self.states else 15

    def cublasLtMatmul(self, handle, descriptor, alpha, *arguments):
        a, _, b, _, beta, c, _, d, _, algorithm, workspace, size, stream = arguments
        vectors = self.objects[descriptor.value]
        self.called.append(
            {
                "factors": (alpha._obj.value, beta._obj.value, type(alpha._obj)),
                "places": (a, b, c, d, vectors.get(8), vectors.get(11)),
                "algorithm": algorithm._obj[0],
                "work": (workspace, size, stream),
            }
        )
        return 14 if self.called[-1]["algorithm"] in self.refused else 0


@pytest.fixture
def notes(monkeypatch):
    library = Notes()
    # The functions have types, which only a library of C needs.
    for module in (cublaslt, algorithms):
        monkeypatch.setattr(module, "library", lambda: library)
    return library


def gemm(dtype="float32", **options):
    shapes = 256, 6, 8
    compute = "64F" if dtype == "float64" else "32F"
    flags = (True, False), (8, 8, 256)
    return Gemm(*shapes, *flags, (dtype, dtype), compute, **options)


def test_call_passes_all_addresses_and_factors(notes):
    descriptor = gemm("float64", epilogue="relu_aux_bias", aux_leading=256, alpha=0.5)
    plan = Plans().get(descriptor, (256, 512, 1024, 2048, 4096), LIMIT)
    plan((256, 768, 1280, 16, 32), 64, 5)
    (call,) = notes.called
    assert call["factors"] == (0.5, 0.0, ctypes.c_double)
    # Without a summand, c is d.
    assert call["places"] == (256, 768, 1280, 1280, 16, 32)
    assert call["work"] == (64, LIMIT, 5)
    assert call["algorithm"] == 10


def test_addend_is_not_a_bias_of_the_descriptor(notes):
    descriptor = gemm(epilogue="bias", beta=1.0)
    Plans().get(descriptor, (256, 256, 256, 8, 4), LIMIT)((1, 2, 3, 4, 5), 0, 0)
    assert notes.called[0]["places"] == (1, 2, 4, 3, 5, None)
    assert notes.called[0]["factors"] == (1.0, 1.0, ctypes.c_float)
    (request,) = notes.requests
    # Bytes that divide the addresses of a, b, c and d; and where the bias will be.
    assert [request[number] for number in (5, 6, 7, 8)] == [256, 256, 8, 256]
    assert request["seen"][8] == 4
    assert request[1] == LIMIT


def test_partial_sums_of_16_bit_floats_are_not_rounded(notes):
    plans = Plans()
    for dtype in ("float32", "bfloat16"):
        plans.get(gemm(dtype), (16, 16, 16), LIMIT)
    assert [request.get(3) for request in notes.requests] == [None, 2]


def test_plans_are_cached_by_alignment(notes):
    plans, descriptor = Plans(), gemm()
    first = plans.get(descriptor, (256, 256, 256), LIMIT)
    assert plans.get(descriptor, (512, 1024, 256), LIMIT) is first
    assert plans.get(descriptor, (512, 1024, 260), LIMIT) is not first
    assert [aligned_to(address) for address in (0, 4, 24, 512)] == [256, 4, 8, 256]
    # An algorithm that the heuristic marks as unusable is no candidate.
    assert [a.algorithm[0] for a in first.algorithms] == [10, 11, 13]


def test_unsupported_algorithm_error_names_the_reason(notes):
    notes.states = ()
    assert not Plans().offers(gemm(), 16, LIMIT)
    with pytest.raises(UnsupportedOnBackend, match=r"256 x 6 x 8, drelu.*status 15"):
        descriptor = gemm(epilogue="drelu", aux_leading=256)
        Plans().get(descriptor, (16, 16, 16, 16), LIMIT)


def test_fastest_algorithm_is_cached_on_disk(notes, tmp_path):
    notes.refused = (11,)
    times = {10: 3.0, 13: 1.0}

    def measure(plan):
        plan((0, 0, 0), 0, 0)
        return times[plan.algorithm.algorithm[0]]

    arguments = gemm(), (256, 256, 256), LIMIT
    plans = Plans(tmp_path)
    best = plans.tune(*arguments, measure)
    assert best is plans.tune(*arguments, measure)
    assert [call["algorithm"] for call in notes.called] == [10, 11, 13]
    assert best.algorithm.algorithm[0] == 13
    # Without tuning, the choice does not change.
    assert Plans(tmp_path).get(*arguments).algorithm.algorithm[0] == 10
    times[13] = 5.0
    assert Plans(tmp_path).tune(*arguments, measure).algorithm.algorithm[0] == 13
    assert Plans().tune(*arguments, measure).algorithm.algorithm[0] == 10
    # A stored algorithm that the library no longer offers is not used.
    (path,) = tmp_path.glob("*/*.algorithm")
    disk_cache.store(path, b"x" * ctypes.sizeof(Algorithm))
    assert Plans(tmp_path).tune(*arguments, measure).algorithm.algorithm[0] == 10


def test_failed_call_error_names_the_call(notes):
    notes.refused = (10,)
    plan = Plans().get(gemm(), (16, 16, 16), LIMIT)
    with pytest.raises(DeviceError, match=r"cublasLtMatmul: refused \(14\)"):
        plan((16, 16, 16), 0, 0)


def test_sizes_count_bytes_read_and_written():
    descriptor = gemm("float16", epilogue="drelu_bgrad", aux_leading=384)
    a, b, d, bias, aux = descriptor.sizes
    assert (a, b, d) == (2 * 8 * 256, 2 * 8 * 6, 2 * 256 * 6)
    assert (bias, aux) == (2 * 256, 384 // 8 * 6)
    batches = gemm(batch=3, strides=(0, 48, 2000), beta=1.0)
    assert batches.sizes == [4 * 8 * 256, 4 * 144, *[4 * (4000 + 256 * 6)] * 2]
