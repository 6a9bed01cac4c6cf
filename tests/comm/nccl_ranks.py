"""Ranks in separate processes that load a stand-in for NCCL, for tests.

`build` compiles it; `run` starts a scenario of nccl_scenarios.py on some ranks.
"""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from toolkit.comm.group import as_bytes, offsets_of

HERE = Path(__file__).parent
GCC = shutil.which("gcc") if sys.platform == "linux" else None
OPTIONS = ("-std=gnu11", "-O1", "-Wall", "-Werror", "-Wno-parentheses", "-fPIC")
WHY_NOT = "gcc is not installed, or this is not Linux: there is no stand-in for NCCL"
# Seconds after which a rank of a test has failed.
LONGEST = 60


def build(folder):
    """Return the file of the stand-in."""
    source, library = HERE / "fake_nccl.c", folder / "libfake_nccl.so"
    command = [GCC, *OPTIONS, "-shared", str(source), "-o", str(library)]
    process = subprocess.run(
        [*command, "-lpthread", "-lrt"], capture_output=True, text=True, check=False
    )
    assert process.returncode == 0, process.stderr
    return library


def start(scenario, library, folder, size, rank, **environment):
    """Start the process of one rank."""
    variables = dict(os.environ, PYTHONPATH=str(HERE.parents[1]))
    variables.update(FAKE_NCCL_LOG=str(folder / f"calls.{rank}"), **environment)
    arguments = (scenario, str(library), str(folder), str(size), str(rank))
    return subprocess.Popen(
        [sys.executable, str(HERE / "nccl_scenarios.py"), *arguments],
        env=variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(scenario, library, folder, size, environments=None):
    """Run a scenario and return the results of its function, by rank.

    Args:
        scenario: the name of a function in nccl_scenarios.py.
        library: the stand-in.
        folder: an empty folder.
        size: the number of ranks.
        environments: environment variables of single ranks, by rank.
    """
    ranks = [
        start(
            scenario, library, folder, size, rank, **(environments or {}).get(rank, {})
        )
        for rank in range(size)
    ]
    results = []
    try:
        for rank, process in enumerate(ranks):
            out, problem = process.communicate(timeout=LONGEST)
            status = process.returncode
            assert status == 0, f"rank {rank} ended with {status}: {problem}"
            results.append(json.loads(out.splitlines()[-1]))
    finally:
        for process in ranks:
            process.kill()
            process.communicate()
    return results


def calls(folder, size):
    """Return the library calls of each rank, in order."""
    logs = [folder / f"calls.{rank}" for rank in range(size)]
    return [log.read_text().splitlines() if log.exists() else [] for log in logs]


class FileGroup:
    """Ranks that exchange bytes through files of a folder, as a control group."""

    def __init__(self, folder, size, rank):
        self.folder, self.size, self.rank = Path(folder), size, rank
        self.round_number = 0
        self.folder.mkdir(exist_ok=True)

    def _all(self, content):
        """Return the bytes of all ranks."""
        self.round_number += 1
        own_file = self.folder / f"{self.round_number}.{self.rank}"
        own_file.with_suffix(f".new{self.rank}").write_bytes(bytes(content))
        own_file.with_suffix(f".new{self.rank}").rename(own_file)
        contents, end = [], time.monotonic() + LONGEST
        for rank in range(self.size):
            path = self.folder / f"{self.round_number}.{rank}"
            while not path.exists():
                assert time.monotonic() < end, f"rank {rank} did not write {path}"
                time.sleep(1e-3)
            contents.append(path.read_bytes())
        return contents

    def all_gather(self, send, receive):
        content = b"".join(self._all(as_bytes(send)))
        as_bytes(receive)[:] = np.frombuffer(content, np.uint8)

    def all_gather_varying(self, send, receive, counts):
        contents = self._all(as_bytes(send))
        for start, count, content in zip(
            offsets_of(counts), counts, contents, strict=True
        ):
            as_bytes(receive)[start : start + count] = np.frombuffer(content, np.uint8)

    def broadcast(self, buffer, root=0):
        content = self._all(as_bytes(buffer))[root]
        as_bytes(buffer)[:] = np.frombuffer(content, np.uint8)

    def barrier(self):
        self._all(b"")

    def split(self, color, key):
        rows = [
            json.loads(content)
            for content in self._all(json.dumps([color, key]).encode())
        ]
        same = sorted((k, r) for r, (c, k) in enumerate(rows) if c == color)
        rank = [r for _, r in same].index(self.rank)
        folder = self.folder / f"split{self.round_number}_{color}"
        return FileGroup(folder, len(same), rank)
