"""Tests of the table of operations: its coverage, its results and its page."""

import importlib
import json
import os
import subprocess
import sys
import types
from pathlib import Path

import pytest

from toolkit import ops

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "benchmarks" / "cpu"

pytestmark = pytest.mark.skipif(
    not FOLDER.exists(), reason="the benchmarks are in checkouts only"
)


@pytest.fixture(autouse=True)
def _add_folders_to_path(monkeypatch):
    for folder in (FOLDER, FOLDER.parent):
        monkeypatch.syspath_prepend(str(folder))


def module(name):
    """Import a script of the benchmarks as a module."""
    return importlib.import_module(name)


def public_functions():
    """Return the public functions, without further names of the same function."""
    functions = {
        f"{prefix}{name}": getattr(space, name)
        for prefix, space in (("", ops), ("image.", ops.image))
        for name in dir(space)
        if not name.startswith("_")
    }
    functions = {
        name: function
        for name, function in functions.items()
        if callable(function) and not isinstance(function, types.ModuleType)
    }
    names = {}
    for name, function in functions.items():
        names.setdefault(function, set()).add(name.removeprefix("image."))
    return [
        {f"{prefix}{name}" for name in group for prefix in ("", "image.")}
        for group in names.values()
    ]


def test_every_public_operation_is_in_the_table_or_exempt():
    table = module("operations_table")
    listed = {row.name for rows in table.GROUPS.values() for row in rows}
    exempt = {name for names in table.EXEMPTIONS.values() for name in names.split()}
    missing = [
        min(names) for names in public_functions() if not names & (listed | exempt)
    ]
    assert not missing
    assert not listed & exempt
    known = {name for names in public_functions() for name in names}
    assert not [name for name in exempt if name not in known]
    assert not [
        name for name in listed if name not in known and not name.startswith("random.")
    ]


def test_titles_are_unique():
    table = module("operations_table")
    titles = [row.title for rows in table.GROUPS.values() for row in rows]
    assert sorted({title for title in titles if titles.count(title) > 1}) == []


def test_results_are_compared_with_the_peer_and_written(tmp_path):
    path = tmp_path / "record.json"
    script = [sys.executable, str(FOLDER / "operations.py")]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    options = ["--only", "argmax, rows of 2", "--sizes", "0", "--rounds", "2"]
    command = [*script, *options, "--json", str(path)]
    subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE)
    (row,) = json.loads(path.read_text("utf-8"))["rows"]
    assert {"eager", "compiled", "numpy"} <= row["median"].keys()
    assert not row["errors"]
    page = tmp_path / "page.md"
    command = [*script, "--page", str(path), "--write", str(page), "--note", "Quiet."]
    subprocess.run(command, env=environment, check=True)
    text = page.read_text("utf-8")
    assert "Quiet." in text and "| group |" in text


def row(compiled, **options):
    medians = {"eager": 3.0, "compiled": compiled, "torch": 2.0, "numpy": 1.0}
    samples = {name: [value] for name, value in medians.items()}
    facts = {"group": "sums", "case": "sum", "size": 1, "gradient": False, "errors": {}}
    return {**facts, "median": medians, "samples": samples, **options}


def test_ratio_is_to_the_best_peer():
    page = module("operations_page")
    assert page.ratio(row(1.5), "compiled") == 1.5
    assert page.ratio(row(1.5, size=0), "compiled") == 0.75  # NumPy has no tensors
    assert page.ratio(row(1.5, median={"compiled": 1.0}), "compiled") is None
    rows = [row(1.5), row(0.5), row(3.0, errors={"compiled, check": "differs"})]
    summary = page.summary(rows)
    assert "| 1e5, forward, compiled | 3 | 1.50 | 67% | 67% | 33% |" in summary
    worst = page.slowest(rows, "compiled").splitlines()[2]
    assert worst.startswith("| sum | 1e5 |") and worst.endswith("| 3.00 |")
    assert "differs" in page.failures(rows)


def test_different_results_are_reported():
    operations = module("operations")
    same, other = [[1.0, 2.0]], [[1.0, 2.1]]
    arrays = [module("numpy").array(values) for values in (*same, *other)]
    results = {"eager": [arrays[0]], "compiled": [arrays[1]], "torch": [arrays[0]]}
    assert list(operations.differences(results)) == ["compiled, check"]
