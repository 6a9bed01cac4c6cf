"""Batches of images in files, with one folder per class."""

from __future__ import annotations

import os
from os import PathLike
from typing import Any

import numpy as np

from toolkit import dtypes
from toolkit.compat.tensorflow.keras.legacy.image_iterators import SUBSETS, Iterator
from toolkit.console.messages import print_message
from toolkit.errors import ArgumentError, unknown_choice
from toolkit.settings import floatx, standardize_data_format
from toolkit.type_aliases import Array, DTypeLike
from toolkit.utils.images import img_to_array, load_img

_CHANNELS = {"grayscale": 1, "rgb": 3, "rgba": 4}
_MODES = ("categorical", "binary", "sparse", "input", None)


class FileIterator(Iterator):
    """Base of iterators over files: conversion of images and labels to a batch."""

    class_mode: str | None
    filenames: list[str]
    # The class index, or a list of class indices, of each file.
    classes: Any = None
    class_indices: dict[str, int]
    num_classes: int = 0
    samples: int
    split: tuple[float, float] | None
    _filepaths: list[str]
    _weights: Array | None = None

    def _read_as(
        self,
        image_data_generator: Any,
        target_size: Any,
        color_mode: str,
        data_format: str | None,
        subset: str | None,
        interpolation: str,
        keep_aspect_ratio: bool,
        dtype: DTypeLike,
    ) -> None:
        """Set the options for the read of files."""
        caller = type(self).__name__
        if color_mode not in _CHANNELS:
            raise unknown_choice(f"{caller}: color_mode", color_mode, _CHANNELS)
        if subset not in (*SUBSETS, None):
            raise unknown_choice(f"{caller}: subset", subset, SUBSETS)
        if np.ndim(target_size) != 1 or len(target_size) != 2:
            raise ArgumentError(
                f"{caller}: target_size must be (height, width); received {target_size}"
            )
        self.image_data_generator = image_data_generator
        self.target_size = tuple(target_size)
        self.color_mode = color_mode
        self.data_format = standardize_data_format(data_format)
        self.interpolation, self.keep_aspect_ratio = interpolation, keep_aspect_ratio
        self.dtype = dtypes.standardize(dtype or floatx())
        last = self.data_format == "channels_last"
        size, channels = self.target_size, (_CHANNELS[color_mode],)
        self.image_shape = (*size, *channels) if last else (*channels, *size)
        self.subset = subset
        self.split = self._subset_bounds(subset)

    def _subset_bounds(self, subset: str | None) -> tuple[float, float] | None:
        """Return the bounds of a subset as fractions of the files; validation files are
        first."""
        if subset is None:
            return None
        border = self.image_data_generator._validation_split or 0.0
        return (border, 1) if subset == "training" else (0, border)

    def _save_as(self, folder: str | PathLike[str], prefix: str, format: str) -> None:
        self.save_to_dir, self.save_prefix, self.save_format = folder, prefix, format

    def _set_files(self, filenames: list[str], directory: str | PathLike[str]) -> None:
        self.filenames, self.samples = filenames, len(filenames)
        self._filepaths = [os.path.join(directory, name) for name in filenames]

    @property
    def filepaths(self) -> list[str]:
        """Return the path of each file."""
        return self._filepaths

    @property
    def labels(self) -> Any:
        """Return the label of each file."""
        return self.classes

    @property
    def sample_weight(self) -> Array | None:
        """Return the weight of each file, or None."""
        return self._weights

    def _read_image(self, path: str) -> Array:
        """Read and transform the image in a file."""
        image = load_img(
            path,
            color_mode=self.color_mode,
            target_size=self.target_size,
            interpolation=self.interpolation,
            keep_aspect_ratio=self.keep_aspect_ratio,
        )
        return self._transform(img_to_array(image, self.data_format))

    def _get_batches_of_transformed_samples(self, index_array: Array) -> Any:
        dtype = dtypes.numpy_dtype(self.dtype)
        batch = np.zeros((len(index_array), *self.image_shape), dtype)
        paths = self.filepaths
        for i, row in enumerate(index_array):
            batch[i] = self._read_image(paths[row])
        self._save(batch, index_array, 10_000_000)
        if self.class_mode is None:
            return batch
        y = self._targets(batch, index_array)
        weights = self.sample_weight
        return (batch, y) if weights is None else (batch, y, weights[index_array])

    def _targets(self, batch: Array, rows: Array) -> Any:
        """Return the targets of a batch."""
        if self.class_mode == "input":
            return batch.copy()
        if self.class_mode == "multi_output":
            return [output[rows] for output in self.labels]
        if self.class_mode == "raw":
            return self.labels[rows]
        numbers = [self.classes[row] for row in rows]
        if self.class_mode != "categorical":
            return np.array(numbers, dtype=batch.dtype)
        y = np.zeros((len(rows), len(self.class_indices)), batch.dtype)
        for i, of_one in enumerate(numbers):
            y[i, of_one] = 1
        return y


class DirectoryIterator(FileIterator):
    """Batches of the images in a folder; `ImageDataGenerator.flow_from_directory`.

    Args:
        directory: has a folder for each class, which can have subfolders.
        image_data_generator: transforms each image; None for no transformation.
        target_size: (height, width) of the resized images.
        color_mode: "rgb", "rgba" or "grayscale".
        classes: the class folders, in the order of their indices; None: all, in
            alphabetical order.
        class_mode: "categorical": targets (batch, classes) with 1 at the class;
            "binary" or "sparse": its index; "input": the images; None: no targets.
        batch_size: images in a batch.
        shuffle: whether to shuffle in each pass.
        seed: of order and transformations.
        data_format: "channels_last", "channels_first", or None for the global default.
        save_to_dir: a folder for the images of each batch; None: they are not saved.
        save_prefix: the prefix of these file names.
        save_format: the suffix of these file names, for example "png".
        follow_links: whether to visit folders that are links.
        subset: "training" or "validation": the part of each class by the generator's
            `validation_split`, whose first files are for validation.
        interpolation: "nearest", "bilinear", "bicubic", "hamming", "box" or "lanczos".
        keep_aspect_ratio: whether to crop instead of stretching.
        dtype: of batches; None: floatx.

    Raises:
        ArgumentError: if an argument has an invalid value.

    Example:
        >>> import os, tempfile
        >>> import numpy as np
        >>> from toolkit.utils import save_img
        >>> import toolkit.compat.tensorflow as tf
        >>> DirectoryIterator = tf.keras.preprocessing.image.DirectoryIterator
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     for name in ("cats", "dogs"):
        ...         os.mkdir(os.path.join(folder, name))
        ...         save_img(os.path.join(folder, name, "1.png"), np.ones((4, 4, 3)))
        ...     batches = DirectoryIterator(folder, None, (8, 8), batch_size=2)
        ...     x, y = next(batches)
        Found 2 images belonging to 2 classes.
        >>> x.shape, y.shape, batches.class_indices
        ((2, 8, 8, 3), (2, 2), {'cats': 0, 'dogs': 1})
    """

    def __init__(
        self,
        directory: str,
        image_data_generator: Any,
        target_size: Any = (256, 256),
        color_mode: str = "rgb",
        classes: Any = None,
        class_mode: str | None = "categorical",
        batch_size: int = 32,
        shuffle: bool = True,
        seed: int | None = None,
        data_format: str | None = None,
        save_to_dir: Any = None,
        save_prefix: str = "",
        save_format: str = "png",
        follow_links: bool = False,
        subset: str | None = None,
        interpolation: str = "nearest",
        keep_aspect_ratio: bool = False,
        dtype: Any = None,
    ) -> None:
        how = (color_mode, data_format, subset, interpolation, keep_aspect_ratio)
        self._read_as(image_data_generator, target_size, *how, dtype)
        self._save_as(save_to_dir, save_prefix, save_format)
        if class_mode not in _MODES:
            raise unknown_choice("DirectoryIterator: class_mode", class_mode, _MODES)
        self.directory, self.class_mode = directory, class_mode
        names = list(classes) if classes else _list_folders(directory)
        self.num_classes = len(names)
        self.class_indices = {name: index for index, name in enumerate(names)}
        groups = [self._list_images(name, follow_links) for name in names]
        numbers = [[index] * len(group) for index, group in enumerate(groups)]
        self._set_files(sum(groups, []), directory)
        self.classes = np.array(sum(numbers, []), "int32")
        print_message(
            f"Found {self.samples} images belonging to {self.num_classes} classes."
        )
        super().__init__(self.samples, batch_size, shuffle, seed)

    def _list_images(self, name: str, follow_links: bool) -> list[str]:
        """Return the images of a class, relative to the directory."""
        folder = os.path.join(self.directory, name)
        walk = sorted(os.walk(folder, followlinks=follow_links), key=lambda at: at[0])
        paths = [
            os.path.join(name, os.path.relpath(os.path.join(at, file), folder))
            for at, _, files in walk
            for file in sorted(files)
            if file.lower().endswith(self.white_list_formats)
        ]
        return select_subset(paths, self.split)


def _list_folders(directory: str | PathLike[str]) -> list[str]:
    """Return the names of the subfolders, sorted."""
    return sorted(entry.name for entry in os.scandir(directory) if entry.is_dir())


def select_subset(rows: list[Any], bounds: tuple[float, float] | None) -> list[Any]:
    """Return the rows between two fractions of all rows."""
    if bounds is None:
        return rows
    start, stop = (int(bound * len(rows)) for bound in bounds)
    return rows[start:stop]
