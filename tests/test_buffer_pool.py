"""Tests of the buffer pool: memory is reused only after the last reference ends."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import toolkit
from toolkit import ops
from toolkit.buffer_pool import BufferPool

SHAPE = (128, 1024)


def address(array):
    return array.__array_interface__["data"][0]


# Objects that may keep a reference to an array.
KEPT = {
    "itself": lambda array: array,
    "a view": lambda array: array[1:2].T,
    "a view of another dtype": lambda array: array.view("uint8"),
    "a buffer": memoryview,
}


@pytest.mark.parametrize("name", KEPT)
def test_memory_is_reused_after_the_last_reference(name):
    pool = BufferPool()
    array = pool.empty(SHAPE, "float32")
    retained, first = KEPT[name](array), address(array)
    del array
    assert address(pool.empty(SHAPE, "float32")) != first
    del retained
    assert first in {address(pool.empty(SHAPE, "float32")) for _ in range(2)}


def test_arrays_are_aligned_and_smaller_arrays_reuse_memory():
    pool = BufferPool()
    first = address(pool.empty(SHAPE, "float32"))
    assert first % 64 == 0
    other = pool.empty((SHAPE[1], SHAPE[0], 2), "int16")
    assert (address(other), other.flags.c_contiguous) == (first, True)
    assert address(pool.empty((3 * SHAPE[0], 1024), "float32")) != first


def test_objects_and_small_arrays_are_not_pooled():
    pool = BufferPool()
    for shape, dtype in (((4,), "float32"), (SHAPE, object)):
        assert pool.empty(shape, dtype).flags.owndata


def test_only_unused_memory_is_released():
    pool = BufferPool()
    used, unused = pool.empty(SHAPE, "float32"), pool.empty(SHAPE, "float32")
    used_address = address(used)
    del unused
    pool.release_unused()
    assert len(pool._blocks) == 1
    del used
    assert address(pool.empty(SHAPE, "float32")) == used_address


def test_pool_does_not_exceed_its_limit():
    pool = BufferPool(max_blocks=64, nbytes=1 << 21)
    arrays = [pool.empty(SHAPE, "float32") for _ in range(6)]
    assert sum(block.nbytes for block in pool._blocks) <= 1 << 21
    assert pool.empty((1 << 20,), "float32").flags.owndata
    assert len({*map(address, arrays)}) == 6


def test_threads_have_separate_memory():
    buffers = BufferPool(max_blocks=8)

    def write(number):
        for _ in range(200):
            array = buffers.empty(SHAPE, "float32")
            array[:] = number
            if not (array == number).all():
                return False
        return True

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(write, range(4)))


def test_results_do_not_share_memory():
    x = ops.ones((1024, 1024))
    results = [ops.exp(x * i).numpy() for i in range(5)]
    for i, result in enumerate(results):
        np.testing.assert_allclose(result, np.exp(np.float32(i)), 1e-5)
    view = ops.exp(x)[3:4]
    for _ in range(4):
        toolkit.ops.negative(x)
    np.testing.assert_allclose(view, np.e, 1e-5)


def test_program_results_do_not_share_memory():
    function = toolkit.function(lambda x: (x + 1.0, x * 2.0))
    x = ops.ones((1024, 1024))
    results = [[y.numpy() for y in function(x * i)] for i in range(4)]
    for i, (first, second) in enumerate(results):
        assert (first == i + 1).all() and (second == 2 * i).all()


def test_very_large_buffers_are_not_pooled():
    pool = BufferPool(max_blocks=8, nbytes=1 << 22)
    sizes = {"kept": 1 << 20, "let go": (1 << 20) + 4096}
    is_pooled = {
        name: not pool.empty((size,), "uint8").flags.owndata
        for name, size in sizes.items()
    }
    assert is_pooled == {"kept": True, "let go": False}
