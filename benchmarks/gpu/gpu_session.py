"""Run all GPU-only checks and measurements, in one or more calls.

The first minute inspects the machine and installs missing requirements, if possible.
Then the steps run in order, the most informative first. The result folder has four
files: session.json with everything, session.txt with the summary, machine.json, and the
logs of this call. A step that crashes or exceeds its limit does not affect other steps.
The next call skips finished steps and repeats interrupted ones.

Examples:
  $ scripts/gpu_session --plan
  $ scripts/gpu_session --output found --minutes 9.5 --wheels wheels
  $ scripts/gpu_session --output more --earlier found --again failed
  $ scripts/gpu_session --output tried --rehearse
"""

import argparse
import importlib
import json
import os
import signal
import sys
import tempfile
from pathlib import Path
from time import monotonic

import gpu_machine
import gpu_needs
import gpu_rehearsal
import gpu_runner
import gpu_table


def parse(arguments=None):
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--output", type=Path, metavar="DIR", help="the folder of results")
    add("--minutes", type=float, default=9.5, help="for this call; 9.5")
    add("--earlier", type=Path, nargs="+", default=[], help="results of calls before")
    add("--only", nargs="+", default=[], help="steps that begin with one of these")
    add("--again", nargs="+", default=[], help='steps to run anew, or "failed"')
    add("--wheels", type=Path, metavar="DIR", help="a folder of wheels to use")
    add("--list", action="store_true", help="the steps, and no more")
    add("--plan", action="store_true", help="what to bring along, and no more")
    add("--rehearse", action="store_true", help="on host memory, tiny, without a GPU")
    options = parser.parse_args(arguments)
    if not (options.output or options.list or options.plan):
        parser.error("expected --output DIR, the folder of results")
    return options


def select_steps(options):
    """Return the selected steps.

    They depend on whether this is a rehearsal, so they are read only after the options.
    """
    steps = importlib.import_module("gpu_steps").steps()
    starts = tuple(options.only)
    return [step for step in steps if not starts or step.name.startswith(starts)]


def inspect_machine(options, output, site):
    """Return the facts of the machine, and the source of each requirement."""
    facts = gpu_machine.describe_machine(output)
    path = output / "machine.json"
    path.write_text(json.dumps(facts, indent=1), encoding="utf-8")
    facts["needs"] = gpu_needs.get(facts, site, options.wheels)
    path.write_text(json.dumps(facts, indent=1), encoding="utf-8")
    for name, how in facts["needs"].items():
        if how != "installed":
            print(f"{name}: {how}", flush=True)
    return facts


def text(session):
    """Return the summary, with the table of measurements and every failed test."""
    lines = [session.summary()]
    rows = gpu_table.rows_of(session.steps)
    if rows:
        lines += [gpu_table.table(rows), ""]
    for name, step in session.steps.items():
        results = step.get("results")
        failures = results.get("failures", {}) if isinstance(results, dict) else {}
        for test, words in failures.items():
            last = words.strip().splitlines()[-1:] or [""]
            lines.append(f"{name}: {test}: {last[0][:200]}")
    return "\n".join(lines)


def main(arguments=None):
    """Run the steps; return 0 if all of them passed or were skipped."""
    start = monotonic()
    options = parse(arguments)
    if options.plan:
        print(gpu_needs.PLAN)
        return 0
    if options.rehearse:
        os.environ[gpu_rehearsal.VARIABLE] = "1"
    steps = select_steps(options)
    if options.list:
        print("\n".join(f"{s.name:24} at most {s.limit:.0f} s" for s in steps))
        return 0
    # A signal terminates the current step first, and the record includes it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    options.output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="gpu_session_") as folder:
        site = Path(folder) / "site"
        session = gpu_runner.Session(
            options.output, Path(folder) / "work", options.earlier, [site]
        )
        session.about["machine"] = inspect_machine(options, options.output, site)
        is_well = session.run(steps, start + 60 * options.minutes, options.again)
        words = text(session)
        (options.output / "session.txt").write_text(words, encoding="utf-8")
    print(words, flush=True)
    return int(not is_well)


if __name__ == "__main__":
    sys.exit(main())
