"""Tests of caches: filled once, by complete passes only, and read from any position."""

import json
import re
import shutil

import numpy as np
import pytest

from toolkit.data import Dataset, TensorSpec, caching
from toolkit.errors import ArgumentError, DatasetError, UnsupportedError


def filtered(count=5):
    """Return elements without random access, and the list of those produced so far."""
    produced = []
    return Dataset.range(count).filter(
        lambda x: produced.append(int(x)) or True
    ), produced


WHERE = ["memory", "file", "snapshot"]


def with_cache(dataset, where, tmp_path):
    if where == "snapshot":
        return dataset.snapshot(tmp_path / "snapshots")
    return dataset.cache(tmp_path / "cache" if where == "file" else "")


def ints(elements):
    return [int(x) for x in elements]


def take(iterator, count):
    return [int(next(iterator)) for _ in range(count)]


def resume(dataset, iterator):
    """Return an iterator that continues at the position of another one."""
    resumed = iter(dataset)
    resumed.set_state(json.loads(json.dumps(iterator.get_state())))
    return resumed


# --- one pass -------------------------------------------------------------------------


@pytest.mark.parametrize("where", WHERE)
def test_elements_are_produced_once(tmp_path, where):
    dataset, produced = filtered()
    cached = with_cache(dataset, where, tmp_path)
    for _ in range(3):
        assert ints(cached) == [0, 1, 2, 3, 4]
    assert produced == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("where", WHERE)
def test_repetitions_in_one_pass_are_produced_once(tmp_path, where):
    dataset, produced = filtered(3)
    cached = with_cache(dataset, where, tmp_path).repeat(3)
    assert ints(cached) == [0, 1, 2] * 3
    assert produced == [0, 1, 2]


@pytest.mark.parametrize("where", WHERE)
def test_incomplete_pass_fills_no_cache(tmp_path, where):
    dataset, produced = filtered()
    cached = with_cache(dataset, where, tmp_path)
    iterator = iter(cached)
    assert take(iterator, 2) == [0, 1]
    iterator.close()
    del produced[:]
    assert ints(cached) == [0, 1, 2, 3, 4]
    assert produced == [0, 1, 2, 3, 4]
    assert ints(cached) == produced and cached.cardinality() == 5


@pytest.mark.parametrize("path", ["", "cache"])
def test_indexed_elements_are_produced_on_demand(tmp_path, path):
    produced = []
    dataset = Dataset.range(5).map(lambda x: produced.append(int(x)) or x * x)
    cached = dataset.cache(tmp_path / path if path else "")
    prefix = cached.take(2)
    assert ints(prefix) == ints(prefix) == [0, 1]
    if not path:  # one by one; a file is written by complete passes
        assert produced == [0, 1]
    assert ints(cached) == ints(cached) == [0, 1, 4, 9, 16]
    if not path:
        assert produced == [0, 1, 2, 3, 4]


def test_arrays_in_memory_are_not_cached():
    arrays = Dataset.from_tensor_slices(np.arange(4)).cache()
    numbers = Dataset.range(4).cache()
    for cached in (arrays, numbers):
        assert ints(cached) == [0, 1, 2, 3]
        assert not cached._values and cached._cached is None


def test_first_order_is_cached():
    shuffled = Dataset.range(20).shuffle(20, seed=3).filter(lambda x: True).cache()
    first_pass = ints(shuffled)
    assert ints(shuffled) == first_pass != list(range(20))
    assert sorted(first_pass) == list(range(20))
    mapped = Dataset.range(20).shuffle(20, seed=3).map(lambda x: x).cache()
    assert ints(mapped) == ints(mapped)


@pytest.mark.parametrize("stage", ["map", "filter"])
def test_order_of_an_incomplete_first_pass_is_kept(stage):
    shuffled = Dataset.range(20).shuffle(20, seed=3)
    expected = ints(shuffled)
    same_order = Dataset.range(20).shuffle(20, seed=3)
    same_order = (
        same_order.map(lambda x: x)
        if stage == "map"
        else same_order.filter(lambda x: True)
    )
    cached = same_order.cache()
    iterator = iter(cached)
    assert take(iterator, 2) == expected[:2]
    iterator.close()
    assert ints(cached) == expected


def test_a_file_is_opened_once(tmp_path):
    dataset, produced = filtered()
    cached = dataset.cache(tmp_path / "cache")
    for _ in range(2):
        assert ints(cached) == [0, 1, 2, 3, 4]
    shutil.rmtree(tmp_path)
    assert ints(cached) == produced == [0, 1, 2, 3, 4]


def test_cache_file_serves_later_programs(tmp_path):
    dataset, produced = filtered()
    path = tmp_path / "cache"
    assert ints(dataset.cache(path)) == [0, 1, 2, 3, 4]
    later_program = dataset.cache(path)
    assert later_program.cardinality() < 0  # not opened yet
    assert ints(later_program) == [0, 1, 2, 3, 4]
    assert later_program.cardinality() == 5
    assert len(produced) == 5
    assert len(list(tmp_path.iterdir())) == 1
    with pytest.raises(
        DatasetError, match="expected elements of.*To create the file again, delete"
    ):
        ints(Dataset.range(5).filter(lambda x: x > 2).cache(path))


def test_shuffled_reads_use_cached_elements():
    produced = []
    cached = Dataset.range(6).map(lambda x: produced.append(int(x)) or 2 * x).cache()
    batches = cached.shuffle(6, seed=1).batch(3)
    for _ in range(2):
        actual = np.concatenate([np.asarray(b) for b in batches])
        assert sorted(actual.tolist()) == [0, 2, 4, 6, 8, 10]
    assert sorted(produced) == [0, 1, 2, 3, 4, 5]


# --- positions ------------------------------------------------------------------------


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("count", [0, 1, 3, 5])
def test_pass_resumes_at_its_position(tmp_path, where, count):
    dataset, _ = filtered()
    cached = with_cache(dataset, where, tmp_path)
    iterator = iter(cached)
    expected = [0, 1, 2, 3, 4]
    assert take(iterator, count) == expected[:count]
    resumed = resume(cached, iterator)
    assert ints(resume(cached, resumed)) == expected[count:]
    assert ints(resumed) == expected[count:]
    assert ints(iterator) == expected[count:]


@pytest.mark.parametrize("where", WHERE)
def test_position_stays_valid_when_the_cache_is_full(tmp_path, where):
    dataset, produced = filtered()
    cached = with_cache(dataset, where, tmp_path)
    iterator = iter(cached)
    assert take(iterator, 2) == [0, 1]
    resumed = resume(cached, iterator)
    assert take(resumed, 1) == [2]
    second_pass = iter(cached)
    second_pass.set_state(resumed.get_state())
    assert ints(iterator) == [2, 3, 4]  # now it is full
    del produced[:]
    assert ints(resume(cached, resumed)) == [3, 4]
    assert ints(second_pass) == [3, 4]
    assert produced == []


@pytest.mark.parametrize("where", WHERE)
def test_position_in_the_cache_needs_no_parent(tmp_path, where):
    dataset, produced = filtered(3)
    cached = with_cache(dataset, where, tmp_path).repeat(3)
    iterator = iter(cached)
    assert take(iterator, 5) == [0, 1, 2, 0, 1]
    resumed = resume(cached, iterator)
    assert take(resumed, 2) == [2, 0]
    assert ints(resume(cached, resumed)) == [1, 2]
    assert ints(resumed) == [1, 2]
    assert produced == [0, 1, 2]


def test_resume_produces_no_earlier_element():
    dataset, produced = filtered()
    cached = dataset.cache()
    iterator = iter(cached)
    take(iterator, 3)
    del produced[:]
    assert ints(resume(cached, iterator)) == [3, 4] == produced


def test_pass_from_the_first_element_is_cached():
    dataset, produced = filtered()
    cached = dataset.cache()
    assert ints(resume(cached, iter(cached))) == ints(cached) == [0, 1, 2, 3, 4]
    assert produced == [0, 1, 2, 3, 4]


def test_a_position_in_a_later_repetition_fills_an_empty_cache():
    full, empty = (filtered()[0].cache().repeat(2) for _ in range(2))
    iterator = iter(full)
    take(iterator, 7)
    resumed = iter(empty)
    resumed.set_state(iterator.get_state())
    assert ints(resumed) == [2, 3, 4]


def test_restored_position_does_not_change_the_stages():
    dataset = Dataset.range(9).shuffle(9).filter(lambda x: True)
    before = dataset.fingerprint()
    iterator = iter(dataset)
    take(iterator, 2)
    resume(dataset, iterator)
    assert dataset.fingerprint() == before


def test_a_position_of_a_full_cache_fills_an_empty_one():
    dataset, _ = filtered()
    full, empty = dataset.cache(), dataset.cache()
    ints(full)
    iterator = iter(full)
    assert take(iterator, 2) == [0, 1]
    state = iterator.get_state()
    resumed = iter(empty)
    resumed.set_state(state)
    assert ints(resumed) == [2, 3, 4]
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
    progress_bars = []

    class ProgressBar:
        def __init__(self, label):
            self.label, self.stages, self.events = label, [], []
            progress_bars.append(self)

        def begin(self):
            self.events.append("begin")

        def end(self):
            self.events.append("end")

    monkeypatch.setattr(caching, "Work", ProgressBar)
    dataset = Dataset.range(3).filter(lambda x: True)
    dataset = dataset if count is None else Dataset.range(count).map(lambda x: x)
    iterator = iter(dataset.cache(tmp_path / "cache"))
    expected = 0 if count == 0 else 2
    take(iterator, expected)
    if expected:
        (stage,) = progress_bars[0].stages
        assert progress_bars[0].events == ["begin"] and stage.count == 2
    ints(iterator)
    (progress,) = progress_bars
    (stage,) = progress.stages
    assert progress.label == f"caching in {tmp_path / 'cache'}"
    assert (stage.count, stage.total) == (3 if count != 0 else 0, total or count)
    assert progress.events == ["begin", "end"]
    iterator.close()
    assert progress.events == ["begin", "end"]


@pytest.mark.parametrize("count, total", [(3, 3), (0, None), (None, None)])
def test_bar_shows_the_saved_amount(tmp_path, monkeypatch, count, total):
    shown, real = [], caching.stage

    def stage(name, total=None):
        shown.append(total)
        created = real(name, total)
        return created

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
    with_spec = Dataset.load(tmp_path / "new" / "folder", element_spec=spec)
    assert with_spec.element_spec is spec
    with pytest.raises(ArgumentError, match="'SNAPPY'"):
        Dataset.load(tmp_path / "new" / "folder", compression="SNAPPY")


def test_failed_save_leaves_no_file(tmp_path):
    def fail_at_odd(x):
        if x == 2:
            raise OSError("no")
        return x

    with pytest.raises(OSError, match="no"):
        Dataset.range(4).map(fail_at_odd).save(tmp_path / "saved")
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
    with pytest.raises(
        UnsupportedError, match=f"{stage}: .*is not supported: all elem"
    ):
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
