"""Test that a huge number in a config does not make loading slow or large."""

import sys

import pytest

from tests.faults.guard import tally
from tests.faults.huge_numbers import samples

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

MANY = 12  # samples of one test
COUNT = len(samples())


def check(seed, start, stop, folder):
    counts, wrong = tally(f"numbers {seed}", start, stop, folder)
    assert not wrong, "\n".join(
        f"{name}: {outcome}" for name, outcome in wrong.values()
    )
    assert sum(counts.values()) == stop - start


@pytest.mark.parametrize("start", range(0, COUNT, MANY))
@pytest.mark.one_in(6)
def test_huge_numbers(start, tmp_path):
    check(1, start, min(start + MANY, COUNT), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 7))
def test_more_huge_numbers(seed, tmp_path):
    check(seed, 0, COUNT, tmp_path)
