"""Tests of groups of real processes: their exchanges, and the bits of their sums."""

import hashlib

import numpy as np
import pytest

from tests.comm import ranks
from toolkit.comm import Leaves, all_reduce, local

EVERY_CALL = """
import numpy as np
from toolkit import comm

group = comm.world()
rank, size = group.rank, group.size
assert size == 3

gathered = np.empty((3, 2), np.int16)
group.all_gather(np.full(2, rank, np.int16), gathered)
assert gathered.tolist() == [[0, 0], [1, 1], [2, 2]]

counts = [2, 0, 6]
varying = np.empty(8, np.uint8)
start = sum(counts[:rank])
varying[start : start + counts[rank]] = rank
group.all_gather_varying(varying[start : start + counts[rank]], varying, counts)
assert varying.tolist() == [0] * 2 + [2] * 6

sent = np.arange(3, dtype=np.int32) + 10 * rank
got = np.empty(3, np.int32)
group.all_to_all(sent, [4] * 3, got, [4] * 3)
assert got.tolist() == [rank, 10 + rank, 20 + rank]
group.all_to_all(sent, [4] * 3, got, [4] * 3, [8, 4, 0], [8, 4, 0])
assert got.tolist() == [22 - rank, 12 - rank, 2 - rank]

word = np.full(3, rank, np.float64)
group.broadcast(word, root=2)
assert word.tolist() == [2.0] * 3

if rank == 0:
    group.send(np.array([1.5]), to=1, tag=4)
elif rank == 1:
    group.receive(word[:1], source=0, tag=4)
    assert word[0] == 1.5

inner = group.split(rank % 2, -rank)
assert (inner.rank, inner.size) == [(1, 2), (0, 1), (0, 2)][rank]
assert comm.exchange(inner, rank) == [[2, 0], [1], [2, 0]][rank]
other = group.duplicate()
other.barrier()
assert comm.exchange(other, [rank]) == [[0], [1], [2]]
other.close()
inner.close()
print("all as expected")
"""

SUMS = """
import hashlib, sys
import numpy as np
from toolkit import comm, dtypes

group = comm.world()
count, size = int(sys.argv[1]), int(sys.argv[2])
leaves = comm.Leaves.of_rows(count, count)


def leaf(i, dtype):
    draws = np.random.default_rng(100 + i)
    return (draws.standard_normal(size) * 10.0 ** (i % 3)).astype(dtype)


def piece(first, size, dtype):
    if size == 1:
        return leaf(first, dtype)
    half = size // 2
    return piece(first, half, dtype) + piece(first + half, half, dtype)


for name in ("float32", "bfloat16"):
    dtype = dtypes.numpy_dtype(name)
    mine = [piece(*key, dtype) for key in leaves.pieces(group.rank, group.size)]
    out = np.empty(size, dtype)
    comm.all_reduce(group, [mine], leaves, [out])
    hashes = comm.exchange(group, hashlib.sha256(out.tobytes()).hexdigest())
    assert len(set(hashes)) == 1
    if group.rank == 0:
        print(name, hashes[0])
"""


@pytest.mark.parametrize("transport", ["memory", "messages"])
@ranks.for_engines
def test_every_call_of_a_group(tmp_path, engine, transport):
    source = EVERY_CALL
    if transport == "messages":  # as between machines
        if engine == "mpi":
            pytest.skip("MPI selects the transport")
        source = f"import platform\nplatform.machine = lambda: 'other'\n{source}"
    process = ranks.run_ranks(tmp_path, 3, source, engine=engine)
    assert process.code == 0, process.errors
    assert process.out.count("all as expected") == 3


@pytest.mark.parametrize("size", [100, 700_001])
@ranks.for_engines
def test_sums_have_the_same_bits_for_any_number_of_ranks(tmp_path, size, engine):
    results = set()
    for count in (1, 2, 3, 4):
        process = ranks.run_ranks(tmp_path, count, SUMS, "4", str(size), engine=engine)
        assert process.code == 0, process.errors
        results.add(process.out)
    assert len(results) == 1, results
    assert expected_hash(4, size) in results.pop()


def expected_hash(count, size):
    """Return the same sum from one virtual rank."""
    leaves = Leaves.of_rows(count, count)
    terms = [
        (np.random.default_rng(100 + i).standard_normal(size) * 10.0 ** (i % 3)).astype(
            np.float32
        )
        for i in range(4)
    ]
    total = (terms[0] + terms[1]) + (terms[2] + terms[3])
    out = np.empty(size, np.float32)
    all_reduce(local.single(), [[total]], leaves, [out])
    return hashlib.sha256(out.tobytes()).hexdigest()
