"""Test which rows a process reads in a job, and what it sends to its peers."""

import numpy as np
import pytest

from tests.distribution.jobs import run
from toolkit import ops
from toolkit.comm import local
from toolkit.compiler.sharding.layouts import MeshAxis
from toolkit.data import Dataset
from toolkit.functions.local_rows import JobSharing
from toolkit.models.training.sources import make_source


class Job:
    """A job of `ranks` processes at given leaves."""

    auto_shard_dataset = True

    def __init__(self, rank, ranks, leaves=None):
        groups = local.run(ranks, lambda group: group)
        axis = MeshAxis("batch", groups[rank], leaves or ranks, even=False)
        self.rows, self.num_model_replicas = axis.rows, ranks
        self.num_processes = ranks


def share(source, *arguments):
    source.share_batches(JobSharing(Job(*arguments), compares=False))


def rows_of(make, rank, ranks, leaves=None):
    """Return the rows that one process gets of each batch."""
    source = make_source(make())
    share(source, rank, ranks, leaves)
    return list(source.epoch())


class Counted(np.ndarray):
    """An array that records which of its rows are gathered or sliced."""

    read: list

    def take(self, numbers, axis=None):
        self.read.extend(np.asarray(numbers).tolist())
        return np.asarray(self).take(numbers, axis)

    def __getitem__(self, key):
        if isinstance(key, slice) and hasattr(self, "read"):
            self.read.extend(range(*key.indices(len(self))))
        return np.asarray(super().__getitem__(key))

    def __array_finalize__(self, other):
        if hasattr(other, "read"):
            self.read = other.read


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
@pytest.mark.parametrize("samples", [3, 13, 14])
def test_arrays_are_read_once_over_all_ranks(ranks, samples, shuffle):
    x = np.arange(samples * 2, dtype="float32").reshape(samples, 2)
    full_source = make_source(x, x[:, 0], batch_size=4, shuffle=shuffle)
    full_source.restore({"key": [1, 2]})
    expected = [tuple(map(np.asarray, batch)) for batch in full_source.epoch()]
    shards = []
    for rank in range(ranks):
        counted = x.view(Counted)
        counted.read = []
        source = make_source(x, x[:, 0], batch_size=4, shuffle=shuffle)
        source._rows._arrays = counted, x[:, 0].copy()
        source.restore({"key": [1, 2]})
        share(source, rank, ranks)
        counted.read.clear()
        batches_of_rank = list(source.epoch())
        assert [b[0].shape for b in batches_of_rank] == [b[0].shape for b in expected]
        shards.append([np.asarray(batch[0]) for batch in batches_of_rank])
        needed = [value // 2 for shard in shards[-1] for value in shard[:, 0]]
        empty = sum(len(shard) == 0 for shard in shards[-1])
        # A process without a row of a batch reads one row.
        assert len(counted.read) == len(needed) + empty
        assert set(needed) <= set(counted.read)
    for number, (batch, _) in enumerate(expected):
        joined = np.concatenate([shard[number] for shard in shards])
        np.testing.assert_array_equal(joined, batch)


READS = []


def noted(number):
    READS.append(int(number))
    return np.full(3, number, "float32"), np.float32(number)


def mapped(**options):
    return Dataset.range(13).map(noted, **options)


def far(batch):
    return batch  # of full batches: it needs all of their rows


PIPELINES = {
    "map": lambda: mapped().batch(4),
    "shuffled": lambda: mapped().shuffle(None, seed=1).batch(4),
    "parallel": lambda: mapped(num_parallel_calls=2).batch(4).prefetch(2),
    "parallel, shuffled": lambda: (
        mapped(num_parallel_calls=2).shuffle(100, seed=1).batch(4)
    ),
    "prefetched": lambda: mapped(num_parallel_calls=2).prefetch(3).batch(4).take(9),
    "two maps": lambda: mapped(num_parallel_calls=2).map(lambda x, y: (x, y)).batch(4),
    "shard": lambda: mapped(num_parallel_calls=2).shard(2, 1).batch(4),
    "parallel batches": lambda: mapped().batch(4, num_parallel_calls=2),
    "repeated": lambda: mapped().shard(2, 1).batch(4).repeat(2).skip(1),
}
STREAMS = {
    "generator": lambda: Dataset.from_generator(lambda: map(noted, range(13))).batch(4),
    "map of batches": lambda: mapped().batch(4).map(lambda x, y: (x + 0 * y[0], y)),
    "filter": lambda: mapped().filter(lambda x, y: True).batch(4),
    "iterator": lambda: iter(mapped().batch(4)),
    "list": lambda: (batch for batch in list(mapped().batch(4))),
}


def values(batches):
    return [[np.asarray(item) for item in batch] for batch in batches]


@pytest.mark.parametrize("name", [*PIPELINES, *STREAMS])
@pytest.mark.parametrize("ranks", [2, 3, 5])
def test_data_sets_give_each_rank_its_rows(name, ranks):
    make = {**PIPELINES, **STREAMS}[name]
    expected = values(make_source(make()).epoch())
    READS.clear()
    rows_of_ranks = [rows_of(make, rank, ranks) for rank in range(ranks)]
    shapes = [[index.shape for index in batch] for batch in expected]
    assert [[[index.shape for index in b] for b in rows] for rows in rows_of_ranks] == (
        [shapes] * ranks
    )
    rows_of_ranks = list(map(values, rows_of_ranks))
    empty = sum(len(b[0]) == 0 for rows in rows_of_ranks for b in rows)
    for number, batch in enumerate(expected):
        for index, full_item in enumerate(batch):
            joined = np.concatenate([rows[number][index] for rows in rows_of_ranks])
            np.testing.assert_array_equal(joined, full_item)
    total = sum(len(batch[0]) for batch in expected)
    if name == "repeated":  # its first batch is read and skipped
        assert len(READS) <= total + 4 + empty + 2 * ranks
    elif name in PIPELINES:  # each rank checks once whether the function draws
        assert len(READS) == total + empty + ranks
    else:
        assert len(READS) == ranks * 13


@pytest.mark.parametrize("name", PIPELINES)
def test_position_is_independent_of_the_number_of_ranks(name):
    make = PIPELINES[name]

    def source(rank, ranks):
        array_source = make_source(make())
        share(array_source, rank, ranks, 6)
        return array_source

    rests = []
    saved = source(0, 3)
    batches = saved.epoch()
    next(batches)
    state = saved.state(within=True)
    for ranks in (3, 2, 1):
        shards = []
        for rank in range(ranks):
            resumed = source(rank, ranks)
            resumed.restore(state)
            shards.append(values(resumed.epoch()))
        full_batches = [
            np.concatenate([p[0] for p in pieces])
            for pieces in zip(*shards, strict=True)
        ]
        rests.append(np.concatenate(full_batches))
    assert len(rests[0])
    np.testing.assert_array_equal(rests[0], rests[1])
    np.testing.assert_array_equal(rests[0], rests[2])


SHARDED = {
    "rows": lambda: mapped().shard(3, 1),
    "parallel map": lambda: mapped(num_parallel_calls=2).shard(3, 1),
    "two maps": lambda: mapped(num_parallel_calls=2).map(lambda *x: x).shard(3, 1),
    "prefix": lambda: mapped(num_parallel_calls=2).skip(1).shard(3, 0),
    "shuffled": lambda: mapped(num_parallel_calls=2).shuffle(99, seed=1).shard(3, 1),
    "batches": lambda: mapped().batch(1).shard(3, 1),
    "processes": lambda: (
        Dataset.range(13).map(abs, num_parallel_calls=2, workers="process").shard(3, 1)
    ),
}


@pytest.mark.parametrize("name", SHARDED)
def test_shard_reads_only_its_elements(name):
    READS.clear()
    elements = list(SHARDED[name]())
    assert len(elements) == 4
    if name == "processes":
        assert elements == [1, 4, 7, 10]
        return
    numbers = sorted(int(np.ravel(y)[0]) for _, y in elements)
    assert sorted(READS) == numbers
    assert name == "shuffled" or numbers == [1, 4, 7, 10]
    iterator = iter(SHARDED[name]())
    next(iterator), next(iterator)
    resumed = iter(SHARDED[name]())
    resumed.set_state(iterator.get_state())
    np.testing.assert_equal(list(resumed), elements[2:])


def test_class_weights_of_a_shard():
    batches = Dataset.from_tensor_slices((np.ones((5, 2)), np.arange(5))).batch(5)
    source = make_source(batches, class_weight={4: 7.0})
    share(source, 1, 2)
    ((x, y, weights),) = source.epoch()
    assert weights.shape == y.shape == (5,) and x.shape == (5, 2)
    assert np.asarray(weights).tolist() == [1, 1, 7]


def test_tensor_of_another_extent_is_not_split():
    def batches():
        yield ops.ones((6, 2)), ops.ones((4,))

    ((x, y),) = rows_of(batches, 0, 2)
    assert np.asarray(x).shape == (3, 2) and np.asarray(y).shape == (4,)


@pytest.mark.slow
def test_ranks_of_one_replica_read_the_same_rows(tmp_path):
    text = """
    mesh = distribution.DeviceMesh((2, 2), ["batch", "model"])
    layouts = distribution.LayoutMap(mesh)
    layouts[".*dense/kernel"] = (None, "model")
    parallel = distribution.ModelParallel(layout_map=layouts)
    distribution.set_distribution(parallel)
    read = []

    def row(number):
        read.append(int(number))
        return np.full(6, number, "float32"), np.ones(1, "float32")

    model = network()
    model.fit(tk.data.Dataset.range(10).map(row).batch(4), verbose=0)
    tell([parallel.data_shard_id, read, digest(*model.get_weights())])
    """
    reports = run(tmp_path, 4, text)
    assert [number for number, _, _ in reports] == [0, 0, 1, 1]
    assert [r[1:] for _, r, _ in reports] == [[0, 1, 4, 5, 8]] * 2 + [
        [2, 3, 6, 7, 9]
    ] * 2
    assert len({weights for _, _, weights in reports}) == 1


@pytest.mark.parametrize("processes", [2, 4])
@pytest.mark.one_in(2)
def test_all_kinds_of_data_train_to_equal_bits(tmp_path, processes):
    text = """
    distribution.set_distribution(distribution.DataParallel(shards=4))
    x = np.random.default_rng(0).random((41, 6), "float32")
    y = x[:, :1]
    read = []

    def row(number):
        read.append(int(number))
        return x[number], y[number]

    def generated():
        for start in range(0, 41, 8):
            yield x[start : start + 8], y[start : start + 8]

    rows = tk.data.Dataset.range(41).map(row, num_parallel_calls=2).batch(8)
    found = []
    for make in (lambda: (x, y), lambda: (rows,), lambda: (generated(),)):
        model = network()
        options = dict(batch_size=8, shuffle=False) if len(make()) == 2 else {}
        model.fit(*make(), epochs=1, verbose=0, **options)
        loss = model.evaluate(*make(), verbose=0)
        predicted = model.predict(x[:3], batch_size=2, verbose=0)
        found.append([state_of(model), loss, digest(predicted)])
    tell([found, len(read)])
    """
    reports = run(tmp_path, processes, text)
    results = [result for ranks, _ in reports for result in ranks]
    assert len(results) == 3 * processes and all(r == results[0] for r in results)
    # The 41 rows are read twice; all other ranks read the one row of the last batch.
    looks = 2 * processes  # whether functions of two data sets draw
    assert sum(count for _, count in reports) == 82 + 2 * (processes - 1) + looks
    (single,) = run(tmp_path, 1, text)
    assert single[0][0] == results[0] and single[1] == 82
