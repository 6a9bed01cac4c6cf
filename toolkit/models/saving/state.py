"""The state of a model's parts, matched with what a file holds before it is read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from toolkit.console.frames import warn
from toolkit.core.trace import StatelessScope
from toolkit.layers.tracking import StateOwner
from toolkit.models.saving.mismatches import Mismatch, misfit, tell
from toolkit.models.saving.state_paths import parts_of
from toolkit.optimizers import Optimizer

if TYPE_CHECKING:
    from toolkit.reading.hdf5 import Dataset

Groups = dict[str, tuple[str, dict[str, Any]]]


def groups_of(model: Any, skip: Any = ()) -> Groups:
    """Group in a file -> name of the part, and its arrays by key."""
    groups = {}
    for path, part in parts_of(model, skip).items():
        arrays = {key: np.asarray(value) for key, value in _own(part).items()}
        groups[_group(path)] = (part.name, arrays)
    return groups


def all_variables(model: Any) -> list[Any]:
    """The Variables of a model, its metrics and its optimizer."""
    optimizer = getattr(model, "optimizer", None)
    found = [*model.variables, *getattr(model, "metrics_variables", ())]
    return found if optimizer is None else [*found, *optimizer.variables]


def load_state(
    model: Any,
    datasets: dict[str, Dataset],
    where: str,
    skip_mismatch: bool = False,
    skip: Any = (),
    may_hold_more: bool = False,
) -> None:
    """Give a model the state that a file holds, or change nothing.

    Args:
        model: a built model.
        datasets: what the file holds, by path; not read yet.
        where: the file, for messages.
        skip_mismatch: whether to load what fits and warn about the rest.
        skip: parts to leave as they are.
        may_hold_more: whether parts that only the file has are no more than a warning.

    Raises:
        ModelFileError: listing every mismatch.
    """
    parts = parts_of(model, skip)
    with StatelessScope() as scope:
        plan, mismatches, more = _match(parts, _renamed(datasets))
        if skip:
            more = []
        fits = not mismatches and (may_hold_more or not more)
        mismatches += more
        if fits or skip_mismatch:
            failed = _read(plan)
            fits = not failed
            mismatches += failed
    tell(mismatches, misfit(where) if not fits and not skip_mismatch else None)
    for variable, value in scope.writes.items():
        variable.assign(value)


def _renamed(datasets: dict[str, Dataset]) -> dict[str, Dataset]:
    """The datasets under today's paths: Keras up to 2.13 named `layers` otherwise."""
    old = "_layer_checkpoint_dependencies"
    return {path.replace(old, "layers"): data for path, data in datasets.items()}


def _own(part: Any) -> dict[str, Any]:
    """What a part saves of itself: key -> Variable or array."""
    store: dict[str, Any] = {}
    part.save_own_variables(store)
    return store


def _group(path: str) -> str:
    return f"{path}/vars" if path else "vars"


def _earlier(group: str) -> str:
    """A group under the name of our earlier files: there no attribute was private."""
    return "/".join(part.removeprefix("_") for part in group.split("/"))


class Load(NamedTuple):
    """A part of the model, and what the file has for it."""

    path: str
    part: Any
    stored: dict[str, Dataset]


def _match(
    parts: dict[str, Any], datasets: dict[str, Dataset]
) -> tuple[list[Load], list[Mismatch], list[Mismatch]]:
    """What to load, what does not fit, and what only the file has."""
    groups: dict[str, dict[str, Dataset]] = {}
    for path, dataset in datasets.items():
        group, _, key = path.rpartition("/")
        groups.setdefault(group, {})[key] = dataset
    plan, mismatches, more = [], [], []
    for path, part in parts.items():
        group = _group(path) if _group(path) in groups else _earlier(_group(path))
        load = Load(path, part, groups.pop(group, {}))
        if isinstance(part, Optimizer):
            if _optimizer_fits(load):
                plan.append(load)
            continue
        found = [] if _loads_itself(part) else _differences(load)
        mismatches += found
        if not found:
            plan.append(load)
    for group, left in groups.items():
        # State of an optimizer that this model does not have is no contradiction.
        if group.split("/")[0] == "optimizer":
            continue
        for key, dataset in left.items():
            what = f"unexpected, of shape {dataset.shape}; the model has no such layer"
            more.append(Mismatch(f"{group}/{key}", what))
    return plan, sorted(mismatches), sorted(more)


def _loads_itself(part: Any) -> bool:
    """Whether the part's class decides by itself what it takes from a file."""
    own = type(part).load_own_variables is not StateOwner.load_own_variables
    return own and getattr(part, "lora_enabled", True)


def _differences(load: Load) -> list[Mismatch]:
    mismatches = []
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
        mismatches.append(Mismatch(f"{group}/{key}", what))
    for key, dataset in load.stored.items():
        if key not in own:
            what = f"unexpected, of shape {dataset.shape}; {load.part.name} has no such"
            mismatches.append(Mismatch(f"{group}/{key}", what))
    return mismatches


def _optimizer_fits(load: Load) -> bool:
    """Whether to load the optimizer's state; it may be absent without harm.

    An optimizer that is not built keeps its learning rate, as in Keras. A file of one
    that has made no step may lack the slots, which are zeros.
    """
    optimizer = load.part
    has_slots = load.stored.keys() >= _own(optimizer).keys()
    if not load.stored or (_made_no_step(load) and not (optimizer.built and has_slots)):
        return False
    if not optimizer.built:
        why = "it is not built yet; call its `build` before, to have that of the file"
    elif _differences(load):
        why = "the file holds the state of another one"
    else:
        return True
    warn(f"load_weights: the optimizer {optimizer.name!r} keeps its state: {why}")
    return False


def _made_no_step(load: Load) -> bool:
    """Whether the optimizer of the file has made none: its first number is that."""
    steps = load.stored.get("0")
    return steps is not None and steps.shape == () and not steps.read()


def _read(plan: list[Load]) -> list[Mismatch]:
    """Load every part, inside the scope that is open; returns what failed."""
    mismatches = []
    for path, part, stored in plan:
        arrays = {key: dataset.read() for key, dataset in stored.items()}
        try:
            part.load_own_variables(arrays)
        except (KeyError, ValueError, TypeError) as error:
            mismatches.append(Mismatch(_group(path), str(error)))
    return mismatches
