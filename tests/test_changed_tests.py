"""The tests that `scripts/test quick` selects, and its time budget."""

import subprocess
import sys
from pathlib import Path
from runpy import run_path

import pytest

ROOT = Path(__file__).resolve().parents[1]
select = run_path(str(ROOT / "scripts" / "changed_tests"))["tests_of"]

FILES = {
    "toolkit/shapes/area.py": "def area_of_circle(r): ...\n",
    "tests/test_import.py": "",
    "tests/shapes/test_area.py": "",
    "tests/shapes/test_other.py": "",
    "tests/shapes/test_public.py": "import toolkit\ntoolkit.shapes.area_of_circle(1)\n",
    "tests/ops/test_sums.py": "from toolkit.shapes import area\n",
    "tests/ops/test_unrelated.py": "",
}


@pytest.fixture
def tree(tmp_path):
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def test_direct_tests_are_first(tree):
    assert select(["toolkit/shapes/area.py"], tree) == [
        "tests/test_import.py",
        "tests/shapes/test_area.py",
        "tests/ops/test_sums.py",
        "tests/shapes/test_public.py",
        "tests/shapes/test_other.py",
    ]


def test_changed_tests_are_selected(tree):
    selected = select(["tests/ops/test_unrelated.py", "README.md"], tree)
    assert selected == ["tests/ops/test_unrelated.py", "tests/test_import.py"]


def test_deleted_modules_select_their_importers(tree):
    (tree / "toolkit/shapes/area.py").unlink()
    assert "tests/ops/test_sums.py" in select(["toolkit/shapes/area.py"], tree)


@pytest.mark.parametrize(("arguments", "expected"), [([], 1), (["tests/bench"], 0)])
def test_a_complete_run_first_prints_its_duration(arguments, expected):
    command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "--ignore-glob=*"]
    result = subprocess.run(
        [*command, *arguments], cwd=ROOT, capture_output=True, text=True
    )
    assert result.stdout.count("all tests: about 10 minutes") == expected, result.stdout
    if expected:
        assert result.stdout.startswith("all tests")


@pytest.mark.parametrize(("budget", "passed"), [("60", 3), ("0", 0)])
def test_tests_after_the_time_budget_are_reported(tmp_path, budget, passed):
    (tmp_path / "test_a.py").write_text(
        "import pytest\n\n@pytest.mark.parametrize('i', range(3))\ndef test(i): ...\n"
    )
    command = [sys.executable, "-m", "pytest", "-p", "tests.time_budget", "-n", "0"]
    command += ["-c", "/dev/null", "--time-budget", budget, str(tmp_path)]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert (f"{passed} passed" in result.stdout) == bool(passed)
    assert ("3 tests were not run" in result.stdout) == (not passed)
