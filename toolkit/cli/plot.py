"""Draw the model of a .keras or .h5 file, with a box for each layer.

An SVG or Graphviz text (.dot) needs no other package; .png, .pdf and .jpg need
Matplotlib.

Examples:
  $ toolkit plot model.keras --shapes
  $ toolkit plot model.keras -o model.png --direction LR
"""

from __future__ import annotations

import argparse
from pathlib import Path

from toolkit.cli import choice_type
from toolkit.cli.contents import load_whole_model
from toolkit.cli.custom_objects import add_import_option, custom_objects_scope
from toolkit.cli.overwriting import add_force_option, check_overwrite
from toolkit.models.plotting.plot import DIRECTIONS, plot_model

ENDINGS = (".svg", ".dot", ".png", ".pdf", ".jpg")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the file, the picture, and its content."""
    parser.add_argument("file", type=Path, metavar="FILE", help="of the model")
    parser.add_argument(
        *("-o", "--output"),
        type=_parse_picture_path,
        metavar="PATH",
        help="the picture; default: FILE's name with .svg in the current folder",
    )
    parser.add_argument("--shapes", action="store_true", help="show shapes")
    parser.add_argument("--dtypes", action="store_true", help="show dtypes")
    parser.add_argument(
        "--names", action="store_true", help="show the names of the layers"
    )
    parser.add_argument(
        "--nested", action="store_true", help="show the layers of nested models"
    )
    parser.add_argument(
        "--direction",
        type=choice_type(*DIRECTIONS),
        default="TB",
        metavar="TO",
        help="direction of the arrows: TB from top to bottom (the default), BT, LR or "
        "RL",
    )
    add_force_option(parser, "the picture")
    add_import_option(parser)


def _parse_picture_path(text: str) -> Path:
    return Path(text).with_suffix(choice_type(*ENDINGS)(Path(text).suffix))


def run(options: argparse.Namespace) -> int:
    """Draw the model and print the picture's path."""
    output = options.output or Path(f"{options.file.stem}.svg")
    check_overwrite(options, output)
    with custom_objects_scope(options):
        model = load_whole_model(options.file, compile=False)
    plot_model(
        model,
        output,
        show_shapes=options.shapes,
        show_dtype=options.dtypes,
        show_layer_names=options.names,
        rankdir=options.direction,
        expand_nested=options.nested,
    )
    print(output)
    return 0
