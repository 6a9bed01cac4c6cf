"""Jobs of several ranks, whose first rank writes the result."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from toolkit.cli.mpirun import launch_command
from toolkit.comm.launchers import launch_environment


def run_job(ranks, *arguments, **settings):
    """Return the result of a job of this script.

    Args:
        ranks: the number of ranks.
        arguments: of the script; it must also accept `--found PATH`, and `write` there.
        settings: environment variables.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "found.json"
        script = [sys.argv[0], "--found", str(path), *map(str, arguments)]
        environment = {**os.environ, **launch_environment(ranks), **settings}
        subprocess.run(launch_command(ranks, script), env=environment, check=True)
        return json.loads(path.read_text())


def write(group, path, value):
    """Write the result, from the first rank."""
    if group.rank == 0:
        Path(path).write_text(json.dumps(value), "utf-8")


def save(path, rows):
    """Write the rows of the whole benchmark, if a path is given."""
    if path:
        Path(path).write_text(json.dumps(rows, indent=1), "utf-8")
