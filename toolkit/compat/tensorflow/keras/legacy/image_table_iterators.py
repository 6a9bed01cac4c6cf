"""Batches of images whose paths are in a table."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import numpy as np

from toolkit.compat.tensorflow.keras.legacy.image_file_iterators import (
    FileIterator,
    select_subset,
)
from toolkit.compat.tensorflow.keras.legacy.image_labels import Labels, validate_labels
from toolkit.console.frames import warn
from toolkit.console.messages import print_message
from toolkit.errors import ArgumentTypeError, unknown_choice
from toolkit.type_aliases import Array, Shape

_OF_CLASSES = ("categorical", "binary", "sparse")
_MODES = (*_OF_CLASSES, "input", "multi_output", "raw", None)


class DataFrameIterator(FileIterator):
    """Batches of images from a table, see `ImageDataGenerator.flow_from_dataframe`.

    Args:
        dataframe: a pandas DataFrame, or any object with columns by their names.
        directory: the base of relative paths; None: the working directory.
        image_data_generator: transforms each image; None for no transformation.
        x_col: the column of paths.
        y_col: the column of targets, or a list of columns.
        weight_col: the column of weights; None: samples have no weights.
        target_size: (height, width) of the resized images.
        color_mode: "rgb", "rgba" or "grayscale".
        classes: the selected classes, in the order of their indices; None: all, sorted.
            Rows of other classes are dropped.
        class_mode: "categorical": targets (batch, classes) with 1 at each class of a
            row, which has one or a list; "binary" or "sparse": its index; "raw": the
            values of the columns; "multi_output": a list with the values of each
            column; "input": the images; None: no targets.
        batch_size: images in a batch.
        shuffle: whether to shuffle in each pass.
        seed: of order and transformations.
        data_format: "channels_last", "channels_first", or None for the global default.
        save_to_dir: a folder for the images of each batch; None: they are not saved.
        save_prefix: the prefix of these file names.
        save_format: the suffix of these file names, for example "png".
        subset: "training" or "validation": the part of rows by the generator's
            `validation_split`, whose first rows are for validation.
        interpolation: "nearest", "bilinear", "bicubic", "hamming", "box" or "lanczos".
        keep_aspect_ratio: whether to crop instead of stretching.
        dtype: of batches.
        validate_filenames: whether to drop rows without an image file.

    Raises:
        ArgumentError: if an argument or a column is invalid.

    Example:
        >>> import os, tempfile
        >>> import numpy as np
        >>> from toolkit.utils import save_img
        >>> import toolkit.compat.tensorflow as tf
        >>> DataFrameIterator = tf.keras.preprocessing.image.DataFrameIterator
        >>> table = {"filename": ["a.png", "none.png"], "class": ["cat", "dog"]}
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save_img(os.path.join(folder, "a.png"), np.ones((4, 4, 3)))
        ...     batches = DataFrameIterator(
        ...         table, folder, target_size=(8, 8), validate_filenames=False
        ...     )
        Found 2 non-validated image filenames belonging to 2 classes.
        >>> batches.class_indices, batches.classes
        ({'cat': 0, 'dog': 1}, [0, 1])
    """

    def __init__(
        self,
        dataframe: Any,
        directory: str | None = None,
        image_data_generator: Any = None,
        x_col: Any = "filename",
        y_col: Any = "class",
        weight_col: Any = None,
        target_size: Shape = (256, 256),
        color_mode: str = "rgb",
        classes: Any = None,
        class_mode: str | None = "categorical",
        batch_size: int = 32,
        shuffle: bool = True,
        seed: int | None = None,
        data_format: str | None = "channels_last",
        save_to_dir: Any = None,
        save_prefix: str = "",
        save_format: str = "png",
        subset: str | None = None,
        interpolation: str = "nearest",
        keep_aspect_ratio: bool = False,
        dtype: Any = "float32",
        validate_filenames: bool = True,
    ) -> None:
        how = (color_mode, data_format, subset, interpolation, keep_aspect_ratio)
        self._read_as(image_data_generator, target_size, *how, dtype)
        self._save_as(save_to_dir, save_prefix, save_format)
        if class_mode not in _MODES:
            raise unknown_choice("DataFrameIterator: class_mode", class_mode, _MODES)
        self.directory, self.class_mode = directory or "", class_mode
        self.class_indices = {}
        names = _validate_paths(x_col, dataframe[x_col])
        rows = list(range(len(names)))
        labels: Labels | None = None
        if class_mode in _OF_CLASSES:
            labels = validate_labels(str(class_mode), y_col, dataframe[y_col], classes)
        elif classes:
            warn(f"DataFrameIterator: class_mode={class_mode!r} does not use `classes`")
        if validate_filenames:
            rows = self._select_image_rows(names, x_col)
        if labels is not None:
            rows = self._select_class_rows(labels, rows)
        self._rows = select_subset(rows, self.split)
        if labels is not None:
            self.classes = labels.indices(self._rows, self.class_indices)
        self._outputs = self._columns(dataframe, y_col)
        self._weights = self._read_weights(dataframe, weight_col)
        self._set_files([names[row] for row in self._rows], self.directory)
        self._print_summary(validate_filenames)
        super().__init__(self.samples, batch_size, shuffle, seed)

    @property
    def labels(self) -> Any:
        """Return the label of each file."""
        return self.classes if self._outputs is None else self._outputs

    def _select_image_rows(self, names: list[str], column: Any) -> list[int]:
        """Return the rows whose path is an image file."""
        rows = [row for row, name in enumerate(names) if self._is_image(name)]
        if len(rows) < len(names):
            warn(
                f"DataFrameIterator: {len(names) - len(rows)} of {len(names)} paths "
                f"in the column {column!r} are not image files and are skipped"
            )
        return rows

    def _is_image(self, name: str) -> bool:
        path = os.path.join(self.directory, name)
        return path.lower().endswith(self.white_list_formats) and os.path.isfile(path)

    def _select_class_rows(self, labels: Labels, rows: list[int]) -> list[int]:
        """Return the rows that have a class."""
        names = labels.classes or labels.unique_classes(rows)
        self.num_classes = len(names)
        self.class_indices = {name: index for index, name in enumerate(names)}
        return [row for row in rows if labels.has_class(row)]

    def _columns(self, dataframe: Any, y_col: Any) -> Any:
        """Return the raw targets, or None."""
        if self.class_mode == "raw":
            return np.asarray(dataframe[y_col])[self._rows]
        if self.class_mode != "multi_output":
            return None
        if not isinstance(y_col, list):
            raise ArgumentTypeError(
                'DataFrameIterator: class_mode="multi_output" needs a list of columns '
                f"as y_col; received {y_col!r}"
            )
        columns = (list(dataframe[column]) for column in y_col)
        return [np.array([values[row] for row in self._rows]) for values in columns]

    def _read_weights(self, dataframe: Any, column: Any) -> Array | None:
        """Return the weights, or None without a weight column."""
        if not column:
            return None
        values = np.asarray(dataframe[column])
        if not np.issubdtype(values.dtype, np.number):
            raise ArgumentTypeError(
                f"DataFrameIterator: weight_col={column!r} must have numbers; received "
                f"dtype {values.dtype}"
            )
        return values[self._rows]

    def _print_summary(self, validated: bool) -> None:
        kind = "validated" if validated else "non-validated"
        text = f"Found {self.samples} {kind} image filenames"
        if self.class_mode in _OF_CLASSES:
            text += f" belonging to {self.num_classes} classes"
        print_message(f"{text}.")


def _validate_paths(column: Any, values: Iterable[Any]) -> list[str]:
    """Return a validated column of paths."""
    texts = list(values)
    for value in texts:
        if not isinstance(value, str):
            raise ArgumentTypeError(
                f"DataFrameIterator: x_col={column!r} must have strings; received "
                f"{value!r}"
            )
    return texts
