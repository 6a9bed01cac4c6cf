"""The registry, memory and the guard around eager kernels."""

import numpy as np
import pytest

from toolkit.backends import base, get_backend, register_backend, workspace
from toolkit.backends.base import Backend, workspace_bytes
from toolkit.errors import ArgumentError


@pytest.fixture
def registry(monkeypatch):
    monkeypatch.setattr(base, "_factories", dict(base._factories))
    monkeypatch.setattr(base, "_backends", {})


def test_a_backend_is_created_once(registry):
    calls = []

    def factory():
        calls.append(1)
        return Backend({"add": np.add})

    register_backend("mine", factory)
    assert get_backend("mine") is get_backend("mine")
    assert calls == [1]


def test_a_later_registration_replaces_the_earlier(registry):
    register_backend("mine", lambda: Backend({}))
    assert not get_backend("mine").supports("add")
    register_backend("mine", lambda: Backend({"add": np.add}))
    assert get_backend("mine").supports("add")


def test_an_installed_backend_is_found(registry, monkeypatch):
    class Point:
        name, value = "third", "toolkit.backends.reference:create"

    def entry_points(group):
        assert group == "toolkit.backends"
        return [Point]

    monkeypatch.setattr("importlib.metadata.entry_points", entry_points)
    assert get_backend("third").name == "reference"


def test_an_unknown_backend_lists_the_known(registry):
    with pytest.raises(ArgumentError, match="'numpy', 'reference'; received 'nump'"):
        get_backend("nump")


def test_a_backend_that_cannot_start_says_why(registry):
    def factory():
        raise ImportError("no module named x")

    register_backend("broken", factory)
    facts = base.describe_backends()
    assert facts["broken"] == {"unavailable": "no module named x"}
    assert facts["numpy"]["threads"] >= 1


def test_eager_kernels_are_silent_and_kept():
    backend = Backend({"exp": np.exp, "abs": np.absolute})
    with np.errstate(all="raise"):
        assert backend.eager("exp")(np.float32(1000.0)) == np.inf
    assert backend.eager("exp") is backend.eager("exp")
    assert backend.eager("abs") is np.absolute


QUIET_UNARY = (
    "negative abs sign floor ceil round trunc isnan isinf isfinite logical_not "
    "stop_gradient"
).split()
QUIET_BINARY = "equal not_equal logical_and logical_or logical_xor".split()


def test_quiet_kernels_never_warn(backend):
    values = np.array([np.nan, np.inf, -np.inf, -0.0, 3e38, 1e-45], np.float32)
    attrs = {"axis": 0, "keepdims": False}
    assert base._QUIET.issuperset([*QUIET_UNARY, *QUIET_BINARY, "where", "argmax"])
    with np.errstate(all="raise"):
        for name in QUIET_UNARY:
            backend.kernels[name](values)
        for name in QUIET_BINARY:
            backend.kernels[name](values, values[::-1])
        backend.kernels["where"](values > 0, values, values)
        for name in ("argmax", "argmin"):
            backend.kernels[name](values, **attrs)


def test_workspace_is_asked_for_a_call():
    @workspace(lambda x, factor: x * factor)
    def kernel(x, factor, work=None):
        return work

    assert workspace_bytes(kernel, [4], {"factor": 3}) == 12
    assert workspace_bytes(np.exp, [4], {}) == 0


@pytest.mark.parametrize("nbytes", [0, 1, 1000])
def test_arenas_are_aligned(nbytes):
    arena = Backend({}).arena(nbytes)
    assert arena.ctypes.data % 64 == 0 or nbytes == 0
    assert (arena.shape, arena.dtype) == ((nbytes,), np.uint8)


def test_a_view_is_part_of_its_arena():
    backend = Backend({})
    arena = backend.arena(256)
    arena[...] = 0
    for dtype in ("float32", "bfloat16", "bool"):
        view = backend.view(arena, 64, (2, 3), dtype)
        view[...] = 1
        assert view.shape == (2, 3)
        assert not arena[:64].any()
        assert arena[64 : 64 + view.nbytes].any()


def test_asarray_keeps_what_fits():
    backend = Backend({})
    x = np.ones(3, np.float32)
    assert backend.asarray(x) is x
    assert backend.asarray(x, "float32") is x
    assert backend.asarray([1, 2], "bfloat16").dtype.name == "bfloat16"
    assert backend.to_numpy(x) is x
    assert backend.empty((2, 0), "int8").shape == (2, 0)
