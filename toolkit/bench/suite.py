"""Benchmark suite: workloads, scaling and threads, as rows of one record."""

from __future__ import annotations

import argparse
import json
import platform
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import toolkit
from toolkit.bench import report
from toolkit.bench.busy import busy_processes
from toolkit.bench.measure import KINDS
from toolkit.bench.processes import (
    ENVIRONMENT_REQUEST,
    FreshWorker,
    Outcome,
    SampleWorker,
    Worker,
    WorkerCommand,
    interleave_samples,
    thread_environment,
)
from toolkit.bench.worker import QUICK
from toolkit.bench.workloads import ALL, SPEED_UP, STACKS, WORKLOADS
from toolkit.files.writing import check_folder, write_text
from toolkit.machine import available_cores, cpu_model
from toolkit.processes import python_command

CASES = (*WORKLOADS, "growth", "speed_up")


@dataclass(frozen=True)
class Candidate:
    """Library to measure: its process, and the supported kinds of workloads.

    kinds: kinds of workloads, as in `toolkit.bench.measure`.
    """

    name: str
    command: Sequence[str]
    kinds: Sequence[str] = tuple(KINDS)
    environment: dict[str, str] = field(default_factory=dict)


OURS = Candidate(
    report.OURS,
    python_command("toolkit.bench.worker:main"),
    environment={"PYTHONPATH": ""},  # the command sets the module folders
)


@dataclass(frozen=True)
class Configuration:
    """Candidate with a workload and a number of threads."""

    candidate: Candidate
    workload: str
    threads: int


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the suite."""
    parser.add_argument(
        "--only",
        type=_parse_case_filter,
        default="",
        metavar="TEXT",
        help=f"cases with this in their name: {', '.join(CASES)}",
    )
    parser.add_argument(
        "--rounds", type=_parse_count, default=7, metavar="N", help="samples of each; 7"
    )
    parser.add_argument(
        "--threads",
        type=_parse_count,
        default=2,
        metavar="N",
        help="of each process; 2",
    )
    parser.add_argument(
        "--busy",
        type=_parse_count,
        default=0,
        metavar="N",
        help="processes that only compute, beside each measurement; none",
    )
    parser.add_argument("--json", metavar="PATH", help="where to keep every sample")
    parser.add_argument(
        "--quick", action="store_true", help="tiny data, one round: to see that it runs"
    )


def _parse_case_filter(text: str) -> str:
    if not any(text in case for case in CASES):
        raise argparse.ArgumentTypeError(
            f"expected a part of one of {', '.join(CASES)}; received {text!r}"
        )
    return text


def _parse_count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a number >= 1; received {text!r}")
    return int(text)


def run(candidates: Sequence[Candidate], options: argparse.Namespace) -> dict[str, Any]:
    """Run the selected measurements and print them; `--json` saves the record.

    Returns:
        The record: the machine, the options, the packages of each candidate, and a row
            of medians and samples for each case.
    """
    if options.json:
        check_folder(options.json)
    record: dict[str, Any] = {
        "toolkit": toolkit.__version__,
        "machine": describe_machine(),
        "threads": options.threads,
        "busy": options.busy,
        "rounds": 1 if options.quick else options.rounds,
        "candidates": {c.name: _query_environment(c) for c in candidates},
        "rows": [],
    }
    for case in CASES:
        if options.only not in case:
            continue
        with busy_processes(options.busy):
            row = measure_case(case, candidates, options)
        print(report.format_row(row, with_verdicts=not options.quick), flush=True)
        record["rows"].append(row)
        if options.json:  # after each row, so that an interrupted run keeps results
            write_text(options.json, json.dumps(record, indent=1))
    if not options.quick:
        print(f"\n{report.format_summary(record)}")
    return record


def describe_failures(record: Mapping[str, Any]) -> list[str]:
    """Return the cases that toolkit itself failed, one line for each."""
    lines = []
    for row in record["rows"]:
        has_peers = row["case"] in WORKLOADS
        for name, reason in (row["skipped"] | row["failed"]).items():
            if not has_peers or name == OURS.name:
                lines.append(f"{row['case']}, {name}: {reason}")
    return lines


def measure_case(
    case: str, candidates: Sequence[Candidate], options: argparse.Namespace
) -> dict[str, Any]:
    """Return the row of a case."""
    if case == "growth":
        configurations = {
            name: Configuration(OURS, f"growth/{name}", options.threads)
            for name in STACKS
        }
    elif case == "speed_up":
        configurations = {
            str(count): Configuration(OURS, SPEED_UP, count) for count in (1, 2)
        }
    else:
        configurations = {
            candidate.name: Configuration(candidate, case, options.threads)
            for candidate in candidates
            if WORKLOADS[case].kind in candidate.kinds
        }
    return measure_interleaved(configurations, options).row(case)


def measure_interleaved(
    configurations: Mapping[str, Configuration], options: argparse.Namespace
) -> Outcome:
    """Start all entrants, take interleaved samples, and end them."""
    with ExitStack() as stack:
        queries = {}
        for name, configuration in configurations.items():
            worker = stack.enter_context(
                closing(_start_worker(configuration, options.quick))
            )
            queries[name] = partial(worker.query, configuration.workload)
        return interleave_samples(queries, 1 if options.quick else options.rounds)


def _start_worker(configuration: Configuration, quick: bool) -> SampleWorker:
    candidate = configuration.candidate
    command = [*candidate.command, *([QUICK] if quick else [])]
    environment = thread_environment(configuration.threads) | candidate.environment
    kind = KINDS[ALL[configuration.workload].kind]
    worker_command = WorkerCommand(command, environment)
    return (
        FreshWorker(worker_command, kind.cache)
        if kind.needs_new_process
        else Worker(worker_command)
    )


def _query_environment(candidate: Candidate) -> dict[str, Any]:
    with closing(
        Worker(WorkerCommand(candidate.command, candidate.environment))
    ) as worker:
        return worker.query(ENVIRONMENT_REQUEST)


def describe_machine() -> dict[str, Any]:
    """Return the processor, the part available to this process, and the system."""
    return {
        "cpu": cpu_model(),
        "cores": available_cores(),
        "system": f"{platform.system()} {platform.machine()}",
    }
