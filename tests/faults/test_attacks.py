"""Files made to do harm are refused: no code runs, no other file is read or written."""

import sys

import pytest

from tests.faults.attacks import ATTACKS
from tests.faults.guard import tally

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


# The attacks of one test, so few that tests that always run have some of each kind.
MANY = 20


def test_their_number_is_the_one_in_the_guide_to_saving():
    assert len(ATTACKS) == 632


@pytest.mark.parametrize("start", range(0, len(ATTACKS), MANY))
@pytest.mark.one_in(4)
def test_attacks(start, tmp_path):
    stop = min(start + MANY, len(ATTACKS))
    counts, wrong = tally("attacks", start, stop, tmp_path)
    assert not wrong, "\n".join(f"{name}: {what}" for name, what in wrong.values())
    assert sum(counts.values()) == stop - start
    assert counts["error"]
