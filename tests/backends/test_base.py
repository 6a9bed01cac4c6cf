"""Tests of the registry, of memory, and of the context around eager kernels."""

from concurrent.futures import ThreadPoolExecutor
from time import sleep

import numpy as np
import pytest

from toolkit import ops  # noqa: F401  (declares the primitives)
from toolkit.backends import (
    get_backend,
    register_backend,
    registry as registered,
    workspace,
)
from toolkit.backends.base import Backend
from toolkit.backends.kernels import workspace_bytes
from toolkit.core.tensor import quiet_context
from toolkit.errors import ArgumentError


@pytest.fixture
def registry(monkeypatch):
    monkeypatch.setattr(registered, "_factories", dict(registered._factories))
    monkeypatch.setattr(registered, "_backends", {})


def test_a_backend_is_created_once(registry):
    calls = []

    def factory():
        calls.append(1)
        return Backend({"add": np.add})

    register_backend("mine", factory)
    assert get_backend("mine") is get_backend("mine")
    assert calls == [1]


@pytest.mark.parametrize(
    ("name", "owner"),
    [("lower", "CodeGenerator"), ("passes", "CodeGenerator"), ("asarray", "Memory")],
)
def test_a_backend_with_members_of_its_parts_is_refused(name, owner):
    with pytest.raises(ArgumentError, match=f"Mine.{name}.* subclass of {owner}"):
        type("Mine", (Backend,), {name: None})


def test_a_later_registration_replaces_the_earlier(registry):
    register_backend("mine", lambda: Backend({}))
    assert not get_backend("mine").kernels.supports("sum")
    register_backend("mine", lambda: Backend({"sum": np.sum}))
    assert get_backend("mine").kernels.supports("sum")


def test_elementwise_kernels_follow_from_the_records():
    backend = Backend({})
    x = np.array([-2.0, 0.5], np.float16)
    assert backend.kernels["exp"](x).dtype == np.float16
    out = np.empty(2, np.float16)
    assert backend.kernels["sigmoid"](x, out=out) is out
    np.testing.assert_allclose(out, 1 / (1 + np.exp(-x)), 1e-3)
    with pytest.raises(KeyError):
        backend.kernels["matmul"]


def test_installed_backend_is_loaded(registry, monkeypatch):
    class Point:
        name, value = "third", "toolkit.backends.reference:create"

    def entry_points(group):
        assert group == "toolkit.backends"
        return [Point]

    monkeypatch.setattr("importlib.metadata.entry_points", entry_points)
    assert get_backend("third").name == "reference"


def test_unknown_backend_error_lists_the_registered(registry):
    with pytest.raises(ArgumentError, match="'numpy', 'reference'; received 'nump'"):
        get_backend("nump")


def test_failed_backend_error_has_a_reason(registry):
    def factory():
        raise ImportError("no module named x")

    register_backend("broken", factory)
    facts = registered.describe_backends()
    assert facts["broken"] == {"unavailable": "no module named x"}
    assert facts["numpy"]["threads"] >= 1


def test_quiet_context_never_warns():
    run = quiet_context().run
    with np.errstate(all="raise"):
        assert run(np.exp, np.float32(1000.0)) == np.inf
        with pytest.raises(FloatingPointError):
            np.exp(np.float32(1000.0))


def test_workspace_size_is_queried_per_call():
    @workspace(lambda x, factor: x * factor)
    def kernel(x, factor, work=None):
        return work

    assert workspace_bytes(kernel, [4], {"factor": 3}) == 12
    assert workspace_bytes(np.exp, [4], {}) == 0


@pytest.mark.parametrize("nbytes", [0, 1, 1000])
def test_arenas_are_aligned(nbytes):
    arena = Backend({}).memory.arena(nbytes)
    assert arena.ctypes.data % 64 == 0 or nbytes == 0
    assert (arena.shape, arena.dtype) == ((nbytes,), np.uint8)


def test_a_view_is_part_of_its_arena():
    backend = Backend({})
    arena = backend.memory.arena(256)
    arena[...] = 0
    for dtype in ("float32", "bfloat16", "bool"):
        view = backend.memory.view(arena, 64, (2, 3), dtype)
        view[...] = 1
        assert view.shape == (2, 3)
        assert not arena[:64].any()
        assert arena[64 : 64 + view.nbytes].any()


def test_asarray_keeps_matching_arrays():
    backend = Backend({})
    x = np.ones(3, np.float32)
    assert backend.memory.asarray(x) is x
    assert backend.memory.asarray(x, "float32") is x
    assert backend.memory.asarray([1, 2], "bfloat16").dtype.name == "bfloat16"
    assert backend.memory.to_numpy(x) is x
    assert backend.memory.empty((2, 0), "int8").shape == (2, 0)


def test_concurrent_threads_get_one_backend(registry):
    def create():
        sleep(0.01)  # let another thread run
        return Backend({})

    register_backend("slow", create)
    with ThreadPoolExecutor(4) as pool:
        backends = set(pool.map(get_backend, ["slow"] * 4))
    assert len(backends) == 1
