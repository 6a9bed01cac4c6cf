"""KerasFileEditor: inspection and modification of the weights in a file."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from toolkit.console.messages import print_message
from toolkit.errors import ArgumentError, MissingKeyError
from toolkit.files.staging import replace_file
from toolkit.models.saving.archives import archived_json, weights_in_archive
from toolkit.models.saving.h5_files import write_groups
from toolkit.models.saving.state import groups_of
from toolkit.reading.hdf5 import Dataset, open_datasets
from toolkit.type_aliases import Array

Tree = dict[str, Any]
_OWN = "vars"  # the group with an object's direct variables


class KerasFileEditor:
    """Editor of the weights in a `.keras` or `.weights.h5` file.

    The file is read like by `load_weights`: external links, virtual datasets and data
    larger than the file are rejected, and no code runs. The file stays unchanged;
    `save` writes a new one.

    Args:
        filepath: the path, which ends in ".keras" or ".weights.h5".

    Attributes:
        weights_dict: the arrays by name, in a dict for each object.
        config, metadata: the config and metadata of a `.keras` file; None for other
            files.
        object_metadata: path of an object -> its name in the file.

    Raises:
        ArgumentError: for another ending.
        ModelFileError: if the file is corrupt or suspicious.

    Example:
        >>> import tempfile, toolkit
        >>> model = toolkit.Sequential([toolkit.Input((3,)), toolkit.layers.Dense(2)])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     model.save_weights(f"{folder}/model.weights.h5")
        ...     editor = toolkit.saving.KerasFileEditor(f"{folder}/model.weights.h5")
        >>> editor.rename_object("layers/dense", "dense_1")
        >>> [w.shape for w in editor.weights_dict["layers"]["dense_1"].values()]
        [(3, 2), (2,)]
    """

    def __init__(self, filepath: str | os.PathLike[str]) -> None:
        path = Path(filepath)
        self.filepath: str = str(filepath)
        self.config: Any = None
        self.metadata: Any = None
        self.object_metadata: dict[str, dict[str, str]] = {}
        if path.name.endswith(".keras"):
            self.config, self.metadata = archived_json(path)
            with weights_in_archive(path) as datasets:
                self.weights_dict: Tree = self._read(datasets)
        elif path.name.endswith(".weights.h5"):
            with open_datasets(path) as datasets:
                self.weights_dict = self._read(datasets)
        else:
            raise ArgumentError(
                "KerasFileEditor: Invalid filename: expected one that ends in .keras "
                f"or .weights.h5; received {self.filepath!r}"
            )

    def _read(self, datasets: dict[str, Dataset]) -> Tree:
        """Return the arrays in a dict for each object, under their keys."""
        weights: Tree = {}
        for path, dataset in sorted(datasets.items()):
            *parents, key = path.split("/")
            if parents and parents[-1] == _OWN:
                parents.pop()
            target = weights
            for name in parents:
                target = target.setdefault(name, {})
            target[key] = dataset.read()
            if dataset.owner is not None:
                self.object_metadata["/".join(parents)] = {"name": dataset.owner}
        return weights

    # --- inspection -------------------------------------------------------------------

    def summary(self) -> None:
        """Print the objects, and the shapes and dtypes of their weights."""
        if self.metadata is not None:
            program = f"Keras {self.metadata.get('keras_version')}"
            if version := self.metadata.get("toolkit_version"):
                program = f"toolkit {version} in the format of {program}"
            print_message(f"Saved with {program}, {self.metadata.get('date_saved')}")
        print_message(f"Weights in {self.filepath!r}")
        print_message("\n".join(self._lines(self.weights_dict, "", "  ")))

    def _lines(self, weights: Tree, path: str, indent: str) -> Iterator[str]:
        for i, (name, value) in enumerate(weights.items(), 1):
            branch, below = ("└─ ", "   ") if i == len(weights) else ("├─ ", "│  ")
            inner = f"{path}/{name}" if path else name
            if isinstance(value, dict):
                stored_value = self.object_metadata.get(inner, {}).get("name")
                yield f"{indent}{branch}{name}" + (
                    f" ({stored_value!r})" if stored_value else ""
                )
                yield from self._lines(value, inner, indent + below)
            else:
                description = f"shape={value.shape}, dtype={value.dtype}"
                yield f"{indent}{branch}{name}: {description}"

    def compare(self, reference_model: Any) -> dict[str, Any]:
        """Print every difference between the file and a model.

        Args:
            reference_model: a built model.

        Returns:
            A dict of `status`, "success" or "error"; `error_count`, the number of
            weights or whole objects that differ; and `match_count`, the number of equal
            weights.
        """
        expected: Tree = {}
        for path, (_, arrays) in groups_of(reference_model).items():
            target = expected
            for name in path.split("/")[:-1]:
                target = target.setdefault(name, {})
            target.update(arrays)
        matches, errors = _compare(self.weights_dict, _without_empty(expected), "")
        for error in errors:
            print_message(f"  {error}")
        status = "error" if errors else "success"
        summary_text = f"{matches} weights are equal, {len(errors)} differences"
        print_message(f"{self.filepath!r} and {reference_model.name!r}: {summary_text}")
        return {"status": status, "error_count": len(errors), "match_count": matches}

    # --- modification -----------------------------------------------------------------

    def rename_object(self, object_name: str, new_name: str) -> None:
        """Rename an object, such as a layer.

        Args:
            object_name: its path, "layers/dense", or its name if that is unique.
            new_name: the last component of the new path.
        """
        if "/" in new_name:
            raise ArgumentError(
                "rename_object: expected new_name to be a leaf name, not a path; "
                f"received {new_name!r}"
            )
        holder, name = self._find(object_name)
        if new_name in holder and new_name != name:
            raise ArgumentError(f"rename_object: {new_name!r} exists already")
        holder[new_name] = holder.pop(name)

    def delete_object(self, object_name: str) -> None:
        """Remove an object, such as a layer, with its weights.

        Args:
            object_name: its path, or its name if that is unique.
        """
        holder, name = self._find(object_name)
        del holder[name]

    def add_object(self, object_path: str, weights: dict[str, Any]) -> None:
        """Add an object, such as a layer.

        Args:
            object_path: its full path, "layers/dense_2".
            weights: key, usually "0", "1", ..., -> array.
        """
        holder: Tree = self.weights_dict
        *parents, name = object_path.split("/")
        for component in parents:
            if not isinstance(holder.get(component), dict):
                raise ArgumentError(
                    f"add_object: Path {'/'.join(parents)!r} not found in model"
                )
            holder = holder[component]
        holder[name] = _arrays("add_object", weights)

    def delete_weight(self, object_name: str, weight_name: str) -> None:
        """Remove one weight of an object.

        Args:
            object_name: the object's path, or its name if that is unique.
            weight_name: the weight's key, such as "0".
        """
        holder, name = self._find(object_name)
        if weight_name not in holder[name]:
            raise MissingKeyError(
                f"delete_weight: Weight {weight_name} not found in object "
                f"{object_name!r}, which has {list(holder[name])}"
            )
        del holder[name][weight_name]

    def add_weights(self, object_name: str, weights: dict[str, Any]) -> None:
        """Add weights to an object, or replace them.

        Args:
            object_name: the object's path, or its name if that is unique.
            weights: key, usually "0", "1", ..., -> array.
        """
        holder, name = self._find(object_name)
        holder[name].update(_arrays("add_weights", weights))

    def _find(self, name: str) -> tuple[Tree, str]:
        """Return the dict that contains an object, and the object's key in it."""
        if "/" not in name:
            holders = list(_holders(self.weights_dict, name))
            if len(holders) != 1:
                how_often = "more than once" if holders else "nowhere"
                raise ArgumentError(
                    f"KerasFileEditor: Name {name!r} occurs {how_often} in the file; "
                    "pass one of the paths that `summary` shows"
                )
            return holders[0], name
        holder: Any = self.weights_dict
        *parents, last = name.split("/")
        for component in parents:
            holder = holder.get(component) if isinstance(holder, dict) else None
        if not isinstance(holder, dict) or last not in holder:
            raise ArgumentError(
                f"KerasFileEditor: Path {name!r} not found in model; see `summary`"
            )
        return holder, last

    # --- writing ----------------------------------------------------------------------

    def save(self, filepath: str | os.PathLike[str]) -> None:
        """Write the weights to a new file, atomically.

        Args:
            filepath: the path, which must end in ".weights.h5".
        """
        path = Path(filepath)
        if not path.name.endswith(".weights.h5"):
            raise ArgumentError(
                "KerasFileEditor.save: Invalid `filepath` argument: expected one that "
                f"ends in .weights.h5; received {str(path)!r}"
            )
        groups = dict(self._groups(self.weights_dict, ""))
        replace_file(path, lambda temporary: write_groups(temporary, groups))

    def resave_weights(self, filepath: str | os.PathLike[str]) -> None:
        """Write the weights like `save`.

        Args:
            filepath: the path of the new file.
        """
        self.save(filepath)

    def _groups(
        self, weights: Tree, path: str
    ) -> Iterator[tuple[str, tuple[str, dict[str, Any]]]]:
        """Return group in a file -> name of the object, and its arrays."""
        arrays = {k: v for k, v in weights.items() if not isinstance(v, dict)}
        if arrays:
            last = path.rpartition("/")[2]
            name = self.object_metadata.get(path, {}).get("name", last)
            yield f"{path}/{_OWN}" if path else _OWN, (name, arrays)
        for key, value in weights.items():
            if isinstance(value, dict):
                yield from self._groups(value, f"{path}/{key}" if path else key)


def _arrays(method: str, weights: Any) -> dict[str, Array]:
    if not isinstance(weights, dict):
        raise ArgumentError(
            f"{method}: Argument `weights` should be a dict of key, usually '0', '1', "
            f"..., -> array; received {type(weights).__name__}"
        )
    return {str(key): np.asarray(value) for key, value in weights.items()}


def _holders(weights: Tree, name: str) -> Iterator[Tree]:
    if name in weights:
        yield weights
    for value in weights.values():
        if isinstance(value, dict):
            yield from _holders(value, name)


def _without_empty(weights: Tree) -> Tree:
    """Return the objects that have weights, directly or nested."""
    selected = {
        k: _without_empty(v) if isinstance(v, dict) else v for k, v in weights.items()
    }
    return {k: v for k, v in selected.items() if not (isinstance(v, dict) and not v)}


def _compare(stored: Tree, expected: Tree, path: str) -> tuple[int, list[str]]:
    """Return the number of equal weights, and a description of each difference."""
    matches, errors = 0, []
    for key in dict.fromkeys((*expected, *stored)):
        inner = f"{path}/{key}"
        if key not in stored or key not in expected:
            present_in, missing_from = (
                ("model", "file") if key in expected else ("file", "model")
            )
            summary_text = expected.get(key, stored.get(key))
            kind = (
                f"object {list(summary_text)}"
                if isinstance(summary_text, dict)
                else "weight"
            )
            errors.append(
                f"{inner}: {kind} of the {present_in}, missing in the {missing_from}"
            )
            continue
        stored_value, other = stored[key], expected[key]
        if isinstance(stored_value, dict) and isinstance(other, dict):
            inner_matches, below = _compare(stored_value, other, inner)
            matches, errors = matches + inner_matches, errors + below
        elif isinstance(stored_value, dict) or isinstance(other, dict):
            errors.append(f"{inner}: one file has an object, the other a weight")
        elif stored_value.shape != other.shape:
            errors.append(
                f"{inner}: shape {stored_value.shape}; the model has {other.shape}"
            )
        else:
            matches += 1
    return matches, errors
