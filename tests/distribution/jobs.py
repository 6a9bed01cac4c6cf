"""Run scripts as jobs of several processes that report their results."""

import json
import sys
from textwrap import dedent

from tests.comm import ranks

BEGIN = """
import hashlib, json, os, signal, sys, time
from pathlib import Path
import numpy as np
import toolkit as tk
from toolkit import comm, distribution, layers

os.chdir(Path(__file__).parent)
rank, size = comm.world().rank, comm.world().size

def tell(found):
    print("result", json.dumps([rank, found]), flush=True)

def digest(*values):
    joined = b"".join(np.ascontiguousarray(value).tobytes() for value in values)
    return hashlib.sha256(joined).hexdigest()

def state_of(model):
    return digest(*model.variables, *model.optimizer.variables)

def network():
    tk.utils.set_random_seed(0)
    model = tk.Sequential([
        layers.Dense(8, activation="relu"), layers.Dropout(0.2), layers.Dense(1),
    ])
    model.compile("adam", "mse")
    return model
"""


def run_sizes(folder, sizes, text, **options):
    """Return the reports of jobs with several numbers of processes; see `run`."""
    reports = []
    for processes in sizes:
        job_folder = folder / str(processes)
        job_folder.mkdir()
        reports += run(job_folder, processes, text, **options)
    assert len(reports) == sum(sizes)
    return reports


def run(
    folder,
    processes,
    text,
    *arguments,
    timeout=30,
    seconds=60,
    code=0,
    flags=(),
    errors=None,
):
    """Return the reports of the processes of a job, by rank.

    Args:
        folder: working directory.
        processes: world size.
        text: of the script, after `BEGIN`.
        arguments: of the script.
        timeout: seconds that a process waits for a peer.
        seconds: limit for the job.
        code: expected exit code; if it is not 0, the complete result is returned.
        flags: of the launcher.
        errors: the expected error output; None: any.
    """
    script = folder / "train.py"
    script.write_text(BEGIN + dedent(text))
    command = [sys.executable, "-m", "toolkit", "run", "--processes"]
    command += [
        str(processes),
        "--timeout",
        str(timeout),
        *flags,
        str(script),
        *arguments,
    ]
    process = ranks.start(command, seconds)
    assert process.code == code, process.errors
    assert errors is None or process.errors == errors, process.errors
    if code:
        return process
    lines = [line for line in process.out.splitlines() if "result " in line]
    ranked_results = sorted(json.loads(line.partition("result ")[2]) for line in lines)
    return [result for _, result in ranked_results]
