"""Data sets from folders of files: a folder for each class, as in `keras.utils`."""

from __future__ import annotations

import os
from collections.abc import Callable
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np

from toolkit import ops
from toolkit.arguments import is_int
from toolkit.console.messages import print_message
from toolkit.core.strings import decode_bytes
from toolkit.core.tensor import Tensor
from toolkit.data.computed import check_format, compute_batches
from toolkit.errors import ArgumentError, DatasetError, MissingDataError, unknown_choice
from toolkit.ops.image.resizing import INTERPOLATIONS
from toolkit.reading.images import import_pillow, open_image, upper_bits
from toolkit.settings import standardize_data_format
from toolkit.utils.dataset_tensors import to_tensor
from toolkit.utils.image_resizing import fit_image
from toolkit.utils.images import MODES, img_to_array

_EXTENSIONS = {
    "images": (".bmp", ".gif", ".jpeg", ".jpg", ".png"),
    "text files": (".txt",),
    "audio files": (".wav",),
}
_ENCODERS: dict[str, Callable[[Any, int], Any]] = {
    "int": lambda labels, count: labels,
    "binary": lambda labels, count: ops.cast(labels, "float32")[:, None],
    "categorical": lambda labels, count: ops.one_hot(labels, count),
}


def _check_split(
    caller: str,
    split: float | None,
    subset: str | None,
    shuffle: bool,
    seed: int | None,
) -> None:
    """Raise if the arguments of a split contradict each other."""
    if split and not 0 < split < 1:
        raise ArgumentError(
            f"{caller}: `validation_split` must be between 0 and 1, received: {split}"
        )
    if bool(split) != bool(subset):
        raise ArgumentError(
            f"{caller}: `subset` and `validation_split` must be set together; "
            f"received {subset!r} and {split}"
        )
    if subset not in ("training", "validation", "both", None):
        raise ArgumentError(
            f'{caller}: `subset` must be either "training", "validation" or "both"; '
            f"received {subset!r}"
        )
    if split and shuffle and seed is None:
        raise ArgumentError(
            f"{caller}: with `validation_split` and shuffling you must provide a "
            "`seed`, so that the two subsets have no common files"
        )


def _list_files(folder: str, formats: tuple[str, ...], follow_links: bool) -> list[str]:
    """Return the paths of files in a folder and its subfolders, sorted."""
    walk = sorted(os.walk(folder, followlinks=follow_links), key=lambda entry: entry[0])
    return [
        os.path.join(root, name)
        for root, _, names in walk
        for name in sorted(names)
        if name.lower().endswith(formats)
    ]


def _list_classes(caller: str, directory: str, class_names: Any) -> list[str]:
    """Return the names of the class folders."""
    dirs = sorted(entry.name for entry in os.scandir(directory) if entry.is_dir())
    dirs = [name for name in dirs if not name.startswith(".")]
    if class_names is None:
        return dirs
    if not set(class_names) <= set(dirs):
        raise ArgumentError(
            f"{caller}: the `class_names` passed did not match the names of the "
            f"subdirectories: expected {dirs} or a subset; received {class_names}"
        )
    return list(class_names)


def _index_files(
    caller: str,
    directory: Any,
    labels: Any,
    class_names: Any,
    formats: tuple[str, ...],
    follow_links: bool,
) -> tuple[list[str], Any, list[str] | None]:
    """Return (paths, labels, class names); without labels, the last two are None."""
    directory = os.fspath(directory)
    if not os.path.isdir(directory):
        kind = DatasetError if os.path.lexists(directory) else MissingDataError
        problem = "is not a folder"
        if kind is MissingDataError:
            path = os.path.abspath(directory)
            problem = f"does not exist (the full path is {path!r})"
        raise kind(f"{caller}: expected a folder, but {directory!r} {problem}")
    if isinstance(labels, str) and labels == "inferred":
        names = _list_classes(caller, directory, class_names)
        folders = (os.path.join(directory, name) for name in names)
        groups = [_list_files(folder, formats, follow_links) for folder in folders]
        numbers = [[i] * len(group) for i, group in enumerate(groups)]
        return sum(groups, []), np.array(sum(numbers, []), "int32"), names
    if class_names is not None:
        raise ArgumentError(
            f'{caller}: you can only pass `class_names` if `labels="inferred"`; '
            f"received labels={labels}"
        )
    paths = _list_files(directory, formats, follow_links)
    if labels is None:
        return paths, None, None
    if not isinstance(labels, (list, tuple)):
        raise ArgumentError(
            f'{caller}: `labels` argument should be "inferred", None, or a list of an '
            f"integer for each file; received {labels!r}"
        )
    if len(labels) != len(paths):
        raise ArgumentError(
            f"{caller}: Expected the lengths of `labels` to match the number of files "
            f"in {directory!r}, {len(paths)}; received {len(labels)}"
        )
    return paths, np.array(labels, "int32"), [str(n) for n in sorted(set(labels))]


def common_arguments(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments that every kind of folder accepts."""
    names = set(signature(from_directory).parameters) & set(arguments)
    return {name: arguments[name] for name in names}


def _print_if_verbose(verbose: bool, text: str) -> None:
    if verbose:
        print_message(text)


def _split_files(
    paths: Any, labels: Any, split: Any, subset: Any, verbose: bool
) -> Any:
    """Return [(name, paths, labels), ...] of the requested subsets."""
    if not split:
        return [("", paths, labels)]
    num_validation = int(split * len(paths))
    boundary = len(paths) - num_validation
    slices = {"training": slice(boundary), "validation": slice(boundary, None)}
    sizes = {"training": boundary, "validation": num_validation}
    subsets = slices if subset == "both" else (subset,)
    for name in subsets:
        _print_if_verbose(verbose, f"Using {sizes[name]} files for {name}.")
    return [
        (
            f"{name} ",
            paths[slices[name]],
            None if labels is None else labels[slices[name]],
        )
        for name in subsets
    ]


def from_directory(
    caller: str,
    read: Callable[[list[str]], Any],
    media: str,
    directory: Any,
    labels: Any,
    label_mode: str | None,
    class_names: Any,
    batch_size: int | None,
    shuffle: bool,
    seed: int | None,
    validation_split: float | None,
    subset: str | None,
    follow_links: bool,
    format: str,
    verbose: bool,
) -> Any:
    """Return the data sets; `read` returns the inputs of a batch from file paths."""
    formats = _EXTENSIONS[media]
    check_format(caller, format)
    if label_mode not in (*_ENCODERS, None):
        raise ArgumentError(
            f"{caller}: `label_mode` argument must be one of {list(_ENCODERS)} or "
            f"None; received {label_mode!r}"
        )
    _check_split(caller, validation_split, subset, shuffle, seed)
    labels = None if label_mode is None else labels
    paths, labels, names = _index_files(
        caller, directory, labels, class_names, formats, follow_links
    )
    class_count = "" if names is None else f" belonging to {len(names)} classes"
    _print_if_verbose(verbose, f"Found {len(paths)} files{class_count}.")
    if label_mode == "binary" and names is not None and len(names) != 2:
        raise ArgumentError(
            f'{caller}: with label_mode="binary" there must be exactly 2 classes; '
            f"received {names}"
        )
    if shuffle:
        seed = int(np.random.default_rng().integers(1 << 31)) if seed is None else seed
        order = np.random.RandomState(seed).permutation(len(paths))
        paths = [paths[i] for i in order]
        labels = None if labels is None else labels[order]
    converter = to_tensor if format == "tf" else None
    datasets = []
    for subset_name, subset_paths, subset_labels in _split_files(
        paths, labels, validation_split, subset, verbose
    ):
        if not subset_paths:
            raise ArgumentError(
                f"{caller}: No {subset_name}{media} found in {directory!r}; "
                f"supported extensions are {', '.join(formats)}"
            )
        compute_batch = _make_batch_function(
            read, subset_paths, subset_labels, label_mode, names
        )
        is_shuffled = shuffle and subset_name != "validation "
        dataset = compute_batches(
            len(subset_paths), compute_batch, batch_size, is_shuffled, seed, converter
        )
        dataset.class_names, dataset.file_paths = names, subset_paths  # type: ignore[attr-defined]
        datasets.append(dataset)
    return datasets if subset == "both" else datasets[0]


def _make_batch_function(
    read: Any, paths: Any, labels: Any, label_mode: Any, names: Any
) -> Any:
    """Return the function that computes a batch from some of the files."""

    def compute_batch(rows: Any) -> Any:
        x = read([paths[i] for i in rows])
        if labels is None:
            return x
        batch_labels = ops.convert_to_tensor(labels[rows])
        return x, _ENCODERS[label_mode](batch_labels, len(names))

    return compute_batch


def _read_image(path: str, color_mode: str) -> Any:
    """Return the image in a file, in 8 bits; 16-bit images keep the high bits."""
    label = f"image_dataset_from_directory: {path}"
    image, mode = open_image(path, label), MODES[color_mode][0]
    if image.mode.startswith("I"):
        image = import_pillow(label).fromarray(upper_bits(image))
    return image if image.mode == mode else image.convert(mode)


def _make_image_reader(color_mode: str, **resizing: Any) -> Callable[[list[str]], Any]:
    """Return the function that reads images and resizes them."""
    data_format = resizing["data_format"]

    def read(paths: list[str]) -> Tensor:
        images = (
            img_to_array(_read_image(path, color_mode), data_format, "float32")
            for path in paths
        )
        return ops.stack([fit_image(image, **resizing) for image in images])

    return read


def image_dataset_from_directory(
    directory: Any,
    labels: Any = "inferred",
    label_mode: str | None = "int",
    class_names: Any = None,
    color_mode: str = "rgb",
    batch_size: int | None = 32,
    image_size: Any = (256, 256),
    shuffle: bool = True,
    seed: int | None = None,
    validation_split: float | None = None,
    subset: str | None = None,
    interpolation: str = "bilinear",
    follow_links: bool = False,
    crop_to_aspect_ratio: bool = False,
    pad_to_aspect_ratio: bool = False,
    data_format: str | None = None,
    format: str = "tf",
    verbose: bool = True,
) -> Any:
    """Return batches of the images in a folder, read on demand.

    Args:
        directory: the folder; with inferred labels, it contains a folder for each
            class.
        labels: "inferred" from the folders, None for images without labels, or an
            integer for each file in the alphabetical order of paths.
        label_mode: "int"; "binary": 0.0 or 1.0, (batch, 1); "categorical": (batch,
            classes), 1.0 at the label; None: images without labels.
        class_names: the folders to use, in the order of their labels.
        color_mode: "grayscale", "rgb" or "rgba".
        batch_size: images per batch; None: elements without a batch axis.
        image_size: (height, width) of the resized images.
        shuffle: whether the order is random, otherwise alphabetical.
        seed: seed of the order.
        validation_split: the fraction of files for validation, in (0, 1).
        subset: "training", "validation" or "both", if there is a split.
        interpolation: "bilinear", "nearest", "bicubic", "lanczos3", "lanczos5",
            "gaussian", "mitchellcubic"; or "area", the mean of the area of a pixel.
        follow_links: whether to visit folders that are links.
        crop_to_aspect_ratio: whether to crop sides instead of stretching.
        pad_to_aspect_ratio: whether to add zeros to sides instead of stretching.
        data_format: "channels_last", "channels_first", or None for the global default.
        format: "tf" or "grain"; no effect: toolkit has one kind of data set.
        verbose: whether to print the number of files.

    Returns:
        A `toolkit.data.Dataset` with `class_names` and `file_paths`: of tensors of
        images in [0, 255], float32 (batch, height, width, channels), or pairs of these
        and labels. For subset "both" a list of two.

    Example:
        >>> from toolkit.utils import image_dataset_from_directory
        >>> dataset = image_dataset_from_directory("images")  # doctest: +SKIP
    """
    arguments = common_arguments(locals())
    caller = "image_dataset_from_directory"
    size = (image_size,) * 2 if is_int(image_size) else tuple(image_size)
    if len(size) != 2 or min(size) < 1:
        raise ArgumentError(
            f"{caller}: invalid `image_size`: expected two integers >= 1; received "
            f"{image_size}"
        )
    if interpolation.lower() not in INTERPOLATIONS:
        raise unknown_choice(f"{caller}: interpolation", interpolation, INTERPOLATIONS)
    if crop_to_aspect_ratio and pad_to_aspect_ratio:
        raise ArgumentError(
            f"{caller}: only one of `crop_to_aspect_ratio` and `pad_to_aspect_ratio` "
            "can be True"
        )
    if color_mode not in MODES:
        raise ArgumentError(
            f"{caller}: `color_mode` must be one of {tuple(MODES)}; received "
            f"{color_mode!r}"
        )
    read = _make_image_reader(
        color_mode,
        size=size,
        interpolation=interpolation.lower(),
        crop_to_aspect_ratio=crop_to_aspect_ratio,
        pad_to_aspect_ratio=pad_to_aspect_ratio,
        data_format=standardize_data_format(data_format),
    )
    return from_directory(caller, read, "images", **arguments)


def text_dataset_from_directory(
    directory: Any,
    labels: Any = "inferred",
    label_mode: str | None = "int",
    class_names: Any = None,
    batch_size: int | None = 32,
    max_length: int | None = None,
    shuffle: bool = True,
    seed: int | None = None,
    validation_split: float | None = None,
    subset: str | None = None,
    follow_links: bool = False,
    format: str = "tf",
    verbose: bool = True,
) -> Any:
    """Return batches of the texts in a folder of `.txt` files, read on demand.

    Files are read as UTF-8. Invalid bytes are preserved, and are restored in tensors of
    strings.

    Args:
        directory: the folder; with inferred labels, it contains a folder for each
            class.
        labels: "inferred" from the folders, None for texts without labels, or an
            integer for each file in the alphabetical order of paths.
        label_mode: "int"; "binary": 0.0 or 1.0, (batch, 1); "categorical": (batch,
            classes), 1.0 at the label; None: texts without labels.
        class_names: the folders to use, in the order of their labels.
        batch_size: texts per batch; None: elements without a batch axis.
        max_length: maximum bytes of a text; None: no limit.
        shuffle: whether the order is random, otherwise alphabetical.
        seed: seed of the order.
        validation_split: the fraction of files for validation, in (0, 1).
        subset: "training", "validation" or "both", if there is a split.
        follow_links: whether to visit folders that are links.
        format: "tf" or "grain"; no effect: toolkit has one kind of data set.
        verbose: whether to print the number of files.

    Returns:
        A `toolkit.data.Dataset` with `class_names` and `file_paths`: of tensors of
        strings (batch,), or pairs of these and labels. For subset "both" a list of two.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from toolkit.utils import text_dataset_from_directory
        >>> folder = Path(tempfile.mkdtemp())
        >>> for label in ("bad", "good"):
        ...     (folder / label).mkdir()
        ...     size = (folder / label / "1.txt").write_text(f"a {label} film")
        ...
        >>> dataset = text_dataset_from_directory(folder, shuffle=False, verbose=False)
        >>> dataset.class_names
        ['bad', 'good']
    """
    arguments = common_arguments(locals())

    def read(paths: list[str]) -> Any:
        texts = [decode_bytes(Path(path).read_bytes()[:max_length]) for path in paths]
        return np.array(texts, dtype=object).astype(str)

    caller = "text_dataset_from_directory"
    return from_directory(caller, read, "text files", **arguments)
