"""Tests of caches: filled once, by complete passes only, and read from any position."""

import json
import re

import numpy as np
import pytest

from toolkit.data import Dataset, TensorSpec, caching
from toolkit.errors import ArgumentError, DatasetError, UnsupportedError


def filtered(count=5):
    """Return elements without random access, and the list of those produced so far."""
    made = []
    return Dataset.range(count).filter(lambda x: made.append(int(x)) or True), made


WHERE = ["memory", "file", "snapshot"]


def keep(dataset, where, tmp_path):
    if where == "snapshot":
        return dataset.snapshot(tmp_path / "snapshots")
    return dataset.cache(tmp_path / "cache" if where == "file" else "")


def ints(elements):
    return [int(x) for x in elements]


def taken(iterator, count):
    return [int(next(iterator)) for _ in range(count)]


def again(dataset, iterator):
    """Return an iterator that continues at the position of another one."""
    found = iter(dataset)
    found.set_state(json.loads(json.dumps(iterator.get_state())))
    return found


# --- one pass -------------------------------------------------------------------------


@pytest.mark.parametrize("where", WHERE)
def test_elements_are_produced_once(tmp_path, where):
    dataset, made = filtered()
    cached = keep(dataset, where, tmp_path)
    for _ in range(3):
        assert ints(cached) == [0, 1, 2, 3, 4]
    assert made == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("where", WHERE)
def test_repetitions_in_one_pass_are_produced_once(tmp_path, where):
    dataset, made = filtered(3)
    cached = keep(dataset, where, tmp_path).repeat(3)
    assert ints(cached) == [0, 1, 2] * 3
    assert made == [0, 1, 2]


@pytest.mark.parametrize("where", WHERE)
def test_incomplete_pass_fills_no_cache(tmp_path, where):
    dataset, made = filtered()
    cached = keep(dataset, where, tmp_path)
    half = iter(cached)
    assert taken(half, 2) == [0, 1]
    half.close()
    del made[:]
    assert ints(cached) == [0, 1, 2, 3, 4]
    assert made == [0, 1, 2, 3, 4]
    assert ints(cached) == made and cached.cardinality() == 5


@pytest.mark.parametrize("path", ["", "cache"])
def test_indexed_elements_are_produced_on_demand(tmp_path, path):
    made = []
    dataset = Dataset.range(5).map(lambda x: made.append(int(x)) or x * x)
    cached = dataset.cache(tmp_path / path if path else "")
    first = cached.take(2)
    assert ints(first) == ints(first) == [0, 1]
    if not path:  # one by one; a file is written by complete passes
        assert made == [0, 1]
    assert ints(cached) == ints(cached) == [0, 1, 4, 9, 16]
    if not path:
        assert made == [0, 1, 2, 3, 4]


def test_arrays_in_memory_are_not_cached():
    arrays = Dataset.from_tensor_slices(np.arange(4)).cache()
    numbers = Dataset.range(4).cache()
    for cached in (arrays, numbers):
        assert ints(cached) == [0, 1, 2, 3]
        assert not cached._values and cached._cached is None


def test_first_order_is_cached():
    shuffled = Dataset.range(20).shuffle(20, seed=3).filter(lambda x: True).cache()
    first = ints(shuffled)
    assert ints(shuffled) == first != list(range(20))
    assert sorted(first) == list(range(20))
    mapped = Dataset.range(20).shuffle(20, seed=3).map(lambda x: x).cache()
    assert ints(mapped) == ints(mapped)


@pytest.mark.parametrize("stage", ["map", "filter"])
def test_order_of_an_incomplete_first_pass_is_kept(stage):
    shuffled = Dataset.range(20).shuffle(20, seed=3)
    expected = ints(shuffled)
    again = Dataset.range(20).shuffle(20, seed=3)
    again = again.map(lambda x: x) if stage == "map" else again.filter(lambda x: True)
    cached = again.cache()
    half = iter(cached)
    assert taken(half, 2) == expected[:2]
    half.close()
    assert ints(cached) == expected


def test_a_file_is_opened_once(tmp_path, monkeypatch):
    opened, real = [], caching.StoredRows

    def counted(path):
        opened.append(path)
        return real(path)

    monkeypatch.setattr(caching, "StoredRows", counted)
    dataset, _ = filtered()
    cached = dataset.cache(tmp_path / "cache")
    for _ in range(3):
        assert ints(cached) == [0, 1, 2, 3, 4]
    assert len(opened) == 1


def test_cache_file_serves_later_programs(tmp_path):
    dataset, made = filtered()
    path = tmp_path / "cache"
    assert ints(dataset.cache(path)) == [0, 1, 2, 3, 4]
    other = dataset.cache(path)
    assert other.cardinality() < 0  # not opened yet
    assert ints(other) == [0, 1, 2, 3, 4]
    assert other.cardinality() == 5
    assert len(made) == 5
    assert len(list(tmp_path.iterdir())) == 1
    with pytest.raises(DatasetError, match="expected elements of.*delete it to begin"):
        ints(Dataset.range(5).filter(lambda x: x > 2).cache(path))


def test_shuffled_reads_use_cached_elements():
    made = []
    cached = Dataset.range(6).map(lambda x: made.append(int(x)) or 2 * x).cache()
    batches = cached.shuffle(6, seed=1).batch(3)
    for _ in range(2):
        found = np.concatenate([np.asarray(b) for b in batches])
        assert sorted(found.tolist()) == [0, 2, 4, 6, 8, 10]
    assert sorted(made) == [0, 1, 2, 3, 4, 5]


# --- positions ------------------------------------------------------------------------


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("count", [0, 1, 3, 5])
def test_pass_resumes_at_its_position(tmp_path, where, count):
    dataset, _ = filtered()
    cached = keep(dataset, where, tmp_path)
    iterator = iter(cached)
    expected = [0, 1, 2, 3, 4]
    assert taken(iterator, count) == expected[:count]
    later = again(cached, iterator)
    assert ints(again(cached, later)) == expected[count:]
    assert ints(later) == expected[count:]
    assert ints(iterator) == expected[count:]


@pytest.mark.parametrize("where", WHERE)
def test_position_stays_valid_when_the_cache_is_full(tmp_path, where):
    dataset, made = filtered()
    cached = keep(dataset, where, tmp_path)
    iterator = iter(cached)
    assert taken(iterator, 2) == [0, 1]
    beside = again(cached, iterator)
    assert taken(beside, 1) == [2]
    later = iter(cached)
    later.set_state(beside.get_state())
    assert ints(iterator) == [2, 3, 4]  # now it is full
    del made[:]
    assert ints(again(cached, beside)) == [3, 4]
    assert ints(later) == [3, 4]
    assert made == []


@pytest.mark.parametrize("where", WHERE)
def test_position_in_the_cache_needs_no_parent(tmp_path, where):
    dataset, made = filtered(3)
    cached = keep(dataset, where, tmp_path).repeat(3)
    iterator = iter(cached)
    assert taken(iterator, 5) == [0, 1, 2, 0, 1]
    first = again(cached, iterator)
    assert taken(first, 2) == [2, 0]
    assert ints(again(cached, first)) == [1, 2]
    assert ints(first) == [1, 2]
    assert made == [0, 1, 2]


def test_resume_produces_no_earlier_element():
    dataset, made = filtered()
    cached = dataset.cache()
    iterator = iter(cached)
    taken(iterator, 3)
    del made[:]
    assert ints(again(cached, iterator)) == [3, 4] == made


def test_pass_from_the_first_element_is_cached():
    dataset, made = filtered()
    cached = dataset.cache()
    assert ints(again(cached, iter(cached))) == ints(cached) == [0, 1, 2, 3, 4]
    assert made == [0, 1, 2, 3, 4]


def test_a_position_in_a_later_repetition_fills_an_empty_cache():
    first, second = (filtered()[0].cache().repeat(2) for _ in range(2))
    iterator = iter(first)
    taken(iterator, 7)
    later = iter(second)
    later.set_state(iterator.get_state())
    assert ints(later) == [2, 3, 4]


def test_restored_position_does_not_change_the_stages():
    dataset = Dataset.range(9).shuffle(9).filter(lambda x: True)
    before = dataset.fingerprint()
    iterator = iter(dataset)
    taken(iterator, 2)
    again(dataset, iterator)
    assert dataset.fingerprint() == before


def test_a_position_of_a_full_cache_fills_an_empty_one():
    dataset, _ = filtered()
    full, empty = dataset.cache(), dataset.cache()
    ints(full)
    iterator = iter(full)
    assert taken(iterator, 2) == [0, 1]
    state = iterator.get_state()
    later = iter(empty)
    later.set_state(state)
    assert ints(later) == [2, 3, 4]
    assert empty.cardinality() == 5


# --- status and progress --------------------------------------------------------------


def test_cache_describes_itself(tmp_path):
    dataset, _ = filtered()
    path = tmp_path / "here"
    assert dataset.cache()._detail() == "in memory"
    assert dataset.cache(path)._detail() == str(path)
    spec = Dataset.range(3).cache().element_spec
    assert spec == Dataset.range(3).element_spec
    assert Dataset.range(3).cache().cardinality() == 3
    assert dataset.cache().cardinality() == dataset.cardinality()


@pytest.mark.parametrize("count, total", [(3, 3), (0, None), (None, None)])
def test_bar_shows_the_cached_amount(tmp_path, monkeypatch, count, total):
    bars = []

    class Bar:
        def __init__(self, label):
            self.label, self.stages, self.life = label, [], []
            bars.append(self)

        def begin(self):
            self.life.append("begin")

        def end(self):
            self.life.append("end")

    monkeypatch.setattr(caching, "Work", Bar)
    dataset = Dataset.range(3).filter(lambda x: True)
    dataset = dataset if count is None else Dataset.range(count).map(lambda x: x)
    iterator = iter(dataset.cache(tmp_path / "cache"))
    wanted = 0 if count == 0 else 2
    taken(iterator, wanted)
    if wanted:
        (stage,) = bars[0].stages
        assert bars[0].life == ["begin"] and stage.count == 2
    ints(iterator)
    (bar,) = bars
    (stage,) = bar.stages
    assert bar.label == f"caching in {tmp_path / 'cache'}"
    assert (stage.count, stage.total) == (3 if count != 0 else 0, total or count)
    assert bar.life == ["begin", "end"]
    iterator.close()
    assert bar.life == ["begin", "end"]


@pytest.mark.parametrize("count, total", [(3, 3), (0, None), (None, None)])
def test_bar_shows_the_saved_amount(tmp_path, monkeypatch, count, total):
    shown, real = [], caching.stage

    def stage(name, total=None):
        shown.append(total)
        made = real(name, total)
        return made

    monkeypatch.setattr(caching, "stage", stage)
    dataset = Dataset.range(3).filter(lambda x: True)
    (dataset if count is None else Dataset.range(count)).save(tmp_path)
    assert shown == [total]


# --- save and load --------------------------------------------------------------------


def test_load_returns_the_saved_elements(tmp_path):
    dataset, _ = filtered()
    dataset.save(tmp_path / "new" / "folder")
    loaded = Dataset.load(tmp_path / "new" / "folder")
    assert loaded.cardinality() == 5
    assert ints(loaded) == ints(loaded) == [0, 1, 2, 3, 4]
    assert loaded.element_spec.dtype == Dataset.range(1).element_spec.dtype
    spec = TensorSpec((), "int32")
    given = Dataset.load(tmp_path / "new" / "folder", element_spec=spec)
    assert given.element_spec is spec
    with pytest.raises(ArgumentError, match="'SNAPPY'"):
        Dataset.load(tmp_path / "new" / "folder", compression="SNAPPY")


def test_failed_save_leaves_no_file(tmp_path):
    def odd(x):
        if x == 2:
            raise OSError("no")
        return x

    with pytest.raises(OSError, match="no"):
        Dataset.range(4).map(odd).save(tmp_path / "saved")
    assert not [p for p in (tmp_path / "saved").glob("*") if p.is_file()]


REFUSED = {
    "save, shards": lambda d, p: d.save(p, shard_func=len),
    "save, points": lambda d, p: d.save(p, checkpoint_args={"a": 1}),
    "snapshot, reader": lambda d, p: d.snapshot(p, reader_func=len),
    "snapshot, shards": lambda d, p: d.snapshot(p, shard_func=len),
    "load, reader": lambda d, p: Dataset.load(p, reader_func=len),
    "load, waiting": lambda d, p: Dataset.load(p, wait=True),
}


@pytest.mark.parametrize("case", REFUSED)
def test_unsupported_save_options_are_refused(tmp_path, case):
    stage = case.split(",")[0]
    with pytest.raises(UnsupportedError, match=f"{stage}: .*is not supported: elem"):
        REFUSED[case](Dataset.range(3), tmp_path)


def test_snapshots_are_packed_and_named_after_their_stages(tmp_path):
    zeros = Dataset.from_items([np.zeros(5000)] * 3).map(lambda x: x, name="a/b: c?")
    sizes = {}
    for compression in ("GZIP", None, "AUTO"):
        folder = tmp_path / str(compression)
        assert len(list(zeros.snapshot(folder, compression))) == 3
        (file,) = folder.iterdir()
        assert re.fullmatch(r"map--a-b--c---[0-9a-f]{16}\.data", file.name)
        sizes[compression] = file.stat().st_size
    assert sizes["GZIP"] < sizes[None] / 50
    assert sizes["AUTO"] == sizes[None]


def test_spec_of_stored_batches_covers_the_last(tmp_path):
    Dataset.range(10).batch(3).save(tmp_path / "saved")
    assert Dataset.load(tmp_path / "saved").element_spec.shape == (None,)
