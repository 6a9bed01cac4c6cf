"""Check the GPU backend on a GPU: one stage after the other, each in a process.

Prints a table and writes it with gpu_check.json after each stage. A stage that fails or
takes longer than its share of `--minutes` does not keep the others from running; time
that one leaves goes to the next. The exit status says whether all passed.

Example:
  $ scripts/gpu_check --out found --only facts accuracy
  $ scripts/gpu_check --out found --only speed --minutes 9.5
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

ROOT = Path(__file__).resolve().parents[1]
# Seconds below which no stage is worth to begin.
LEAST = 5
STAGES_FILE = Path(__file__).with_name("gpu_stages.py")


@dataclass(frozen=True)
class Stage:
    """A part of the check.

    Attributes:
        command: its arguments, in which {out} stands for the folder of results and
            {limit} for its seconds.
        share: of the time that is left when it begins: this by the shares of all that
            are still to come.
        device: what TOOLKIT_DEVICE is.
        needs: a program without which it is left out.
        module: a module without which it is left out.
    """

    command: tuple[str, ...]
    share: int
    device: str = ""
    needs: str = ""
    module: str = ""


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

    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # of what it is in
        return False


def stage(name, *arguments):
    """A function of gpu_stages.py."""
    return python(str(STAGES_FILE), name, "{out}", *arguments)


def stages():
    """All stages by name, those first that tell most in a second."""
    kernels = "tests/backends/test_kernels.py"
    sanitizer = ("compute-sanitizer", "--error-exitcode", "9", "--tool")
    few = ("-k", "float32 and sum and not allocates", "-x", "-n", "0")
    watched = pytest(kernels, "--backend=cupy", *few)
    return {
        "facts": Stage(stage("facts"), 20),
        "accuracy": Stage(stage("accuracy"), 50),
        "capture": Stage(stage("capture"), 40),
        "nccl": Stage(stage("nccl"), 20, module="nvidia.nccl"),
        "programs": Stage(pytest("tests/backends/cupy", "-k", "cuda"), 60),
        "speed": Stage(stage("speed", "{limit}"), 220),
        "sample": Stage(pytest(kernels, "--backend=cupy", "-m", "not slow"), 40),
        "examples": Stage(
            python("-m", "pytest", "-q", "tests/examples", "-k", "short"), 40, "gpu"
        ),
        "memcheck": Stage((*sanitizer, "memcheck", *watched), 20, "", sanitizer[0]),
        "racecheck": Stage((*sanitizer, "racecheck", *watched), 20, "", sanitizer[0]),
        "conformance": Stage(
            pytest(kernels, "--backend=cupy", "-m", "slow or not slow"), 60
        ),
    }


def run(name, found, out, limit):
    """Run a stage for at most some seconds.

    Returns:
        Whether it passed (None: left out), its seconds, its last words and results.
    """
    if found.needs and shutil.which(found.needs) is None:
        return {"passed": None, "seconds": 0.0, "words": f"no {found.needs}"}
    if found.module and not has(found.module):
        return {"passed": None, "seconds": 0.0, "words": f"no {found.module}"}
    if limit < LEAST:
        return {"passed": None, "seconds": 0.0, "words": "no time was left"}
    environment = dict(os.environ, PYTHONPATH=str(ROOT))
    if found.device:
        environment["TOOLKIT_DEVICE"] = found.device
    command = [part.format(out=out, limit=int(limit)) for part in found.command]
    start = perf_counter()
    log = out / f"{name}.log"
    with open(log, "w", encoding="utf-8") as file:
        status = wait(command, file, environment, limit)
    seconds = perf_counter() - start
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    words = "" if status in (0, 1) else f"{status}: "
    result = {"passed": status == 0, "seconds": seconds}
    result["words"] = words + (lines[-1] if lines else "")
    path = out / f"{name}.json"
    if path.is_file():
        result["results"] = json.loads(path.read_text(encoding="utf-8"))
    return result


def wait(command, file, environment, limit):
    """The exit status of a command; after the limit it and all that it began end."""
    process = subprocess.Popen(
        command,
        stdout=file,
        stderr=subprocess.STDOUT,
        cwd=ROOT,
        env=environment,
        start_new_session=True,
    )
    try:
        return process.wait(limit)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return f"took longer than {limit:.0f} s"


def main(arguments=None):
    """Run the stages; 0 if none failed."""
    known = stages()
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, help="a folder for logs and results")
    parser.add_argument("--only", nargs="+", choices=known, default=list(known))
    parser.add_argument(
        "--minutes", type=float, default=9.5, help="for all stages together"
    )
    options = parser.parse_args(arguments)
    end = perf_counter() + 60 * options.minutes
    out = options.out or Path(tempfile.mkdtemp(prefix="gpu_check_"))
    out.mkdir(parents=True, exist_ok=True)
    record, path = {}, out / "gpu_check.json"
    print(f"{path}", flush=True)
    for number, name in enumerate(options.only):
        rest = sum(known[n].share for n in options.only[number:])
        limit = (end - perf_counter()) * known[name].share / rest
        record[name] = found = run(name, known[name], out, limit)
        # At once: whatever ends this process loses nothing.
        path.write_text(json.dumps(record, indent=1), encoding="utf-8")
        verdict = {True: "passed", False: "FAILED", None: "left out"}[found["passed"]]
        row = f"{name:12} {verdict:9} {found['seconds']:6.1f} s  {found['words'][:90]}"
        with open(out / "gpu_check.txt", "a", encoding="utf-8") as table:
            print(row, file=table)
        print(row, flush=True)
        if name == "speed" and (out / "speed.txt").is_file():
            print((out / "speed.txt").read_text(encoding="utf-8"), flush=True)
    return int(any(found["passed"] is False for found in record.values()))


if __name__ == "__main__":
    sys.exit(main())
