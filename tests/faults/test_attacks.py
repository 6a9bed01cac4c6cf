"""Files made to do harm are refused: no code runs, no other file is read or written."""

import sys

import pytest

from tests.faults.attacks import ATTACKS
from tests.faults.guard import tally

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


# The attacks of one test that always runs, an eighth of all in these tests together.
MANY = 20


def test_their_number_is_the_one_in_the_guide_to_saving():
    assert len(ATTACKS) == 648


def check(start, stop, folder):
    counts, wrong = tally("attacks", start, stop, folder)
    assert not wrong, "\n".join(f"{name}: {what}" for name, what in wrong.values())
    assert sum(counts.values()) == stop - start
    return counts


@pytest.mark.parametrize("start", range(0, len(ATTACKS), 8 * MANY))
def test_some_attacks(start, tmp_path):
    assert check(start, min(start + MANY, len(ATTACKS)), tmp_path)["error"]


@pytest.mark.slow
def test_attacks(tmp_path):
    assert check(0, len(ATTACKS), tmp_path)["error"] > 370
