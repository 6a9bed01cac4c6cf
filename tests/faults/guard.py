"""Run many corrupt files in child processes, and survive their failures."""

import json
import os
import select
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SILENCE = 120  # seconds without output after which a child is stopped


def outcomes(seed, start, stop, folder):
    """Yield (number, format, outcome) of each case, also of one that ends the child."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    while start < stop:
        last = start - 1
        for number, form, outcome in _one_child(seed, start, stop, folder):
            if number is not None:
                last = number
            yield (last + 1 if number is None else number), form, outcome
            if number is None:
                last += 1
        start = last + 1


def _one_child(seed, start, stop, folder):
    """Yield the lines of a child; the case that ended it has no number."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    environment |= {"OPENBLAS_NUM_THREADS": "1", "PYTHONFAULTHANDLER": ""}
    # New kernels are cached in a folder that a case may write.
    environment["TOOLKIT_CACHE_DIR"] = str(folder / "cache")
    command = [sys.executable, "-m", "tests.faults.worker"]
    with open(folder / "errors.txt", "wb") as errors:
        child = subprocess.Popen(
            [*command, *map(str, (seed, start, stop)), str(folder)],
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=errors,
        )
    last_output, partial_line, last = time.monotonic(), b"", start - 1
    while True:
        ready, _, _ = select.select([child.stdout], [], [], 1)
        if ready:
            last_output = time.monotonic()
            data = os.read(child.stdout.fileno(), 1 << 16)
            if not data:
                break
            *lines, partial_line = (partial_line + data).split(b"\n")
            for line in lines:
                number, form, outcome = json.loads(line)
                last = number
                yield number, form, outcome
        elif time.monotonic() - last_output > SILENCE:
            child.kill()
            break
    status = child.wait()
    child.stdout.close()
    if last < stop - 1:
        reason = "hang" if status in (-27, -9) else f"crash: status {status}"
        errors = (folder / "errors.txt").read_text("utf-8", "replace")[-2000:]
        began = (folder / "progress").exists()
        assert began, f"the worker does not start: {errors}"
        yield None, "", f"{reason}: {errors}"


def tally(seed, start, stop, folder, watched=False):
    """Return the counts of outcomes, and the failures: number -> (format, outcome)."""
    counts, wrong = Counter(), {}
    for number, form, outcome in outcomes(seed, start, stop, folder):
        kind = outcome.partition(":")[0]
        counts[kind] += 1
        if kind not in ("equal", "error", "differs"):
            wrong[number] = form, outcome
            if watched:
                print(f"--- {number} {form}: {outcome}", flush=True)
    return counts, wrong


if __name__ == "__main__":
    kind, start, stop, folder = sys.argv[1:]
    began = time.monotonic()
    counts, wrong = tally(kind, int(start), int(stop), folder, watched=True)
    print(dict(counts), f"{time.monotonic() - began:.0f} s")
