"""Damaged files of each format: what was saved, a clear error, or values unchecked.

Each case is seeded by its number: `python -m tests.faults.guard SEED START STOP FOLDER`
runs some of them by hand, and leaves the files of those that are wrong in the folder.
A seed `3/safetensors` is for the formats with this in their names.
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
        f"seed {seed}, case {number}, {form}: {what}"
        for number, (form, what) in list(wrong.items())[:20]
    )
    assert sum(counts.values()) == count
    assert counts["error"] > count / 3  # the damage does reach what is read


def test_each_format_has_its_share():
    assert {form.name for form in FORMATS} == set(order())
    assert len(order()) < 400
    assert len(FORMATS) == 52  # as the guide to saving says


@pytest.mark.parametrize("only", ["safetensors", "onnx"])
@pytest.mark.one_in(2)
def test_damaged_files_of_a_kind(only, tmp_path):
    check(f"1/{only}", 300, tmp_path)


def test_damaged_files(tmp_path):
    check(15, 600, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_many_damaged_files(seed, tmp_path):
    check(seed, 10_000, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("only", ["safetensors", "onnx"])
@pytest.mark.parametrize("seed", range(10))
def test_many_damaged_files_of_a_kind(seed, only, tmp_path):
    check(f"{seed}/{only}", 10_000, tmp_path)
