"""Matching of a model's state with the content of a file, before values are read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from toolkit.console.frames import warn
from toolkit.core.convert import adopt
from toolkit.core.trace import StatelessScope
from toolkit.core.variable import assign_all
from toolkit.layers.tracking import StateOwner
from toolkit.models.saving.mismatches import (
    Mismatch,
    mismatch_message,
    report_mismatches,
)
from toolkit.models.saving.state_paths import parts_of
from toolkit.optimizers import Optimizer
from toolkit.optimizers.accumulators import accepts_saved
from toolkit.type_aliases import Array

if TYPE_CHECKING:
    from toolkit.reading.hdf5 import Dataset

Groups = dict[str, tuple[str, dict[str, Any]]]


def variables_by_group(model: Any, skip: Any = ()) -> Groups:
    """Return group in a file -> name of the layer, and its state by key.

    The values are Variables and arrays, so that a save copies one of them at a time.
    """
    return {
        _group(path): (owner.name, _state_of(owner))
        for path, owner in parts_of(model, skip).items()
    }


def groups_of(model: Any, skip: Any = ()) -> Groups:
    """Return group in a file -> name of the layer, and its arrays by key."""
    return {
        group: (name, {key: np.asarray(value) for key, value in values.items()})
        for group, (name, values) in variables_by_group(model, skip).items()
    }


def all_variables(model: Any) -> list[Any]:
    """Return the Variables of a model, its metrics and its optimizer."""
    optimizer = getattr(model, "optimizer", None)
    differences = [*model.variables, *getattr(model, "metrics_variables", ())]
    return differences if optimizer is None else [*differences, *optimizer.variables]


def load_state(
    model: Any,
    datasets: dict[str, Dataset],
    where: str,
    skip_mismatch: bool = False,
    skip: Any = (),
    may_hold_more: bool = False,
) -> None:
    """Load the state of a model from a file, or nothing on error.

    Args:
        model: a built model.
        datasets: the content of the file, by path; values are not read yet.
        where: the file, for messages.
        skip_mismatch: whether to load matching state and warn about the rest.
        skip: objects to leave unchanged.
        may_hold_more: whether objects that only the file has cause just a warning.

    Raises:
        ModelFileError: with a list of all mismatches.
    """
    owners = parts_of(model, skip)
    with StatelessScope() as scope:
        plan, mismatches, unmatched = _match(owners, _renamed(datasets))
        if skip:
            unmatched = []
        fits = not mismatches and (may_hold_more or not unmatched)
        mismatches += unmatched
        if fits or skip_mismatch:
            failed = _read(plan)
            fits = not failed
            mismatches += failed
    report_mismatches(
        mismatches, mismatch_message(where) if not fits and not skip_mismatch else None
    )
    assign_all(scope.writes.items())


def _renamed(datasets: dict[str, Dataset]) -> dict[str, Dataset]:
    """Return the datasets under current paths: Keras 2.13 had another `layers`."""
    old = "_layer_checkpoint_dependencies"
    return {path.replace(old, "layers"): data for path, data in datasets.items()}


def _state_of(owner: Any) -> dict[str, Any]:
    """Return the direct state of an object: key -> Variable or array."""
    store: dict[str, Any] = {}
    owner.save_own_variables(store)
    return store


def _group(path: str) -> str:
    return f"{path}/vars" if path else "vars"


def _previous_group_name(group: str) -> str:
    """Return the name of a group in our earlier files, without private attributes."""
    return "/".join(owner.removeprefix("_") for owner in group.split("/"))


class Load(NamedTuple):
    """Object of the model, and its data in the file."""

    path: str
    owner: Any
    stored: dict[str, Dataset]


def _match(
    owners: dict[str, Any], datasets: dict[str, Dataset]
) -> tuple[list[Load], list[Mismatch], list[Mismatch]]:
    """Return the loads, the mismatches, and the groups that only the file has."""
    groups: dict[str, dict[str, Dataset]] = {}
    for path, dataset in datasets.items():
        group, _, key = path.rpartition("/")
        groups.setdefault(group, {})[key] = dataset
    plan, mismatches, unmatched = [], [], []
    for path, owner in owners.items():
        group = (
            _group(path)
            if _group(path) in groups
            else _previous_group_name(_group(path))
        )
        load = Load(path, owner, groups.pop(group, {}))
        if isinstance(owner, Optimizer):
            if _optimizer_fits(load):
                plan.append(load)
            continue
        differences = [] if _loads_itself(owner) else _differences(load)
        mismatches += differences
        if not differences:
            plan.append(load)
    for group, datasets_left in groups.items():
        # State of an optimizer that the model does not have is not a mismatch.
        if group.split("/")[0] == "optimizer":
            continue
        for key, dataset in datasets_left.items():
            description = (
                f"unexpected, of shape {dataset.shape}; the model has no such layer"
            )
            unmatched.append(Mismatch(f"{group}/{key}", description))
    return plan, sorted(mismatches), sorted(unmatched)


def _loads_itself(owner: Any) -> bool:
    """Return whether the class defines a custom method to load its state."""
    is_custom = type(owner).load_own_variables is not StateOwner.load_own_variables
    return is_custom and getattr(owner, "lora_enabled", True)


def _differences(load: Load) -> list[Mismatch]:
    mismatches = []
    state, group = _state_of(load.owner), _group(load.path)
    for key, value in state.items():
        label = getattr(value, "path", load.owner.name)
        if key not in load.stored:
            description = (
                f"missing in the file; expected {label} of shape {tuple(value.shape)}"
            )
        elif not _has_shape(load, key, value):
            description = (
                f"expected {label} of shape {tuple(value.shape)}; the file has "
                f"{load.stored[key].shape}"
            )
        else:
            continue
        mismatches.append(Mismatch(f"{group}/{key}", description))
    for key, dataset in load.stored.items():
        if key not in state:
            description = (
                f"unexpected, of shape {dataset.shape}; {load.owner.name} has no "
                "such variable"
            )
            mismatches.append(Mismatch(f"{group}/{key}", description))
    return mismatches


def _has_shape(load: Load, key: str, value: Array) -> bool:
    """Return whether the object can take the shape that the file has for a key."""
    shape = load.stored[key].shape
    if isinstance(load.owner, Optimizer) and key.isdecimal():
        return accepts_saved(load.owner.variables[int(key)], shape)
    return bool(shape == tuple(value.shape))


def _optimizer_fits(load: Load) -> bool:
    """Return whether to load the optimizer's state; it can be absent.

    An unbuilt optimizer keeps its learning rate, as in Keras. A file before the first
    step can lack the slots, which are zeros.
    """
    optimizer = load.owner
    has_slots = load.stored.keys() >= _state_of(optimizer).keys()
    if not load.stored or (_made_no_step(load) and not (optimizer.built and has_slots)):
        return False
    if not optimizer.built:
        reason = (
            "the optimizer is not built yet. To load the state of the file, call its "
            "`build` first"
        )
    elif _differences(load):
        reason = "the file contains the state of another optimizer"
    else:
        return True
    warn(
        f"load_weights: the optimizer {optimizer.name!r} keeps its current state: "
        f"{reason}"
    )
    return False


def _made_no_step(load: Load) -> bool:
    """Return whether the file's optimizer has made no step: its first value is 0."""
    steps = load.stored.get("0")
    return steps is not None and steps.shape == () and not steps.read()


def _read(plan: list[Load]) -> list[Mismatch]:
    """Load every object in the open scope; return the failures."""
    mismatches = []
    for path, owner, stored in plan:
        arrays: dict[str, Any] = {k: dataset.read() for k, dataset in stored.items()}
        if isinstance(owner, Optimizer) or not _loads_itself(owner):
            arrays = {key: adopt(array) for key, array in arrays.items()}
        try:
            owner.load_own_variables(arrays)
        except (KeyError, ValueError, TypeError) as error:
            mismatches.append(Mismatch(_group(path), str(error)))
    return mismatches
