"""Weights in files: `.weights.h5`, split ones, and those inside whole-model files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from toolkit.compiler import spreading
from toolkit.errors import ArgumentError, NotBuiltError
from toolkit.files.staging import replace_file
from toolkit.models.saving.archives import weights_in_archive
from toolkit.models.saving.h5_files import write_groups
from toolkit.models.saving.legacy_h5 import load_legacy_weights
from toolkit.models.saving.shards import load_shards, save_shards
from toolkit.models.saving.state import all_variables, groups_of, load_state
from toolkit.reading.hdf5 import open_datasets

H5 = (".h5", ".hdf5")


def save_weights(
    model: Any,
    filepath: str | os.PathLike[str],
    overwrite: bool = True,
    max_shard_size: float | None = None,
    objects_to_skip: Any = None,
) -> None:
    """Write all weights, and the optimizer's state, to a file in one step.

    A failure, a kill too, leaves all of the older file or files, or all of the new
    ones; what has been saved is on disk. Each array has a checksum, which
    `load_weights` compares. In a job all processes call this, and one writes.

    Args:
        model: a built model.
        filepath: must end in ".weights.h5"; or, with `max_shard_size`, in
            ".weights.json".
        overwrite: whether an existing file may be replaced.
        max_shard_size: the most gigabytes of one file; more go to further files, which
            the ".weights.json" file lists.
        objects_to_skip: layers to leave out.

    Raises:
        ArgumentError: for another ending, or if the file exists and may not be
            replaced.
    """
    spreading.on_chief(
        lambda: _save(
            model, Path(filepath), overwrite, max_shard_size, objects_to_skip or ()
        ),
        all_variables(model),
    )


def _save(
    model: Any, path: Path, overwrite: bool, max_shard_size: float | None, skip: Any
) -> None:
    endings = (
        (".weights.h5",) if max_shard_size is None else ("weights.h5", "weights.json")
    )
    if not path.name.endswith(endings):
        ending = ".weights.h5" if max_shard_size is None else ".weights.json"
        raise ArgumentError(
            f"save_weights: The filename must end in `{ending}`; expected a file name "
            f"that ends in {ending!r}; received {str(path)!r}"
        )
    check_free(path, overwrite, "save_weights")
    check_built(model, "save_weights")
    groups = groups_of(model, skip)
    if max_shard_size is not None:
        save_shards(path, groups, max_shard_size)
    else:
        replace_file(path, lambda temporary: write_groups(temporary, groups))


def load_weights(
    model: Any,
    filepath: str | os.PathLike[str],
    skip_mismatch: bool = False,
    objects_to_skip: Any = None,
    by_name: bool | None = None,
) -> None:
    """Read all weights of a model from a file, or change nothing.

    Layers that only the file has are left out, with a warning.

    Args:
        model: a built model.
        filepath: what `save_weights` or `save_model`, here or in Keras, has written:
            ".weights.h5", ".weights.json", ".keras", or the older ".h5".
        skip_mismatch: whether to load what fits and warn about the rest.
        objects_to_skip: layers to leave as they are; not for ".keras" and ".h5".
        by_name: for ".h5": whether layers go by their names, not by their order.

    Raises:
        ModelFileError: listing every mismatch, or if the file is damaged.
    """
    path = Path(filepath)
    check_built(model, "load_weights")
    legacy = path.name.endswith(H5) and not path.name.endswith(".weights.h5")
    whole = path.name.endswith(".keras")
    if by_name is not None and not legacy:
        raise ArgumentError(
            "load_weights: `by_name` only supports loading legacy '.h5' or '.hdf5' "
            f"files; received {str(path)!r}"
        )
    if objects_to_skip is not None and (legacy or whole):
        raise ArgumentError(
            "load_weights: `objects_to_skip` only supports loading '.weights.h5' "
            f"files; received {str(path)!r}"
        )
    skip = objects_to_skip or ()
    if legacy:
        load_legacy_weights(model, path, skip_mismatch, bool(by_name))
    elif whole:
        with weights_in_archive(path) as datasets:
            load_state(model, datasets, str(path), skip_mismatch, may_hold_more=True)
    elif path.name.endswith(".weights.json"):
        load_shards(model, path, skip_mismatch, skip)
    elif path.name.endswith(".h5"):
        with open_datasets(path) as datasets:
            load_state(model, datasets, str(path), skip_mismatch, skip, True)
    else:
        raise ArgumentError(
            "load_weights: expected a file that ends in .weights.h5, .weights.json, "
            f".keras or .h5; received {str(path)!r}"
        )


def check_free(path: Path, overwrite: bool, method: str) -> None:
    """Raise if the file exists and may not be replaced."""
    if not overwrite and path.exists():
        raise ArgumentError(
            f"{method}: {str(path)!r} exists already; pass overwrite=True to replace it"
        )


def check_built(model: Any, method: str) -> None:
    """Raise if the model has no weights yet."""
    if not model.built:
        raise NotBuiltError(
            f"{method}: the model {model.name!r} has no weights yet; build it or call "
            "it on data first"
        )
