"""Tests of the page that shows the records of the smaller benchmarks."""

import json
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "page.py"


def row(case, **samples):
    medians = {
        name: sorted(values)[len(values) // 2] for name, values in samples.items()
    }
    return {"case": case, "median": medians, "samples": samples}


def test_records_become_tables(tmp_path):
    machine = {"cpu": "A processor", "cores": 2, "system": "Linux"}
    rows = [
        row("digits 1", toolkit=[1e-3, 2e-3, 3e-3], other=[4e-3] * 3, third=[8e-3] * 3),
        row("digits memory", toolkit=[3.0], third=[2.0]),
        row("alone", toolkit=[5e-3]),
    ]
    record = {
        "script": "inference.py",
        "machine": machine,
        "threads": 2,
        "rows": rows,
        "peers": ["other", "third"],
        "candidates": {"other": {"packages": {"numpy": "2.0"}}},
    }
    (tmp_path / "a.json").write_text(json.dumps(record))
    command = [sys.executable, SCRIPT, tmp_path / "a.json", "--note", "On a day."]
    subprocess.run([*command, "--write", tmp_path / "page.md"], check=True)
    page = (tmp_path / "page.md").read_text("utf-8")
    assert "A processor, 2 cores, Linux. On a day." in page
    assert "| case | toolkit | other | third | ratio |" in page
    assert "| digits 1 | 2 ±25% | 4 ±0% | 8 ±0% | 0.50 |" in page
    assert "| digits memory | 3 ±0% |  | 2 ±0% | 1.50 |" in page
    assert "| alone | 5 ±0% |  |  |  |" in page
    assert "`benchmarks/cpu/inference.py` on 2 threads, with numpy 2.0." in page
