"""Weights in files: `.weights.h5`, safetensors, and files of whole models."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toolkit.compiler import distribution_context
from toolkit.errors import ArgumentError, NotBuiltError
from toolkit.files.staging import replace_file
from toolkit.models.saving.archives import weights_in_archive
from toolkit.models.saving.file_lists import list_path
from toolkit.models.saving.h5_files import write_groups
from toolkit.models.saving.legacy_h5 import load_legacy_weights
from toolkit.models.saving.other_formats import refuse_other_formats
from toolkit.models.saving.peft_files import (
    CONFIG,
    WEIGHTS,
    load_adapters,
    save_adapters,
)
from toolkit.models.saving.safetensors_lists import LIST
from toolkit.models.saving.safetensors_saving import safetensors_of, save_safetensors
from toolkit.models.saving.safetensors_weights import load_safetensors
from toolkit.models.saving.shards import load_shards, save_shards
from toolkit.models.saving.state import (
    all_variables,
    groups_of,
    load_state,
    variables_by_group,
)
from toolkit.reading.hdf5 import open_datasets

if TYPE_CHECKING:
    from toolkit.models.model import Model

H5 = (".h5", ".hdf5")
SAFETENSORS = (".safetensors", LIST)


def save_weights(
    model: Any,
    filepath: str | os.PathLike[str],
    overwrite: bool = True,
    max_shard_size: float | None = None,
    objects_to_skip: Any = None,
    mapping: Any = None,
    adapters: bool = False,
) -> None:
    """Write all weights to a file, atomically; HDF5 also stores the optimizer's state.

    After a failure, even a kill, either all older files or all new files are complete
    on disk. In HDF5 each array has a checksum, which `load_weights` verifies. In a job
    all processes call this, and one writes.

    Args:
        model: a built model.
        filepath: the path: ".weights.h5" or ".safetensors"; or, with `max_shard_size`,
            ".weights.json" or ".safetensors.index.json".
        overwrite: whether an existing file can be replaced.
        max_shard_size: the maximum size of one file, in gigabytes; further files are
            listed in the ".json" index.
        objects_to_skip: layers to leave out.
        mapping: for safetensors: names and layouts of weights in the file, as for
            `load_weights`; no functions. A weight with LoRA is stored merged, unless
            the mapping names both factors.
        adapters: whether to write only the low-rank adaptations, in the format of PEFT.
            The path must end in "adapter_model.safetensors"; "adapter_config.json" is
            written next to it. The mapping contains the names of the adapted weights in
            the torch model.

    Raises:
        ArgumentError: for another ending, a size that is not above 0, an existing file
            that must not be replaced, or a mapping that does not cover the file.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> import toolkit
        >>> model = toolkit.Sequential([toolkit.Input((3,)), toolkit.layers.Dense(2)])
        >>> path = Path(tempfile.mkdtemp()) / "model.weights.h5"
        >>> toolkit.saving.save_weights(model, path)
        >>> toolkit.saving.load_weights(model, path)
    """
    if adapters:
        path = _adapter_path(filepath, "save_weights")
        check_built(model, "save_weights")
        _refuse_with_adapters(
            "save_weights",
            max_shard_size=max_shard_size,
            objects_to_skip=objects_to_skip,
        )

        def save() -> None:
            check_free(path, overwrite, "save_weights")
            check_free(path.with_name(CONFIG), overwrite, "save_weights")
            save_adapters(model, path, mapping)

        distribution_context.on_chief(save, all_variables(model))
        return
    distribution_context.on_chief(
        lambda: _save(
            model, Path(filepath), overwrite, max_shard_size, objects_to_skip, mapping
        ),
        all_variables(model),
    )


def _adapter_path(filepath: str | os.PathLike[str], method: str) -> Path:
    """Return the path of a PEFT file; raise if it has another name."""
    path = Path(filepath)
    if path.name != WEIGHTS:
        raise ArgumentError(
            f"{method}: adapters=True: expected a path that ends in {WEIGHTS!r}, which "
            f"PEFT reads with {CONFIG!r} next to it; received {str(path)!r}"
        )
    return path


def _refuse_with_adapters(method: str, **options: Any) -> None:
    """Raise for options that do not apply to adapters."""
    for name, value in options.items():
        if value:
            raise ArgumentError(
                f"{method}: `{name}` does not apply with adapters=True; received "
                f"{value!r}"
            )


def _save(
    model: Model,
    path: Path,
    overwrite: bool,
    max_shard_size: float | None,
    skip: Any,
    mapping: Any,
) -> None:
    if max_shard_size is not None and not max_shard_size > 0:
        raise ArgumentError(
            "save_weights: max_shard_size: expected a number of gigabytes > 0; "
            f"received {max_shard_size!r}"
        )
    if path.name.endswith(SAFETENSORS):
        if max_shard_size is not None:
            path = list_path(path, ".safetensors", LIST)
        check_free(path, overwrite, "save_weights")
        check_built(model, "save_weights")
        arrays = safetensors_of(model, mapping, skip or ())
        save_safetensors(path, arrays, max_shard_size)
        return
    if mapping is not None:
        raise _only_for_safetensors("save_weights", "mapping", path)
    endings = (
        (".weights.h5",) if max_shard_size is None else ("weights.h5", "weights.json")
    )
    if not path.name.endswith(endings):
        ending = ".weights.h5" if max_shard_size is None else ".weights.json"
        raise ArgumentError(
            f"save_weights: The filename must end in `{ending}`; expected a file name "
            f"that ends in {ending!r}, or in '.safetensors'; received {str(path)!r}"
        )
    if max_shard_size is not None:
        path = list_path(path, ".h5", ".json")
    check_free(path, overwrite, "save_weights")
    check_built(model, "save_weights")
    if max_shard_size is not None:
        save_shards(path, groups_of(model, skip or ()), max_shard_size)
        return
    groups = variables_by_group(model, skip or ())
    replace_file(path, lambda temporary: write_groups(temporary, groups))


def load_weights(
    model: Any,
    filepath: str | os.PathLike[str],
    skip_mismatch: bool = False,
    objects_to_skip: Any = None,
    by_name: bool | None = None,
    mapping: Any = None,
    ignore: Iterable[str] | None = None,
    adapters: bool = False,
) -> None:
    """Load all weights of a model from a file, or none on error.

    Layers that only an HDF5 file has are skipped, with a warning.

    Args:
        model: a built model.
        filepath: a file of `save_weights` or `save_model`, of this package or of Keras:
            ".weights.h5", ".weights.json", ".keras", or the older ".h5"; or any
            ".safetensors" and ".safetensors.index.json".
        skip_mismatch: whether to load matching weights and warn about the rest.
        objects_to_skip: layers to leave unchanged; not for ".keras" and ".h5".
        by_name: for ".h5": whether to match layers by name, not by order.
        mapping: for safetensors: the source of each weight in the file. A dict or a
            function from a weight's path, without the name of the model, to a name, to
            `(name, layout)`, to `(name, layout, part)`, to `(names, function)`, or to
            None for a weight that is not in the file. A layout has the axes in the file
            and the axes of the weight, such as "o i h w -> h w i o". A `*` in the key
            of a dict is any text without "/"; in the name it is the same text.
        ignore: for safetensors: patterns, such as "*.num_batches_tracked", of names in
            the file without a weight in the model.
        adapters: whether to load only low-rank adaptations, from PEFT's
            "adapter_model.safetensors" and the config next to it, into layers with
            `enable_lora`.

    Raises:
        ModelFileError: with a list of all mismatches, or if the file is corrupt.
        ArgumentError: for another ending, or an unsupported argument.

    Example:
        >>> import toolkit, os, tempfile
        >>> model = toolkit.Sequential([toolkit.Input((3,)), toolkit.layers.Dense(2)])
        >>> path = os.path.join(tempfile.mkdtemp(), "as_in_torch.safetensors")
        >>> as_in_torch = {"*/kernel": ("fc.weight", "o i -> i o"), "*/bias": "fc.bias"}
        >>> model.save_weights(path, mapping=as_in_torch)
        >>> model.load_weights(path, mapping=as_in_torch)
    """
    check_built(model, "load_weights")
    if adapters:
        _refuse_with_adapters(
            "load_weights",
            skip_mismatch=skip_mismatch,
            objects_to_skip=objects_to_skip,
            by_name=by_name,
            ignore=ignore,
        )
        load_adapters(model, _adapter_path(filepath, "load_weights"), mapping)
        return
    path = Path(filepath)
    refuse_other_formats("load_weights", filepath)
    if path.name.endswith(SAFETENSORS):
        if by_name is not None:
            raise ArgumentError(
                "load_weights: safetensors files always load weights by name; "
                f"received by_name={by_name!r}"
            )
        load_safetensors(
            *(model, path, mapping, skip_mismatch, objects_to_skip or (), ignore or ())
        )
        return
    for name, value in (("mapping", mapping), ("ignore", ignore)):
        if value is not None:
            raise _only_for_safetensors("load_weights", name, path)
    legacy = path.name.endswith(H5) and not path.name.endswith(".weights.h5")
    is_archive = path.name.endswith(".keras")
    if by_name is not None and not legacy:
        raise ArgumentError(
            "load_weights: `by_name` only supports loading legacy '.h5' or '.hdf5' "
            f"files; received {str(path)!r}"
        )
    if objects_to_skip is not None and (legacy or is_archive):
        raise ArgumentError(
            "load_weights: `objects_to_skip` only supports loading '.weights.h5' "
            f"files; received {str(path)!r}"
        )
    skip = objects_to_skip or ()
    if legacy:
        load_legacy_weights(model, path, skip_mismatch, bool(by_name))
    elif is_archive:
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
            f".keras, .h5, .safetensors or {LIST}; received {str(path)!r}"
        )


def _only_for_safetensors(method: str, name: str, path: Path) -> ArgumentError:
    return ArgumentError(
        f"{method}: `{name}` only supports '.safetensors' files; received {str(path)!r}"
    )


def check_free(path: Path, overwrite: bool, method: str) -> None:
    """Raise if the file exists and must not be replaced."""
    if not overwrite and path.exists():
        raise ArgumentError(
            f"{method}: {str(path)!r} exists already; pass overwrite=True to replace it"
        )


def check_built(model: Any, method: str) -> None:
    """Raise if the model has no weights yet."""
    if not model.built:
        raise NotBuiltError(
            f"{method}: the model {model.name!r} has no weights yet; call "
            "`build(input_shape)`, call it on data, or begin a Sequential with an Input"
        )
