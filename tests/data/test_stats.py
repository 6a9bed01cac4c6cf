"""Tests of the time statistics of a pass."""

import re
import time

from toolkit.data import AUTOTUNE, Dataset


def test_one_slow_element_does_not_scale():
    dataset = Dataset.range(2000).filter(lambda x: x > 0 or time.sleep(0.1) is None)
    assert sum(1 for _ in dataset) == 2000
    stats = dataset.stats()
    row = stats.rows[-1]
    assert row["elements"] == 2000
    # The other elements take microseconds: the sum is about the time of one element.
    assert 0.1 <= row["busy"] <= stats.elapsed


def test_cheap_elements_are_counted_for_those_around_them():
    def spin(x):
        end = time.perf_counter() + 1e-5
        while time.perf_counter() < end:
            pass
        return True

    dataset = Dataset.range(3000).filter(spin)
    assert sum(1 for _ in dataset) == 3000
    stats = dataset.stats()
    assert 0.02 <= stats.rows[-1]["busy"] <= 1.2 * stats.elapsed


def wait(x):
    time.sleep(0.003)
    return x


def test_stages_of_interleaved_data_sets_come_before_it():
    def source(_):
        return Dataset.range(10).map(wait)

    for calls in (None, 4):
        dataset = Dataset.range(4).interleave(
            source, cycle_length=4, num_parallel_calls=calls
        )
        start = time.perf_counter()
        assert len(list(dataset.batch(8))) == 5
        assert len(list(dataset)) == 40
        stats = dataset.stats()
        seconds = time.perf_counter() - start
        rows = {row["stage"]: row for row in stats.rows}
        names = list(rows)
        assert names.index("range > map") < names.index("interleave")
        assert rows["range > map"]["busy"] >= 40 * 0.003
        assert rows["interleave"]["busy"] < 0.5 * seconds
        assert "The slowest stage is map(wait) in range > map:" in stats.verdict


def test_consumer_of_interleaved_data_does_not_wait_for_ready_elements():
    dataset = Dataset.range(4).interleave(
        lambda _: Dataset.range(10).map(wait), cycle_length=4, num_parallel_calls=4
    )
    for _ in dataset.prefetch(40):
        time.sleep(0.01)
    assert "Data is ready" in dataset.stats().verdict


def test_batch_after_parallel_calls_contains_only_its_own_time():
    dataset = Dataset.range(60).map(wait, num_parallel_calls=2).batch(6)
    assert len(list(dataset)) == 10
    rows = {row["stage"]: row for row in dataset.stats().rows}
    assert rows["batch"]["busy"] < 0.5 * rows["map"]["waited"]


def increment(x):
    return x + 1


def test_the_maps_of_a_fused_stage_are_measured():
    for batches in (False, True):
        dataset = Dataset.range(40).map(increment).map(wait).map(increment)
        dataset = dataset.batch(8) if batches else dataset
        assert len(list(dataset)) == (5 if batches else 40)
        stats = dataset.stats()
        (row,) = stats.rows
        functions = row["functions"]
        names = ["map(increment)", "map(wait)", "map(increment)"]
        assert [function["stage"] for function in functions] == names
        assert [function["elements"] for function in functions] == [40] * 3
        seconds = [function["busy"] for function in functions]
        assert 0.12 <= seconds[1] <= row["busy"] <= seconds[1] + 0.1
        assert max(seconds[0], seconds[2]) < 0.02
        assert "The slowest stage is map(wait) in range > map" in stats.verdict
        assert "num_parallel_calls=AUTOTUNE" in stats.verdict
        assert "\n  map(wait) " in str(stats)


def test_maps_of_a_full_cache_get_no_advice():
    dataset = Dataset.range(40).map(wait, num_parallel_calls=8).cache().batch(4)
    for _ in range(2):
        assert len(list(dataset)) == 10
    stats = dataset.stats()
    assert stats.rows[0]["functions"] == []
    assert "num_parallel_calls" not in stats.verdict


def test_choices_of_threads_have_their_own_rates():
    dataset = Dataset.range(400).map(wait, num_parallel_calls=AUTOTUNE)
    assert len(list(dataset)) == 400
    choices = [choice for row in dataset.stats().rows for choice in row["choices"]]
    assert choices
    number = r"\d+: [\d,]+"
    pattern = rf"threads: \d+ \({number} elements per second(, {number})?\)"
    previous = "16"
    for choice in choices:
        if "buffer" in choice:
            continue
        if "processors in use" not in choice:
            assert re.fullmatch(pattern, choice), choice
            assert f"({previous}: " in choice
        previous = choice.split()[1]
