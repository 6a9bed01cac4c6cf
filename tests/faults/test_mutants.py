"""Test corrupt files of each format: equal, a clear error, or unchecked values.

The number of a case is its seed. `python -m tests.faults.guard SEED START STOP FOLDER`
runs a range of cases, and leaves the files of the failures in the folder. A seed such
as `3/safetensors` selects the formats with this text in their names.
"""

import sys

import pytest

from tests.faults.formats import FORMATS
from tests.faults.guard import tally
from tests.faults.worker import order

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def check(seed, count, folder):
    counts, wrong = tally(seed, 0, count, folder)
    assert not wrong, "\n".join(
        f"seed {seed}, case {number}, {form}: {outcome}"
        for number, (form, outcome) in list(wrong.items())[:20]
    )
    assert sum(counts.values()) == count
    assert counts["error"] > count / 3  # the corrupt bytes are read


def test_every_format_has_its_share():
    assert {form.name for form in FORMATS} == set(order())
    assert len(order()) < 400
    assert len(FORMATS) == 52  # as in the guide to saving


@pytest.mark.parametrize("only", ["safetensors", "onnx"])
@pytest.mark.one_in(2)
def test_corrupt_files_of_a_kind(only, tmp_path):
    check(f"1/{only}", 300, tmp_path)


def test_corrupt_files(tmp_path):
    check(15, 600, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_many_corrupt_files(seed, tmp_path):
    check(seed, 10_000, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("only", ["safetensors", "onnx"])
def test_many_corrupt_files_of_a_kind(only, tmp_path):
    check(f"0/{only}", 10_000, tmp_path)
