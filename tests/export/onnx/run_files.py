#!/usr/bin/env python3
"""Run the files of `write_files.py`; needs only NumPy and ONNX Runtime.

    python run_files.py FOLDER [--nodes PATH]

Prints the worst relative error, and fails if it is above 1e-5. With --nodes, compares
the number of nodes after the optimization of the runtime with the numbers in PATH, a
JSON file. If PATH does not exist, the script writes it.
"""

import argparse
import json
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

import numpy as np

TOLERANCE = 1e-5
# Files that need a later version than other files, as in the guide to ONNX.
LATER = {"int8 convolutions": (1, 24)}


def relative_error(actual, expected):
    """Return the largest difference relative to the largest expected number."""
    if actual.shape != expected.shape or actual.dtype != expected.dtype:
        return np.inf
    if actual.dtype.kind in "biu":
        return 0.0 if (actual == expected).all() else np.inf
    if not expected.size:
        return 0.0
    scale = np.abs(expected).max()
    return float(np.abs(actual.astype(float) - expected).max() / (scale or 1.0))


def run(path):
    """Return the worst error of a file."""
    import onnxruntime  # the collection of tests imports this file without it

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(path), options)
    arrays = np.load(path.with_suffix(".npz"))
    worst = 0.0
    for size in sorted({int(name.split("-")[0]) for name in arrays.files}):
        names = [x.name for x in session.get_inputs()]
        feeds = {name: arrays[f"{size}-x-{i}"] for i, name in enumerate(names)}
        for i, output in enumerate(session.run(None, feeds)):
            worst = max(worst, relative_error(output, arrays[f"{size}-y-{i}"]))
    return worst


def nodes_of(path):
    """Return the number of nodes after the optimization of the runtime."""
    import onnxruntime

    with tempfile.TemporaryDirectory() as folder:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        options.enable_profiling = True
        options.profile_file_prefix = f"{folder}/profile"
        session = onnxruntime.InferenceSession(str(path), options)
        arrays = np.load(path.with_suffix(".npz"))
        size = arrays.files[0].split("-")[0]
        names = [x.name for x in session.get_inputs()]
        feeds = {name: arrays[f"{size}-x-{i}"] for i, name in enumerate(names)}
        session.run(None, feeds)
        events = json.loads(Path(session.end_profiling()).read_text("utf-8"))
    return sum(event["name"].endswith("_kernel_time") for event in events)


def main():
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--nodes", type=Path)
    options = parser.parse_args()
    failed, worst, counts = [], 0.0, {}
    files = sorted(options.folder.glob("*.onnx"), key=lambda path: int(path.stem))
    installed_version = tuple(map(int, version("onnxruntime").split(".")[:2]))
    left_out = 0
    for path in files:
        name = path.with_suffix(".txt").read_text()
        if installed_version < LATER.get(name, installed_version):
            left_out += 1
            continue
        try:
            error = run(path)
        except Exception as exception:
            failed.append(f"{name}: {str(exception)[:200]}")
            continue
        worst = max(worst, error)
        if not error <= TOLERANCE:
            failed.append(f"{name}: error {error:.1e}")
        if options.nodes:
            counts[name] = nodes_of(path)
    print(
        f"onnxruntime {version('onnxruntime')}: {len(files) - left_out} files, worst "
        f"relative error {worst:.1e}; {left_out} need a later version"
    )
    if options.nodes and not options.nodes.exists():
        options.nodes.write_text(json.dumps(counts, indent=1, sort_keys=True) + "\n")
    elif options.nodes:
        known_nodes = json.loads(options.nodes.read_text())
        failed += [
            f"{name}: {count} nodes, {known_nodes[name]} before"
            for name, count in counts.items()
            if count > known_nodes.get(name, count)
        ]
    print("\n".join(failed))
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
