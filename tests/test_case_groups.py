"""Tests of the marks `cases` and `one_in`."""

import pytest

SOURCE = """
import fractions
import pytest

class Case(fractions.Fraction):
    name = property(lambda self: f"over-{self.denominator}")

CASES = [Case(n, d) for d in (3, 5) for n in (1, 2, 4, 7)]

@pytest.mark.cases("case", CASES)
def test_all(case, tmp_path):
    assert tmp_path.exists()
    if case == 2:
        pytest.skip("an even number")
    assert case < 1, "too large"

@pytest.mark.cases("case", CASES)
@pytest.mark.one_in(4)
def test_sample(case):
    assert case in CASES
"""


@pytest.fixture
def report_of(tmp_path, capsys):
    """Return a function of options that returns the output of pytest on SOURCE."""
    (tmp_path / "test_it.py").write_text(SOURCE)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = slow\n cases\n one_in\n")

    def run(*options):
        plugins = ("-p", "tests.case_groups", "--import-mode=importlib")
        pytest.main(["-v", f"--rootdir={tmp_path}", *plugins, *options, str(tmp_path)])
        return capsys.readouterr().out

    return run


def test_a_failure_names_each_failed_case(report_of):
    report = report_of("-k", "test_all")
    assert "2 of 4 cases failed:\n  | 4/3\n  | 7/3 (2 sub" in report
    assert "1 of 4 cases failed:\n  | 7/5 (1 sub" in report
    assert report.count("AssertionError: too large") == 3
    assert "2 failed, 4 deselected" in report


def test_one_case_can_be_selected(report_of):
    report = report_of("-k", "test_all", "--case", "7/5")
    assert "1 of 1 cases failed:\n  | 7/5 (1 sub" in report
    assert "1 failed, 1 deselected" in report


def test_cases_that_are_not_selected_are_slow(report_of):
    report = report_of("-k", "test_sample", "-m", "slow")
    assert "test_sample[over-3-remaining] PASSED" in report
    assert "test_sample[over-5-remaining] PASSED" in report
    report = report_of("-k", "test_sample", "-m", "not slow", "--case", "2/5")
    assert "test_sample[over-5] PASSED" in report
    assert "1 passed" in report
