"""Galleries of images, shown or saved with Matplotlib."""

from __future__ import annotations

import math
import textwrap
from typing import Any

import numpy as np

from toolkit.errors import ArgumentError
from toolkit.files.writing import named_write_errors
from toolkit.type_aliases import Array
from toolkit.visualization.drawing import (
    batch_of_images,
    draw_bounding_boxes,
    draw_segmentation_masks,
    is_channels_first,
)

_FONT = 8  # points, of a title
_CHARACTERS = 15  # per inch, of this font
_WRONG = "#d62728"  # the colour of a title with a wrong prediction


def _matplotlib(function: str) -> Any:
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise ImportError(
            f"{function}: needs the `matplotlib` package; install it with "
            "`pip install matplotlib`"
        ) from error
    return pyplot


def _prepared(function: str, images: Any, value_range: Any, data_format: Any) -> Any:
    """Return images as uint8 (n, height, width, channels)."""
    first = is_channels_first(function, data_format)
    images = batch_of_images(function, images, first).astype("float64")
    low, high = value_range
    scaled = (images - low) * (255 / (high - low))
    return np.clip(np.round(scaled, 6), 0, 255).astype("uint8")


def plot_image_gallery(
    images: Any,
    y_true: Any = None,
    y_pred: Any = None,
    label_map: dict[int, str] | None = None,
    rows: int | None = None,
    cols: int | None = None,
    value_range: tuple[float, float] = (0, 255),
    scale: float = 2,
    path: Any = None,
    show: bool | None = None,
    transparent: bool = True,
    dpi: int = 60,
    legend_handles: Any = None,
    data_format: str | None = None,
) -> None:
    """Show images in rows and columns, or save the picture.

    Args:
        images: (n, height, width, channels).
        y_true: labels (n,), shown above the images.
        y_pred: predicted labels (n,), shown like `y_true`; wrong ones are red.
        label_map: label -> its name; needed for labels.
        rows: number of rows; about equal to the columns if None.
        cols: number of columns; enough for all images if None.
        value_range: the values of black and white.
        scale: width and height of an image, in inches.
        path: the file to save to.
        show: whether to show the gallery; default: if there is no `path`.
        transparent: whether the background of the file is transparent.
        dpi: pixels of the file per inch.
        legend_handles: Matplotlib handles for a legend.
        data_format: "channels_last" or "channels_first": the layout of the images.

    Raises:
        ImportError: if Matplotlib is missing.

    Example:
        >>> from toolkit.visualization import plot_image_gallery
        >>> plot_image_gallery(images, path="gallery.png")  # doctest: +SKIP
    """
    pyplot = _matplotlib("plot_image_gallery")
    if path is not None and show:
        raise ArgumentError(
            "plot_image_gallery: expects either `path` to be set, or `show` to be true"
        )
    labels = {"Label": y_true, "Pred": y_pred}
    labels = {kind: np.asarray(y) for kind, y in labels.items() if y is not None}
    if labels and label_map is None:
        raise ArgumentError(
            "plot_image_gallery: if `y_true` or `y_pred` are provided, a `label_map` "
            "must also be provided"
        )
    images = _prepared("plot_image_gallery", images, value_range, data_format)
    rows, cols = _grid(len(images), rows, cols)
    figure, axes = pyplot.subplots(
        rows,
        cols,
        figsize=(cols * scale, rows * scale),
        frameon=False,
        layout="tight",
        squeeze=False,
    )
    if legend_handles is not None:
        figure.legend(handles=legend_handles, loc="lower center")
    for index, axis in enumerate(axes.flat):
        axis.axis("off")
        if index < len(images):
            axis.imshow(images[index], cmap="gray", vmin=0, vmax=255)
            title = _title(index, labels, label_map or {}, scale)
            color = {"color": _WRONG} if _is_wrong(index, labels) else {}
            axis.set_title(title, fontsize=_FONT, **color)
    if path is not None:
        options = {"pad_inches": 0, "bbox_inches": "tight", "dpi": dpi}
        with named_write_errors(path):
            figure.savefig(path, transparent=transparent, **options)
    elif show or show is None:
        pyplot.show()
    pyplot.close(figure)


def _grid(count: int, rows: int | None, cols: int | None) -> tuple[int, int]:
    """Return the rows and columns for a number of images; the rest is not shown."""
    if rows is None:
        rows = math.ceil(count / cols) if cols else math.ceil(math.sqrt(count))
    return max(rows, 1), max(cols or math.ceil(count / max(rows, 1)), 1)


def _title(
    index: int, labels: dict[str, Any], names: dict[int, str], scale: float
) -> str:
    """Return the labels of an image, in lines that are not wider than it."""
    lines = [
        f"{kind}: {names.get(int(y[index]), 'Unknown')}"
        for kind, y in labels.items()
        if index < len(y)
    ]
    width = max(8, int(scale * _CHARACTERS))
    return "\n".join(textwrap.fill(line, width) for line in lines)


def _is_wrong(index: int, labels: dict[str, Array]) -> bool:
    """Return whether an image has a prediction that is not its label."""
    values = {int(y[index]) for y in labels.values() if index < len(y)}
    return len(values) > 1


def plot_bounding_box_gallery(
    images: Any,
    bounding_box_format: str,
    y_true: Any = None,
    y_pred: Any = None,
    value_range: tuple[float, float] = (0, 255),
    true_color: Any = (0, 188, 212),
    pred_color: Any = (255, 235, 59),
    line_thickness: int = 2,
    font_scale: float = 1.0,
    text_thickness: int | None = None,
    class_mapping: dict[int, str] | None = None,
    ground_truth_mapping: dict[int, str] | None = None,
    prediction_mapping: dict[int, str] | None = None,
    legend: bool = False,
    legend_handles: Any = None,
    rows: int | None = None,
    cols: int | None = None,
    data_format: str | None = None,
    **kwargs: Any,
) -> None:
    """Show images with their true and predicted boxes.

    Args:
        images: (n, height, width, channels).
        bounding_box_format: for example "xyxy".
        y_true: the true boxes, in the format of `draw_bounding_boxes`.
        y_pred: the predicted boxes, in the same format.
        value_range: the values of black and white.
        true_color: color of the true boxes, from 0 to 255.
        pred_color: color of the predicted boxes.
        line_thickness: thickness of the lines, in pixels.
        font_scale: 1 for capital letters 19 pixels high.
        text_thickness: thickness of the letters, in pixels; None: `line_thickness`.
        class_mapping: label -> the name to draw.
        ground_truth_mapping: the same for true boxes only.
        prediction_mapping: the same for predicted boxes only.
        legend: whether to show a legend of the two colors.
        legend_handles: Matplotlib handles for another legend.
        rows: as for `plot_image_gallery`, and so are `cols` and the further arguments.
        cols, data_format: as for `plot_image_gallery`.

    Raises:
        ImportError: if Matplotlib is missing.

    Example:
        >>> from toolkit.visualization import plot_bounding_box_gallery
        >>> plot_bounding_box_gallery(images, "xyxy", boxes)  # doctest: +SKIP
    """
    name = "plot_bounding_box_gallery"
    _matplotlib(name)
    if legend and legend_handles:
        raise ArgumentError(f"{name}: only pass `legend` or `legend_handles`")
    canvas = _prepared(name, images, value_range, data_format)
    kinds = (
        ("Ground Truth", y_true, true_color, ground_truth_mapping),
        ("Prediction", y_pred, pred_color, prediction_mapping),
    )
    for _, boxes, color, names in kinds:
        if boxes is not None:
            canvas = draw_bounding_boxes(
                canvas,
                boxes,
                bounding_box_format,
                names or class_mapping,
                color,
                line_thickness,
                text_thickness or abs(line_thickness),
                font_scale,
                "channels_last",
            )
    if legend:
        from matplotlib.patches import Patch

        legend_handles = [
            Patch(color=np.divide(color, 255.0), label=kind)
            for kind, _, color, _ in kinds
        ]
    plot_image_gallery(
        canvas,
        rows=rows,
        cols=cols,
        legend_handles=legend_handles,
        data_format="channels_last",
        **kwargs,
    )


def plot_segmentation_mask_gallery(
    images: Any,
    num_classes: int | None,
    value_range: tuple[float, float] = (0, 255),
    y_true: Any = None,
    y_pred: Any = None,
    color_mapping: dict[int, Any] | None = None,
    blend: bool = True,
    alpha: float = 0.8,
    ignore_index: int = -1,
    data_format: str | None = None,
    **kwargs: Any,
) -> None:
    """Show each image next to copies with its true and its predicted mask.

    Args:
        images: (n, height, width, channels).
        num_classes: see `draw_segmentation_masks`, also for the other arguments.
        value_range: the values of black and white.
        y_true: the true masks (n, height, width) or (n, height, width, 1).
        y_pred: the predicted masks, with the same shape.
        **kwargs: further arguments of `plot_image_gallery`.
        color_mapping, blend, alpha, ignore_index, data_format: as for
            `draw_segmentation_masks`.

    Raises:
        ImportError: if Matplotlib is missing.

    Example:
        >>> from toolkit.visualization import plot_segmentation_mask_gallery
        >>> plot_segmentation_mask_gallery(images, 3, y_true=m)  # doctest: +SKIP
    """
    name = "plot_segmentation_mask_gallery"
    _matplotlib(name)
    plain = _prepared(name, images, value_range, data_format)
    columns = [plain]
    for masks in (y_true, y_pred):
        if masks is not None:
            masks = np.asarray(masks).astype("int32")
            if masks.ndim == 4 and is_channels_first(name, data_format):
                masks = np.moveaxis(masks, 1, -1)
            overlays = draw_segmentation_masks(
                *(plain, masks, num_classes, color_mapping, alpha, blend, ignore_index),
                data_format="channels_last",
            )
            columns.append(overlays)
    gallery = np.stack(columns, 1).reshape(-1, *plain.shape[1:])
    kwargs = {"rows": len(plain), "cols": len(columns), **kwargs}
    plot_image_gallery(gallery, data_format="channels_last", **kwargs)
