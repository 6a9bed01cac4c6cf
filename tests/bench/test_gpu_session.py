"""Tests of a GPU session without a GPU: its steps and its record."""

import importlib
import json
import subprocess
import sys
from pathlib import Path
from time import monotonic

import pytest

from tests.backends.conftest import why_no_gpu

ROOT = Path(__file__).resolve().parents[2]
BENCHMARKS = ROOT / "benchmarks" / "gpu"

pytestmark = pytest.mark.skipif(
    not BENCHMARKS.exists(), reason="the benchmarks are in checkouts only"
)


@pytest.fixture(autouse=True)
def _add_benchmarks_to_path(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))


def module(name):
    """Import a script of benchmarks/ as a module."""
    return importlib.import_module(name)


def call(*arguments, **options):
    """Run a call of the session to its end."""
    command = [sys.executable, str(BENCHMARKS / "gpu_session.py"), *map(str, arguments)]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, **options
    )


# Commands of the test steps: {json} is the path of their results.
WRITES = "import json, sys; open(sys.argv[1], 'w').write(json.dumps({'found': 1})); "
PASSES = WRITES + "print('well')"
FAILS = WRITES + "sys.exit('it is wrong')"
DIES = WRITES + "import os; os.kill(os.getpid(), 11)"
# Its child would run for a minute if only the step itself were ended.
SLEEPS = WRITES + (
    "import subprocess, time; "
    "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)']); "
    "time.sleep(60)"
)


def step(name, code, limit=30.0, **options):
    """Return a step that runs a line of Python."""
    command = (sys.executable, "-c", code, "{json}")
    return module("gpu_runner").Step(name, command, limit, **options)


def session(tmp_path, name="one", **options):
    return module("gpu_runner").Session(tmp_path / name, tmp_path / "work", **options)


def outcomes(record):
    return {name: step["outcome"] for name, step in record.steps.items()}


def test_failed_steps_do_not_stop_the_session_and_a_second_call_resumes(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(module("gpu_runner"), "POLL", 0.2)
    steps = [
        step("dies", DIES),
        step("late", SLEEPS, limit=1.5, minimum=1),
        step("fails", FAILS),
        step("passes", PASSES),
        step("other", PASSES, modules=("no_such_module",)),
        step("long", PASSES, minimum=1000),
    ]
    first, start = session(tmp_path), monotonic()
    assert not first.run(steps, monotonic() + 60)
    assert monotonic() - start < 30
    expected = {"dies": "failed", "late": "cut", "fails": "failed"}
    expected |= {"passes": "passed", "other": "left out", "long": "not begun"}
    assert outcomes(first) == expected
    assert first.steps["dies"]["words"].startswith("SIGSEGV")
    assert first.steps["fails"]["words"] == "it is wrong"
    assert first.steps["late"]["results"] == {"found": 1}
    assert first.steps["other"]["words"] == "no no_such_module"
    text = (tmp_path / "one" / "session.txt").read_text()
    assert "6 steps: 1 passed, 2 failed, 1 cut, 1 not begun, 1 left out" in text
    assert {p.name for p in (tmp_path / "one").iterdir()} == {
        *("session.json", "session.txt", "logs.tar.gz")
    }

    steps[1] = step("late", PASSES)
    second = session(tmp_path, "two", earlier=[tmp_path / "one"])
    assert not second.run(steps, monotonic() + 60)
    assert outcomes(second) == expected | {"late": "passed"}
    ran = {path.stem for path in (tmp_path / "work").glob("*.log")}
    assert ran == {"dies", "late", "fails", "passes"}

    steps[0], steps[2] = step("dies", PASSES), step("fails", PASSES)
    third = session(tmp_path, "two")
    third.run(steps, monotonic() + 60, retried=["failed"])
    passed = dict.fromkeys(("dies", "late", "fails"), "passed")
    assert outcomes(third) == expected | passed


def test_ended_session_keeps_partial_results(tmp_path):
    """Check the record of a call that was killed during a step."""
    code = (
        "import sys; from time import monotonic; import gpu_runner; "
        "gpu_runner.POLL = 0.1; "
        "found = gpu_runner.Session(sys.argv[1], sys.argv[2]); "
        f"command = (sys.executable, '-c', {SLEEPS!r}, '{{json}}'); "
        "found.run([gpu_runner.Step('late', command, 50)], monotonic() + 50)"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "one"), str(tmp_path / "w")]
    process = subprocess.Popen(command, env={"PYTHONPATH": str(BENCHMARKS)})
    record = tmp_path / "one" / "session.json"
    end = monotonic() + 30
    while monotonic() < end:
        if record.exists() and "results" in record.read_text():
            break
    process.kill()
    process.wait()
    step_record = json.loads(record.read_text())["steps"]["late"]
    assert (step_record["outcome"], step_record["results"]) == ("running", {"found": 1})
    resumed = session(tmp_path, "one")
    assert resumed.run([step("late", PASSES)], monotonic() + 30)


def test_results_of_changed_sources_are_marked(tmp_path):
    first = session(tmp_path)
    first.run([step("passes", PASSES)], monotonic() + 30)
    assert "other sources" not in first.summary()
    first.tree = "another"
    assert "passes" in first.summary() and "(of other sources)" in first.summary()


def test_corrupt_record_is_ignored(tmp_path):
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "session.json").write_text("{")
    assert session(tmp_path).steps == {}


def test_steps_run_existing_files_within_a_call():
    steps = module("gpu_steps").steps()
    names = [step.name for step in steps]
    assert len(set(names)) == len(names)
    for one in steps:
        assert all(c.isalnum() or c in ".-_" for c in one.name), one.name
        assert one.minimum < one.limit <= 500  # of the ten minutes of a call
        files = [p for p in one.command if p.endswith(".py") or p.startswith("tests/")]
        assert all((ROOT / path).exists() for path in files), one
    stages = module("gpu_stages").STAGES
    called = [s.command[2] for s in steps if s.command[1].endswith("gpu_stages.py")]
    assert set(stages) - {"digest"} == set(called)


def test_conformance_shards_cover_all_tests():
    results = module("gpu_results")
    items_of_shards = []
    for number in (1, 2, 3):
        items = list(range(10))
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("GPU_PART", f"{number}/3")
            results.pytest_collection_modifyitems(items)
        items_of_shards += items
    assert sorted(items_of_shards) == list(range(10))


def test_test_failures_are_recorded_during_the_run(tmp_path):
    (tmp_path / "test_some.py").write_text(
        "import pytest\n"
        "@pytest.mark.parametrize('n', range(4))\n"
        "def test_it(n):\n    assert n != 2, 'two is too many'\n"
    )
    path = tmp_path / "results.json"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "gpu_results", str(tmp_path)]
    environment = {"PYTHONPATH": f"{BENCHMARKS}:{ROOT}", "GPU_RESULTS": str(path)}
    process = subprocess.run(
        command, env=environment, cwd=tmp_path, capture_output=True, check=False
    )
    assert process.returncode == 1, process.stdout
    record = json.loads(path.read_text())
    assert record["counts"] == {"passed": 3, "failed": 1}
    ((name, words),) = record["failures"].items()
    assert name.endswith("test_it[2]") and "two is too many" in words


def test_missing_packages_install_from_wheels_then_an_index(tmp_path, monkeypatch):
    needs, calls = module("gpu_needs"), []
    (tmp_path / "one.whl").touch()

    def pip(site, seconds, *arguments):
        calls.append(arguments)
        name = "cudnn" if "--no-index" in arguments else "cupy"
        (tmp_path / "site" / name).mkdir(parents=True)
        return []

    installed = {"numpy", "pytest"}
    monkeypatch.setattr(needs, "find_spec", lambda name: name in installed or None)
    monkeypatch.setattr(needs, "pip", pip)
    facts = {"driver": 12080, "index": "reachable"}
    outcome = needs.get(facts, tmp_path / "site", tmp_path)
    assert outcome["numpy"] == "installed"
    assert outcome["cudnn"] == "from wheels"
    assert outcome["cupy"] == "from the index"
    assert outcome["torch"] == "missing: no comparison with torch"
    assert outcome["xdist"].startswith("missing")
    wheels, index = calls
    assert wheels[-1].endswith("one.whl")
    assert "cupy-cuda12x[ctk]>=14.2,<15" in index
    assert not any(name.startswith("torch") for name in index)
    calls.clear()
    outcome = needs.get({"index": "not reachable: why"}, tmp_path / "none")
    assert not calls
    assert outcome["cupy"] == "missing: nothing runs on the GPU"


def test_machine_reports_missing_features(monkeypatch, tmp_path):
    machine = module("gpu_machine")
    monkeypatch.setenv("GPU_REHEARSAL", "1")
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(machine, "PYTHONS", ())
    report = machine.describe_machine(tmp_path)
    assert report["gpu"] == "no nvidia-smi"
    assert report["disk"][str(tmp_path)] > 0
    assert report["system"]["cores"] >= 1
    interpreter = report["pythons"][sys.executable]
    assert interpreter["distributions"]["numpy"]


def test_the_plan_and_the_list_need_no_machine():
    assert "nvidia-cudnn-frontend" in call("--plan").stdout
    listed = call("--list", "--only", "speed", "first").stdout.splitlines()
    assert len(listed) == 1 + len(module("gpu_table").RUNS)
    assert call().returncode == 2


def test_step_without_a_gpu_reports_the_reason(tmp_path):
    if not (reason := why_no_gpu()):
        pytest.skip("there is a GPU: scripts/gpu_session runs all of it")
    command = [sys.executable, str(BENCHMARKS / "gpu_stages.py"), "first"]
    path = tmp_path / "first.json"
    process = subprocess.run([*command, str(path)], capture_output=True, check=False)
    assert process.returncode == 1, reason
    record = json.loads(path.read_text())
    assert set(record) == {"driver", "kernel", "product", "convolution", "captured"}
    assert all("gpu: " in row["error"] for row in record.values()), record


def test_a_rehearsal_computes_on_host_memory(tmp_path):
    """Check the first steps, and steps with failures and missing features."""
    process = call(
        "--output", tmp_path, "--rehearse", "--only", "facts", "first", "memch"
    )
    assert process.returncode == 0, process.stdout + process.stderr
    record = json.loads((tmp_path / "session.json").read_text())
    outcomes_of_steps = {
        name: step["outcome"] for name, step in record["steps"].items()
    }
    assert outcomes_of_steps == {
        "facts": "passed",
        "first": "passed",
        "memcheck": "left out",
    }
    rows = record["steps"]["first"]["results"]
    assert rows["product"]["found"]["bfloat16"] < 1e-2
    assert record["about"]["machine"]["index"] == "not asked in a rehearsal"
    repeated = call("--output", tmp_path, "--rehearse", "--only", "facts", "first")
    assert repeated.returncode == 0
    assert "facts" not in repeated.stdout.partition("steps:")[0]


def test_table_compares_with_the_best_peer():
    row = {"case": "mnist_mlp", "precision": "float32", "bar": 0.5}
    row |= {"toolkit": {"step": 1e-3, "first": 1.0}, "torch/compile": "broke"}
    row |= {"torch": {"step": 2e-3, "first": 4.0}}
    row |= {"keras/jax": {"step": 4e-3, "first": 2.0}}
    lines = module("gpu_table").table([row]).splitlines()
    assert "1.000     1.00  0.50, 0.5 (first 0.50, 0.3)" in lines[1]
    assert lines[3].endswith("torch/compile  broke")


COMPILES = (
    "import json, os, pathlib, sys, time; turn = os.environ['GPU_SPEED_TURN']; "
    "case = sys.argv[2]; time.sleep(60 * (case == 'lstm')); "
    "sys.exit('it broke') if case == 'resnet50' else None; "
    "pathlib.Path(turn + '.ready').touch(); "
    "[time.sleep(0.01) for _ in iter(lambda: os.path.exists(turn), True)]; "
    "print(json.dumps({'step': 1.0, 'first': 2.0}))"
)


def test_parallel_compilations_are_measured_in_sequence(monkeypatch, tmp_path):
    """Check that failures give their reason, and that slow compilations are ended."""
    speed, saved = module("gpu_speed"), []
    path = tmp_path / "compiles.py"
    path.write_text(COMPILES)
    monkeypatch.setattr(speed, "__file__", str(path))
    monkeypatch.setattr(speed, "PAUSE", 2)
    rows = speed.compiled(lambda rows: saved.append(len(rows)), 16)
    assert saved == [1, 2, 3, 4, 5, 6]
    assert rows["mnist_mlp float32"] == {"step": 1.0, "first": 2.0}
    assert rows["resnet50 bfloat16"] == "it broke"
    assert rows["lstm float32"] == "not done in the time that there was"
    steps = {"speed-one": {"results": {"case": "lstm", "precision": "float32"}}}
    (row,) = module("gpu_table").rows_of(steps | {"compiled": {"results": rows}})
    assert row["torch/compile"] == rows["lstm float32"]


def test_the_page_has_figures_and_verdicts():
    row = {"case": "mnist_mlp", "precision": "float32", "bar": 0.5}
    row |= {
        "toolkit": {"step": 2e-3, "first": 1.0},
        "jax": {"step": 3e-3, "first": 2.0},
    }
    row |= {"toolkit/tuned": {"step": 1e-3, "first": 9.0}, "torch/compile": "broke"}
    fit = {"error, limit": (1.2e-4, 1e-3)}
    errors = {"results and more": (1e-7, 2e-7), "limits": (1e-5, 1e-5), "passed": True}
    steps = {
        "facts": {"outcome": "passed", "results": {"cudnn": 91900}},
        "programs": {"outcome": "failed", "results": {"counts": {"passed": 7}}},
        "accuracy": {"outcome": "passed", "results": {"float32": errors}},
        "fits": {"outcome": "passed", "results": {"float32": fit}},
        "speed-mnist_mlp-float32": {"outcome": "passed", "results": row},
    }
    system = {"cores": 16, "cpu": "a processor", "python": "3.12", "interpreter": "py"}
    machine = {
        "gpu": {"rows": ["NVIDIA H200, 580.1, 143771 MiB, 9.0"]},
        "system": system,
        "pythons": {"py": {"distributions": {"torch": "2.11.0"}}},
    }
    page = module("gpu_page").render(steps, machine, "2026-11-26", "One more thing.")
    assert "NVIDIA H200 (143771 MiB, driver 580.1), 16 cores of a processor" in page
    assert "torch 2.11.0, cuDNN 9.19.0. Measured on 2026-11-26." in page
    assert "| 2.000 | 1.000 |  | 3.000 | – | 0.33 | 0.5 | met |" in page
    assert "| 1.000 |  | 2.000 | 0.50 |" in page
    assert "| float32 | 1.0e-07 (1e-05) | 2.0e-07 (1e-05) |" in page
    assert "by 2e-04 at most" in page
    assert "| `programs` | failed | 7 |  |" in page
    assert page.endswith("One more thing.\n")
    assert "best peer's:\nnone of 1 rows meet it" in page
    steps["fits"]["outcome"] = "failed"
    with pytest.raises(SystemExit, match="expected steps that have passed"):
        module("gpu_page").render(steps, machine)


def test_sources_are_compiled_like_those_of_peers(monkeypatch, tmp_path):
    speed = module("gpu_speed")
    (tmp_path / "one.py").touch()
    monkeypatch.setattr(speed, "SOURCES", tmp_path)
    monkeypatch.setattr(speed, "find_spec", lambda name: 1)
    monkeypatch.setattr(speed, "_ask", lambda *about: list(tmp_path.rglob("*.pyc")))
    row = speed.measure(*module("gpu_table").RUNS[0], libraries=["toolkit"])
    assert len(row["toolkit"]) == 1


def test_rows_show_missing_candidates_and_times(monkeypatch):
    speed, saved = module("gpu_speed"), []
    monkeypatch.setattr(speed, "keep_bytecode", lambda: None)
    monkeypatch.setattr(speed, "find_spec", lambda name: None if "jax" in name else 1)
    monkeypatch.setattr(speed, "_ask", lambda *about: {"step": 1.0, "first": 1.0})
    run = module("gpu_table").RUNS[0]
    row = speed.measure(*run, save=lambda row: saved.append(len(row)))
    assert len(saved) == len(module("gpu_table").LIBRARIES) - 1
    assert "torch/compile" not in row  # of all cases at once, in a separate step
    assert row["jax"] == "not installed: jax"
    assert row["torch"] == {"step": 1.0, "first": 1.0}
    late = speed.measure(*run, seconds=0)
    assert late["torch"] == "not begun: no time was left"
    assert "failed" in late and "not begun" in module("gpu_table").table([late])
