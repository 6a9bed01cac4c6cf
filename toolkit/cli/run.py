"""Run a script, or an example trainer of the package, with the arguments after it.

With --processes, several processes run it as one job: see `toolkit.distribution`. Then
each output line starts with the rank of its process. If one process fails, all end with
its exit code, or with 128 plus the number of the signal. The code is 124 if a
collective exceeded its timeout. With --mpi, an MPI library connects the processes,
which needs `pip install "toolkit-nn[mpi]"`.

With --hosts, ssh starts the processes on other machines. ssh must not need a password.
Each host has the same working folder, script, Python and packages, at the same paths,
and can connect to the first host by its name. The processes get the environment
variables that start with TOOLKIT_, and a secret of the job.

Examples:
  $ toolkit run digits_cnn
  $ toolkit run digits_cnn --epochs 5
  $ toolkit run digits_cnn --help
  $ toolkit run --processes 2 train.py
  $ toolkit run --hosts node1:2,node2:2 train.py
  $ toolkit run --keras keras_script.py
"""

from __future__ import annotations

import argparse
import os
import runpy
import sys
from collections.abc import Sequence
from functools import partial
from importlib import import_module
from pathlib import Path

from toolkit.cli import choice_type, parse_count, program_name
from toolkit.cli.examples import example_path, list_examples
from toolkit.cli.hosts import parse_hosts, run_hosts
from toolkit.cli.mpirun import LIBRARIES, launch_command
from toolkit.cli.ranks_output import RunRanks, run_job, run_launcher
from toolkit.comm.launchers import launch_environment, rank_command
from toolkit.comm.rank_processes import run_ranks
from toolkit.errors import ArgumentError


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the script, its arguments, and the number of processes."""
    parser.add_argument(
        "--processes",
        type=parse_count,
        metavar="N",
        help="the number of processes of the job",
    )
    parser.add_argument(
        "--hosts",
        type=parse_hosts,
        metavar="HOSTS",
        help="start the processes on these hosts by ssh, such as a,b:2 for one process "
        "on a and two on b; --processes is the number for each host without a number",
    )
    parser.add_argument(
        "--timeout",
        type=_parse_seconds,
        metavar="SECONDS",
        help="seconds that a process can wait for another before the job ends; 600",
    )
    parser.add_argument(
        "--mpi",
        type=choice_type(*LIBRARIES),
        metavar="LIBRARY",
        help="connect the processes by this MPI library: openmpi, mpich, or auto for "
        "the installed one",
    )
    parser.add_argument(
        "--elastic",
        action="store_true",
        help="continue fit with the remaining processes if a process is killed",
    )
    parser.add_argument(
        "--replace",
        action="store_true",
        help="with --elastic: start a new process for each killed process",
    )
    parser.add_argument(
        "--restarts",
        type=parse_count,
        metavar="N",
        help="maximum number of restarts after a lost process; fit continues after "
        "the last complete epoch",
    )
    parser.add_argument(
        "--keras",
        action="store_true",
        help="use toolkit as the backend of Keras in the script; see `keras_toolkit`",
    )
    parser.add_argument(
        "name",
        type=_parse_script,
        metavar="NAME",
        help=f"path of a script, or the name of an example; see {program_name()} "
        "examples",
    )
    parser.add_argument(
        "arguments", nargs=argparse.REMAINDER, metavar="...", help="for the script"
    )


def _parse_seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not seconds > 0:
        raise argparse.ArgumentTypeError(f"expected seconds > 0; received {text!r}")
    return seconds


def _parse_script(text: str) -> Path:
    """Return the path of a script, or of an example by its name."""
    if text.endswith(".py"):
        if not Path(text).is_file():
            raise argparse.ArgumentTypeError(f"there is no file {text!r}")
        return Path(text)
    return example_path(choice_type(*list_examples())(text))


def _job_function(options: argparse.Namespace, script: Sequence[str]) -> RunRanks:
    """Return the function that runs the processes of a job."""
    if options.processes == 1 and not options.elastic:
        return partial(run_launcher, rank_command(script))
    if options.mpi is None:
        return partial(
            run_ranks, rank_command(script), options.processes, elastic=options.elastic
        )
    command = launch_command(
        options.processes, script, options.mpi, options.elastic, options.replace
    )
    return partial(run_launcher, command)


def _run_hosts(options: argparse.Namespace) -> int:
    """Run a script on several hosts."""
    refused_options = {
        "--mpi": options.mpi is not None,
        "--elastic": options.elastic,
        "--replace": options.replace,
        "--restarts": options.restarts is not None,
        "--keras": options.keras,
    }
    for name in (name for name, value in refused_options.items() if value):
        raise ArgumentError(f"--hosts does not support {name}")
    processes = options.processes or 1
    environment = launch_environment(processes, options.timeout)
    script = [str(options.name), *options.arguments]
    return run_hosts(options.hosts, processes, script, environment)


def run(options: argparse.Namespace) -> int:
    """Run it as Python runs a script, with its folder on the path."""
    path = options.name
    if options.hosts is not None:
        return _run_hosts(options)
    if options.processes is not None:
        if options.keras:
            raise ArgumentError("--keras runs one process; received --processes")
        script = [str(path), *options.arguments]
        if options.replace and not options.elastic:
            raise ArgumentError("--replace needs --elastic")
        job = options.processes, options.timeout, options.elastic, options.replace
        run_once = _job_function(options, script)
        return run_job(run_once, launch_environment(*job), options.restarts or 0)
    job_options = {"--mpi": options.mpi, "--elastic": options.elastic}
    job_options["--replace"] = options.replace
    job_options["--restarts"] = options.restarts is not None
    job_options["--timeout"] = options.timeout is not None
    for name in (name for name, value in job_options.items() if value):
        raise ArgumentError(f"{name} needs --processes")
    if options.keras:
        import_module("keras_toolkit.finder").activate(overrides=True)
    saved = sys.argv, sys.path
    sys.argv = [str(path), *options.arguments]
    sys.path = [os.path.dirname(os.path.abspath(path)), *sys.path]
    try:
        runpy.run_path(str(path), run_name="__main__")
    finally:
        sys.argv, sys.path = saved
    return 0
