"""Predict the training step of a model on many ranks, by layout.

The kernels are timed on this machine; the time of collectives is calculated for the
link.

Examples:
  $ toolkit simulate model.keras
  $ toolkit simulate model.keras --ranks 8 64 512 --bandwidth 1.25e9
  $ toolkit simulate model.keras --ranks-per-node 8 --plot efficiency.svg
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

import toolkit
from toolkit.cli.contents import load_whole_model
from toolkit.cli.custom_objects import add_import_option, custom_objects_scope
from toolkit.cli.overwriting import add_force_option, check_overwrite
from toolkit.errors import ArgumentError


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the file, the ranks and the link."""
    parser.add_argument(
        "file", type=Path, metavar="FILE", help="the file of a compiled model"
    )
    parser.add_argument("--ranks", type=int, nargs="+", metavar="N", help="how many")
    parser.add_argument(
        "--batch-size", type=int, default=32, metavar="ROWS", help="of each rank"
    )
    parser.add_argument(
        "--latency", type=float, default=5e-6, metavar="SECONDS", help="between nodes"
    )
    parser.add_argument(
        "--bandwidth", type=float, default=10e9, metavar="BYTES", help="a second"
    )
    parser.add_argument(
        "--ranks-per-node", type=int, default=1, metavar="N", help="ranks on each node"
    )
    parser.add_argument(
        "--plot", type=Path, metavar="PATH", help="write a picture of the efficiency"
    )
    add_force_option(parser, "the picture")
    add_import_option(parser)


def run(options: argparse.Namespace) -> int:
    """Print the predictions, and plot them if requested."""
    if options.plot:
        check_overwrite(options, options.plot)
    with custom_objects_scope(options):
        model = load_whole_model(options.file, compile=True)
    if not getattr(model, "optimizer", None) or len(model.inputs) != 1:
        raise ArgumentError(
            f"{options.file}: expected a compiled model with one input; compile it "
            "before it is saved, or call toolkit.distribution.simulate"
        )
    distribution = toolkit.distribution
    link = distribution.Link(options.latency, options.bandwidth, options.ranks_per_node)
    predictions = distribution.simulate(
        model,
        options.ranks or distribution.simulation.RANKS,
        link,
        options.batch_size,
        x=_zero_row(model.inputs[0]),
        y=_zero_targets(model),
    )
    print(predictions)
    if options.plot:
        predictions.plot(options.plot)
        print(options.plot)
    return 0


def _zero_row(tensor: Any) -> Any:
    """Return a row of zeros for a symbolic tensor; unknown extents are 1."""
    shape = [1 if n is None else n for n in tensor.shape[1:]]
    return np.zeros((1, *shape), tensor.dtype)


def _zero_targets(model: Any) -> Any:
    row = _zero_row(model.outputs[0])
    sparse = "sparse" in str(getattr(model.loss, "name", model.loss)).lower()
    return np.zeros(row.shape[:-1], "int32") if sparse else row
