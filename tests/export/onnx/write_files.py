#!/usr/bin/env python3
"""Write the exported models, their inputs and outputs, for `run_files.py`.

python -m tests.export.onnx.write_files FOLDER [--applications]
"""

import argparse
from pathlib import Path

import numpy as np

from tests.export.onnx.reference import FREE, SIZES, sample
from tests.export.onnx.rows import APPLICATIONS, MODELS
from toolkit import tree


def write(folder, number, model, sizes, free=FREE):
    """Write a file, and the arrays for each batch size.

    free: the free extents of the model.
    """
    rng = np.random.default_rng(0)
    model.export(folder / f"{number}.onnx", verbose=False)
    arrays = {}
    for size in sizes:
        inputs = [
            sample(rng, (size, *(n or free for n in x.shape[1:])), x.dtype)
            for x in model.inputs
        ]
        inputs_of_model = inputs if len(inputs) > 1 else inputs[0]
        outputs = [
            y.numpy() for y in tree.flatten(model(inputs_of_model, training=False))
        ]
        arrays |= {f"{size}-x-{i}": x for i, x in enumerate(inputs)}
        arrays |= {f"{size}-y-{i}": y for i, y in enumerate(outputs)}
    np.savez(folder / f"{number}.npz", **arrays)


def main():
    """Read the command line and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--applications", action="store_true")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    table = dict.fromkeys(MODELS, SIZES)
    if options.applications:
        table |= dict.fromkeys(APPLICATIONS, (1,))
    makers = MODELS | APPLICATIONS
    for number, (name, sizes) in enumerate(table.items()):
        free = 224 if name in APPLICATIONS else FREE
        write(options.folder, number, makers[name](), sizes, free)
        (options.folder / f"{number}.txt").write_text(name)


if __name__ == "__main__":
    main()
