"""Tests of the time statistics of a pass."""

import time

from toolkit.data import Dataset


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
