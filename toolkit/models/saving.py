"""Weights in files, in the layout of Keras 3's `.weights.h5`.

The variables of a layer are the datasets `<path>/vars/0`, `1`, ...; the path is made of
attribute names, and of class names where layers are in lists, tuples and dicts.
"""

from __future__ import annotations

import os
import warnings
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from toolkit.errors import ArgumentError, ModelFileError, NotBuiltError
from toolkit.layers.layer import Layer
from toolkit.layers.tracking import StateOwner
from toolkit.models.h5_files import Dataset, open_datasets, replace_file, write_groups
from toolkit.naming import to_snake_case
from toolkit.optimizers import Optimizer
from toolkit.trace import StatelessScope

_ENDING = ".weights.h5"
# Where functional and sequential models keep their graph, beside `layers`.
_OF_MODELS = {
    *("_functional", "_layers", "_topology", "_operations", "_plan"),
    *("_inputs_struct", "_outputs_struct", "_inputs", "_outputs", "_result_slots"),
}


def save_weights(
    model: Any,
    filepath: str | os.PathLike[str],
    overwrite: bool = True,
    max_shard_size: float | None = None,
) -> None:
    """Write all weights to a file in one step; see `Model.save_weights`."""
    path = Path(filepath)
    if max_shard_size is not None:
        raise ArgumentError(
            "save_weights: files are not split; expected max_shard_size=None, "
            f"received {max_shard_size!r}"
        )
    if not path.name.endswith(_ENDING):
        raise ArgumentError(
            f"save_weights: expected a file name that ends in {_ENDING!r}; "
            f"received {str(path)!r}"
        )
    if not overwrite and path.exists():
        raise ArgumentError(
            f"save_weights: {str(path)!r} exists already; pass overwrite=True to "
            "replace it"
        )
    _check_built(model, "save_weights")
    groups = {}
    for part_path, part in parts_of(model).items():
        arrays = {key: _array(value) for key, value in _own(part).items()}
        groups[_group(part_path)] = (part.name, arrays)
    replace_file(path, lambda temporary: write_groups(temporary, groups))


def load_weights(
    model: Any,
    filepath: str | os.PathLike[str],
    skip_mismatch: bool = False,
    objects_to_skip: Any = None,
) -> None:
    """Read all weights from a file, or change nothing; see `Model.load_weights`."""
    path = Path(filepath)
    _check_built(model, "load_weights")
    parts = parts_of(model, objects_to_skip or ())
    with open_datasets(path) as datasets, StatelessScope() as scope:
        plan, problems = _match(parts, datasets, model, skipping=bool(objects_to_skip))
        if not problems or skip_mismatch:
            problems += _read(plan)
    if problems and not skip_mismatch:
        raise ModelFileError(
            f"load_weights: {str(path)!r} does not fit the model, and nothing was "
            "changed:\n  " + "\n  ".join(map(str, problems))
        )
    if problems:
        warnings.warn(
            "load_weights: left as it was:\n  " + "\n  ".join(map(str, problems)),
            stacklevel=3,
        )
    for variable, value in scope.writes.items():
        variable.assign(value)


def _check_built(model: Any, method: str) -> None:
    if not model.built:
        raise NotBuiltError(
            f"{method}: the model {model.name!r} has no weights yet; build it or call "
            "it on data first"
        )


# --- which object is where ------------------------------------------------------------


def parts_of(model: Any, skip: Any = ()) -> dict[str, Any]:
    """Path -> layer or optimizer, for all with state; each once, where first met."""
    found: dict[str, Any] = {}
    seen = {id(part) for part in skip}

    def visit(part: Any, path: str) -> None:
        if id(part) in seen:
            return
        seen.add(id(part))
        found[path] = part
        for name, child in _children(part):
            descend(child, f"{path}/{name}" if path else name)

    def descend(child: Any, path: str) -> None:
        if isinstance(child, (StateOwner, Optimizer)):
            visit(child, path)
        elif isinstance(child, (list, tuple, dict)) and id(child) not in seen:
            seen.add(id(child))
            values = child.values() if isinstance(child, dict) else child
            for name, value in _named(values):
                descend(value, f"{path}/{name}")

    visit(model, "")
    return found


def _named(values: Any) -> Iterator[tuple[str, Any]]:
    """What a container holds, by unique class names: layers' own names vary."""
    counts: Counter[str] = Counter()
    for value in values:
        if isinstance(value, (StateOwner, Optimizer)):
            name = to_snake_case(type(value).__name__)
        elif isinstance(value, (list, tuple, dict)):
            name = "container"
        else:
            continue
        count = counts[name]
        counts[name] += 1
        yield (f"{name}_{count}" if count else name), value


def _children(part: Any) -> Iterator[tuple[str, Any]]:
    """Attributes that may hold layers: `layers` of a graph first, private ones last."""
    is_graph = hasattr(part, "_functional") or hasattr(part, "_topology")
    if is_graph:
        yield "layers", part.layers
    skipped = _machinery(type(part))  # type: ignore[arg-type]
    for name in sorted(dir(part), key=lambda name: (name.startswith("_"), name)):
        if name.startswith("__") or name in skipped or (is_graph and name == "layers"):
            continue
        try:
            child = getattr(part, name)
        except Exception:  # a property that has no value now is no state
            continue
        yield name, child


@cache
def _machinery(cls: type) -> frozenset[str]:
    """Attributes that hold no layers of a user: those of all layers and models."""
    if issubclass(cls, Optimizer):
        return frozenset(dir(Optimizer))
    names = set(dir(Layer(name="any"))) | _OF_MODELS
    for base in cls.__mro__:
        if base.__module__.startswith(__package__):
            names |= set(vars(base))
    return frozenset(names - {"layers", "optimizer"})


# --- contents -------------------------------------------------------------------------


def _own(part: Any) -> dict[str, Any]:
    """What a part saves of itself: key -> Variable or array."""
    store: dict[str, Any] = {}
    part.save_own_variables(store)
    return store


def _array(value: Any) -> np.ndarray[Any, Any]:
    return np.asarray(value)


def _group(path: str) -> str:
    return f"{path}/vars" if path else "vars"


class Problem(NamedTuple):
    """Something in which file and model differ."""

    path: str
    what: str

    def __str__(self) -> str:
        return f"{self.path}: {self.what}"


class Load(NamedTuple):
    """A part of the model, and what the file has for it."""

    path: str
    part: Any
    stored: dict[str, Dataset]


def _match(
    parts: dict[str, Any], datasets: dict[str, Dataset], model: Any, skipping: bool
) -> tuple[list[Load], list[Problem]]:
    """What to load, and every difference between the file and the model."""
    groups: dict[str, dict[str, Dataset]] = {}
    for path, dataset in datasets.items():
        group, _, key = path.rpartition("/")
        groups.setdefault(group, {})[key] = dataset
    plan, problems = [], []
    for path, part in parts.items():
        load = Load(path, part, groups.pop(_group(path), {}))
        if isinstance(part, Optimizer):
            if _optimizer_fits(load, model):
                plan.append(load)
            continue
        found = [] if _loads_itself(part) else _differences(load)
        problems += found
        if not found:
            plan.append(load)
    for group, left in groups.items():
        # State of an optimizer that this model does not have is no contradiction.
        if skipping or group.split("/")[0] == "optimizer":
            continue
        for key, dataset in left.items():
            what = f"unexpected, of shape {dataset.shape}; the model has no such layer"
            problems.append(Problem(f"{group}/{key}", what))
    return plan, sorted(problems)


def _loads_itself(part: Any) -> bool:
    """Whether the part's class decides by itself what it takes from a file."""
    return type(part).load_own_variables is not StateOwner.load_own_variables


def _differences(load: Load) -> list[Problem]:
    problems = []
    own, group = _own(load.part), _group(load.path)
    for key, value in own.items():
        label = getattr(value, "path", load.part.name)
        if key not in load.stored:
            what = (
                f"missing in the file; expected {label} of shape {tuple(value.shape)}"
            )
        elif load.stored[key].shape != tuple(value.shape):
            what = (
                f"expected {label} of shape {tuple(value.shape)}; the file has "
                f"{load.stored[key].shape}"
            )
        else:
            continue
        problems.append(Problem(f"{group}/{key}", what))
    for key, dataset in load.stored.items():
        if key not in own:
            what = f"unexpected, of shape {dataset.shape}; {load.part.name} has no such"
            problems.append(Problem(f"{group}/{key}", what))
    return problems


def _optimizer_fits(load: Load, model: Any) -> bool:
    """Whether to load the optimizer's state; it may be absent without harm."""
    optimizer = load.part
    if not load.stored:
        return False
    if not optimizer.built and optimizer is model.optimizer:
        optimizer.build(model.trainable_variables)
    if not _differences(load):
        return True
    warnings.warn(
        f"load_weights: the file holds the state of another optimizer than "
        f"{optimizer.name!r}; it starts anew",
        stacklevel=4,
    )
    return False


def _read(plan: list[Load]) -> list[Problem]:
    """Load every part, inside the scope that is open; returns what failed."""
    problems = []
    for path, part, stored in plan:
        arrays = {key: dataset.read() for key, dataset in stored.items()}
        try:
            part.load_own_variables(arrays)
        except (KeyError, ValueError, TypeError) as error:
            problems.append(Problem(_group(path), str(error)))
    return problems
