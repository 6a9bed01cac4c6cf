"""Test that malicious files are refused: no code runs, no other file is accessed."""

import sys

import pytest

from tests.faults.attacks import ATTACKS
from tests.faults.guard import tally

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


# The attacks of one test that always runs; these tests cover an eighth of all attacks.
MANY = 20


def test_number_of_attacks_equals_the_guide_to_saving():
    assert len(ATTACKS) == 648


def check(start, stop, folder):
    counts, wrong = tally("attacks", start, stop, folder)
    assert not wrong, "\n".join(
        f"{name}: {outcome}" for name, outcome in wrong.values()
    )
    assert sum(counts.values()) == stop - start
    return counts


@pytest.mark.parametrize("start", range(0, len(ATTACKS), 8 * MANY))
def test_some_attacks(start, tmp_path):
    assert check(start, min(start + MANY, len(ATTACKS)), tmp_path)["error"]


@pytest.mark.slow
def test_attacks(tmp_path):
    assert check(0, len(ATTACKS), tmp_path)["error"] > 370
