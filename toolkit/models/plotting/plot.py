"""plot_model and model_to_dot: pictures of models."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

from toolkit.errors import ArgumentError, unknown_choice
from toolkit.models.plotting.dot import Dot
from toolkit.models.plotting.graph import Show, read_model
from toolkit.pictures.diagram import draw
from toolkit.pictures.routes import SPLINES

DIRECTIONS = ("BT", "LR", "RL", "TB")


def model_to_dot(
    model: Any,
    show_shapes: bool = False,
    show_dtype: bool = False,
    show_layer_names: bool = True,
    rankdir: str = "TB",
    expand_nested: bool = False,
    dpi: float = 200,
    subgraph: bool = False,
    show_layer_activations: bool = False,
    show_trainable: bool = False,
    splines: str = "ortho",
    layer_range: Sequence[str] | None = None,
    expand_blocks: bool | None = None,
    **kwargs: Any,
) -> Dot:
    """Return a model's graph in the DOT language of Graphviz.

    All other arguments are the same as in `plot_model`.

    Args:
        dpi: pixels per inch of Graphviz's output.
        subgraph: whether to return a cluster for another graph.
        splines: Graphviz's style of edges, such as "ortho" or "curved".
        model: a built model.
        show_shapes, show_dtype, show_layer_names: as for `plot_model`.
        rankdir, expand_nested, expand_blocks, layer_range: as for `plot_model`.
        show_layer_activations, show_trainable: as for `plot_model`.

    Returns:
        An object whose `to_string()` returns the text, and whose `write(path)` writes
        it.

    Example:
        >>> import toolkit
        >>> from toolkit import layers
        >>> model = toolkit.Sequential([layers.Dense(1)], name="net")
        >>> model.build((None, 2))
        >>> dot = toolkit.utils.model_to_dot(model)
        >>> print(dot.to_string().splitlines()[0])
        digraph "net" {
    """
    _check("model_to_dot", rankdir, kwargs)
    show = Show(
        shapes=show_shapes,
        dtype=show_dtype,
        names=show_layer_names,
        activations=show_layer_activations,
        trainable=show_trainable,
    )
    content = read_model(model, show, expand_nested, layer_range, expand_blocks)
    return Dot(content, rankdir, splines, dpi, subgraph)


def plot_model(
    model: Any,
    to_file: str | os.PathLike[str] = "model.png",
    show_shapes: bool = False,
    show_dtype: bool = False,
    show_layer_names: bool = False,
    rankdir: str = "TB",
    expand_nested: bool = False,
    dpi: float = 200,
    show_layer_activations: bool = False,
    show_trainable: bool = False,
    splines: str = "ortho",
    layer_range: Sequence[str] | None = None,
    expand_blocks: bool | None = None,
    **kwargs: Any,
) -> Any:
    """Draw a model: a box for each layer, and arrows for tensors.

    Args:
        model: a built model; a model that is neither Sequential nor functional is a
            single box.
        to_file: the picture's path. ".svg" needs no other package, nor does ".dot", the
            text for Graphviz; Matplotlib draws ".png", ".pdf" and ".jpg".
        show_shapes: whether boxes show the input and output shapes.
        show_dtype: whether boxes show the output dtypes.
        show_layer_names: whether boxes show the layers' names.
        rankdir: the direction of arrows: "TB" from top to bottom, "BT", "LR" or "RL".
        expand_nested: whether to draw the content of nested models.
        dpi: pixels per inch, for 14-point text. An SVG has its natural size, with text
            of 14 pixels, for 200.
        show_layer_activations: whether boxes show the layers' activations.
        show_trainable: whether boxes show if layers with weights are trainable.
        splines: the shape of arrows: "ortho" (right angles), "curved" or "spline"
            (smooth), "line" or "polyline" (straight).
        layer_range: names, or patterns of names, of the first and last layer to draw.
        expand_blocks: whether to draw each repeated block, and a box for each
            activation and normalization; default: if there are at most 40 layers.

    Returns:
        In a notebook the picture, else None.

    Raises:
        ArgumentError: the model is not built, or an argument has an invalid value.
        ImportError: the format needs Matplotlib, which is not installed.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> import toolkit
        >>> model = toolkit.Sequential([toolkit.Input((3,)), toolkit.layers.Dense(2)])
        >>> path = Path(tempfile.mkdtemp()) / "model.svg"
        >>> picture = toolkit.utils.plot_model(model, path)
        >>> path.exists()
        True
    """
    _check("plot_model", rankdir, kwargs)
    if splines not in SPLINES:
        raise unknown_choice("plot_model: splines", splines, SPLINES)
    if not dpi > 0:
        raise ArgumentError(f"plot_model: expected dpi > 0; received {dpi!r}")
    show = Show(
        shapes=show_shapes,
        dtype=show_dtype,
        names=show_layer_names,
        activations=show_layer_activations,
        trainable=show_trainable,
    )
    content = read_model(model, show, expand_nested, layer_range, expand_blocks)
    path = os.fspath(to_file)
    kind = os.path.splitext(path)[1][1:].lower() or "png"
    if kind == "dot":
        Dot(content, rankdir, splines, dpi).write(path)
    else:
        draw(content, rankdir, splines).save(path, dpi, kind)
    return _shown(path, kind)


def _check(caller: str, rankdir: str, unknown_arguments: dict[str, Any]) -> None:
    if unknown_arguments:
        raise ArgumentError(
            f"{caller}: Unrecognized keyword arguments: {unknown_arguments}"
        )
    if rankdir not in DIRECTIONS:
        raise unknown_choice(f"{caller}: rankdir", rankdir, DIRECTIONS)


def _shown(path: str, kind: str) -> Any:
    """Return the file as an object for a running notebook, else None."""
    display = sys.modules.get("IPython.display")
    if display is None or "ipykernel" not in sys.modules or kind not in ("svg", "png"):
        return None
    return (display.SVG if kind == "svg" else display.Image)(filename=path)
