"""Files made to do harm are refused: no code runs, no other file is read or written."""

import sys

import pytest

from tests.faults.attacks import ATTACKS
from tests.faults.guard import tally

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def test_attacks(tmp_path):
    counts, wrong = tally("attacks", 0, len(ATTACKS), tmp_path)
    assert not wrong, "\n".join(f"{name}: {what}" for name, what in wrong.values())
    assert len(ATTACKS) == 632  # as the guide to saving says
    assert sum(counts.values()) == len(ATTACKS)
    assert counts["error"] > 370
