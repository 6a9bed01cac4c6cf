"""Run a script as one rank of a job: `srun -n 4 python -m toolkit.launch train.py`.

`mpirun`, `torchrun` and indexed jobs of Kubernetes start ranks in the same way.
An exception, a nonzero exit code or a signal in one rank ends all ranks, with one
traceback. Otherwise the remaining ranks would wait forever. `toolkit run --processes 4`
starts its ranks with this module.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import re
import runpy
import signal
import sys
import time
from collections.abc import Callable
from importlib import import_module
from io import TextIOWrapper
from pathlib import Path
from types import TracebackType
from typing import Any

from toolkit.comm.local_gpus import assign_gpu
from toolkit.errors import JoinError, RankLostError, ToolkitError
from toolkit.machine import available_cores
from toolkit.processes import enter_user_code, exit_with_parent

USAGE = "usage: python -m toolkit.launch SCRIPT [ARGUMENTS]"
# Number of ranks on this machine, from the launcher: toolkit, Open MPI, MPICH,
# torchrun, Slurm.
_LOCAL_RANK_VARIABLES = (
    *("TOOLKIT_LOCAL_PROCESSES", "TOOLKIT_PROCESSES"),
    *("OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"),
    *("LOCAL_WORLD_SIZE", "SLURM_STEP_TASKS_PER_NODE"),
)
_RANK_VARIABLES = (
    *("TOOLKIT_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "RANK"),
    *("SLURM_PROCID", "JOB_COMPLETION_INDEX"),
)
# Libraries of NumPy builds read these variables once, when they are loaded.
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
FAILED, WRONG_USAGE, INTERRUPTED = 1, 2, 130
# Seconds for the job to end before this rank reports the loss or error of another.
_LOSS_SECONDS = 2.0
_FUNCTION_FILE = "function_files.py"  # calls the function of a notebook
_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of sys/prctl.h


def limit_threads() -> None:
    """Assign each rank an equal number of cores, unless TOOLKIT_NUM_THREADS is set."""
    if "TOOLKIT_NUM_THREADS" not in os.environ:
        os.environ["TOOLKIT_NUM_THREADS"] = str(threads_of_rank())
    for name in _THREAD_VARIABLES:
        os.environ.setdefault(name, os.environ["TOOLKIT_NUM_THREADS"])


def threads_of_rank() -> int:
    """Return the number of cores for one rank of this machine."""
    cores = available_cores()
    if hasattr(os, "sched_getaffinity"):
        # If the launcher bound this rank to some cores, the launcher itself is not
        # bound.
        num_bound = len(os.sched_getaffinity(0))
        if num_bound < len(os.sched_getaffinity(os.getppid())):
            return min(num_bound, cores)
    setting = next(
        (os.environ[n] for n in _LOCAL_RANK_VARIABLES if n in os.environ), "1"
    )
    match = re.match(r"[1-9]\d*", setting)  # in Slurm, "4(x2)" means 4 on each of 2
    ranks = int(match[0]) if match else 1
    return max(1, cores // ranks)


def follow_launcher() -> bool:
    """End this process when `toolkit run` ends, even if a signal ends that.

    Returns:
        Whether the launcher still exists.
    """
    launcher = os.environ.get("TOOLKIT_LAUNCHER")
    if launcher is None:
        return True
    if sys.platform == "linux":
        set_option = ctypes.CDLL(None).prctl
        set_option(_DEATH_SIGNAL, signal.SIGKILL)
    return os.getppid() == int(launcher)


def main(arguments: list[str]) -> int:
    """Run a script as a rank, and return the exit code."""
    if not arguments or not os.path.isfile(arguments[0]):
        reason = f": there is no file {arguments[0]!r}" if arguments else ""
        return _report_failure(f"toolkit.launch{reason}; {USAGE}", WRONG_USAGE)

    def run_script() -> None:
        script = arguments[0]
        sys.argv[:] = arguments
        enter_user_code()
        sys.path.insert(0, os.path.dirname(os.path.abspath(script)))
        runpy.run_path(script, run_name="__main__")

    return _run_rank(run_script, arguments, _print_traceback)


def run_function(arguments: list[str]) -> int:
    """Run the function of `toolkit.distribution.launch_notebook` as a rank.

    Args:
        arguments: the name of the module that loads the function and writes its result
            and its error, and the folder of the job, which contains them.
    """
    # The launcher keeps the input open, and does not write to it. The function has an
    # empty input, as the ranks of a script.
    lifeline = os.dup(0)
    with open(os.devnull, encoding="utf-8") as empty_input:
        os.dup2(empty_input.fileno(), 0)
    exit_with_parent(lifeline)
    module, folder = arguments[0], Path(arguments[1])

    def load_module() -> Any:
        # After the limit of threads, because it imports NumPy.
        return import_module(module)

    def run() -> None:
        sys.argv[:] = [""]  # as in an interactive session
        enter_user_code()
        load_module().run_function(folder)

    def report(error: BaseException) -> None:
        error.__traceback__ = _user_trace(error.__traceback__)
        load_module().write_error(folder, error)

    return _run_rank(run, [], report)


def _run_rank(
    run: Callable[[], object],
    script: list[str],
    report: Callable[[BaseException], object],
) -> int:
    """Join the job, run a function, and return the exit code.

    Args:
        run: the function.
        script: the script and its arguments, for replacements of lost ranks; or empty.
        report: a function that reports an error of the function.
    """
    if not follow_launcher():
        return FAILED
    if isinstance(sys.stdout, TextIOWrapper):
        # A pipe would delay lines, and a rank that is ended would lose them.
        sys.stdout.reconfigure(line_buffering=True)
    limit_threads()
    assign_gpu(os.environ)
    if not sys.flags.safe_path and sys.path[0] == os.getcwd():
        del sys.path[0]  # the current folder, where `python -m` searches
    # After the limit, because libraries read it when NumPy loads them.
    from toolkit.comm import jobs

    jobs.script[:] = script
    try:
        jobs.world()
    except ToolkitError as error:
        is_local = isinstance(error, JoinError)
        return _report_failure(f"toolkit.launch: {error}", FAILED, is_local)
    # Functions that the script registers run before it.
    atexit.register(jobs.finish_job)
    try:
        run()
    except SystemExit as error:
        code = exit_code(error.code)
        if code:
            message = error.code if isinstance(error.code, str) else None
            jobs.report_failure(
                lambda: message and print(message, file=sys.stderr), code
            )
        return code
    except KeyboardInterrupt:
        jobs.report_failure(lambda: print("interrupted", file=sys.stderr), INTERRUPTED)
        return INTERRUPTED
    except BaseException as error:
        is_remote = isinstance(error, ToolkitError) and error.from_rank is not None
        if is_remote or isinstance(error, RankLostError):
            time.sleep(_LOSS_SECONDS)  # the job ends for the other rank
        exception = error  # Python deletes the other name after this block
        jobs.report_failure(lambda: report(exception), FAILED)
        return FAILED
    return 0


def exit_code(status: object) -> int:
    """Return the exit code of a process after `sys.exit(given)`."""
    if status is None:
        return 0
    return (status & 0xFF or int(status != 0)) if isinstance(status, int) else FAILED


def _report_failure(message: str, code: int, is_local: bool = False) -> int:
    """Print why the script does not run: once, or on each rank if `is_local`."""
    rank = next((os.environ[n] for n in _RANK_VARIABLES if n in os.environ), "0")
    if is_local:
        message = f"rank {rank}: {message}"
    if rank == "0" or is_local:
        print(message, file=sys.stderr, flush=True)
    else:
        # the message of the first rank must be printed before the job ends
        time.sleep(0.5)
    return code


def _print_traceback(error: BaseException) -> None:
    """Print the traceback like Python, starting at the script's first frame."""
    trace = _user_trace(error.__traceback__)
    sys.excepthook(type(error), error.with_traceback(trace), trace)


def _user_trace(trace: TracebackType | None) -> TracebackType | None:
    """Return a traceback without its first frames, which are of the launcher."""
    while trace is not None and _is_launcher_frame(trace):
        trace = trace.tb_next
    return trace


def _is_launcher_frame(trace: TracebackType) -> bool:
    filename = trace.tb_frame.f_code.co_filename
    name = os.path.basename(filename)
    return filename == __file__ or "runpy" in name or name == _FUNCTION_FILE


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
