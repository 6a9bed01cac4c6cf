"""Check the GPU backend on a GPU: one stage after the other, each in a process.

Writes gpu_check.json and prints a table. A stage that fails or takes too long does not
keep the others from running; the exit status says whether all passed.

Example:
  $ scripts/gpu_check --out found --only facts accuracy
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

ROOT = Path(__file__).resolve().parents[1]
STAGES_FILE = Path(__file__).with_name("gpu_stages.py")


@dataclass(frozen=True)
class Stage:
    """A part of the check.

    Attributes:
        command: its arguments, in which {out} stands for the folder of results.
        limit: seconds that it may take.
        device: what TOOLKIT_DEVICE is.
        needs: a program without which it is left out.
    """

    command: tuple[str, ...]
    limit: int
    device: str = ""
    needs: str = ""


def python(*arguments):
    """A command of this interpreter."""
    return (sys.executable, *arguments)


def pytest(*arguments):
    """A run of tests on as many processes as there are cores."""
    workers = ("-n", "auto") if has("xdist") else ()
    options = ("-q", "-p", "no:cacheprovider", "--require-gpu", *workers)
    return python("-m", "pytest", *options, *arguments)


def has(module):
    """Whether a module can be imported."""
    from importlib.util import find_spec

    return find_spec(module) is not None


def stage(name):
    """A function of gpu_stages.py."""
    return python(str(STAGES_FILE), name, "{out}")


def stages():
    """All stages by name, in order."""
    kernels = "tests/backends/test_kernels.py"
    on_device = ("--backend=cupy", "-m", "slow or not slow")
    sanitizer = ("compute-sanitizer", "--error-exitcode", "9", "--tool")
    few = ("-k", "float32 and not allocates", "-x", "--maxfail=1", "-n", "0")
    return {
        "facts": Stage(stage("facts"), 60),
        "conformance": Stage(pytest(kernels, *on_device), 420),
        "programs": Stage(pytest("tests/backends/cupy", "-k", "cuda"), 180),
        "accuracy": Stage(stage("accuracy"), 120),
        "capture": Stage(stage("capture"), 120),
        "examples": Stage(
            python("-m", "pytest", "-q", "tests/examples", "-k", "short"), 300, "gpu"
        ),
        "memcheck": Stage(
            (*sanitizer, "memcheck", *pytest(kernels, "--backend=cupy", *few)),
            300,
            needs="compute-sanitizer",
        ),
        "racecheck": Stage(
            (*sanitizer, "racecheck", *pytest(kernels, "--backend=cupy", *few)),
            300,
            needs="compute-sanitizer",
        ),
        "speed": Stage(stage("speed"), 540),
    }


def run(name, found, out):
    """Run a stage.

    Returns:
        Whether it passed (None: left out), its seconds, its last words and results.
    """
    if found.needs and shutil.which(found.needs) is None:
        return {"passed": None, "seconds": 0.0, "words": f"no {found.needs}"}
    environment = dict(os.environ, PYTHONPATH=str(ROOT))
    if found.device:
        environment["TOOLKIT_DEVICE"] = found.device
    command = [part.format(out=out) for part in found.command]
    start = perf_counter()
    with open(out / f"{name}.log", "w", encoding="utf-8") as log:
        try:
            status = subprocess.run(
                command,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=ROOT,
                env=environment,
                timeout=found.limit,
                check=False,
            ).returncode
        except subprocess.TimeoutExpired:
            status = f"took longer than {found.limit} s"
    seconds = perf_counter() - start
    lines = (out / f"{name}.log").read_text(encoding="utf-8").strip().splitlines()
    words = "" if status in (0, 1) else f"{status}: "
    result = {"passed": status == 0, "seconds": seconds}
    result["words"] = words + (lines[-1] if lines else "")
    path = out / f"{name}.json"
    if path.is_file():
        result["results"] = json.loads(path.read_text(encoding="utf-8"))
    return result


def main(arguments=None):
    """Run the stages; 0 if none failed."""
    known = stages()
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, help="a folder for logs and results")
    parser.add_argument("--only", nargs="+", choices=known, default=list(known))
    options = parser.parse_args(arguments)
    out = options.out or Path(tempfile.mkdtemp(prefix="gpu_check_"))
    out.mkdir(parents=True, exist_ok=True)
    record = {}
    for name in options.only:
        record[name] = found = run(name, known[name], out)
        verdict = {True: "passed", False: "FAILED", None: "left out"}[found["passed"]]
        row = f"{name:12} {verdict:9} {found['seconds']:6.1f} s  {found['words'][:90]}"
        print(row, flush=True)
    path = out / "gpu_check.json"
    path.write_text(json.dumps(record, indent=1), encoding="utf-8")
    print(f"{path}")
    table = out / "speed.txt"
    if table.is_file():
        print(table.read_text(encoding="utf-8"))
    return int(any(found["passed"] is False for found in record.values()))


if __name__ == "__main__":
    sys.exit(main())
