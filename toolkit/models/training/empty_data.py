"""Errors about data without batches, with the stage that removes all elements."""

from __future__ import annotations

from toolkit import data
from toolkit.errors import ArgumentError

# Stages that can remove all elements, although their number is unknown before a pass.
_REMOVING = {
    *("filter", "flat_map", "interleave", "skip", "take", "take_while", "unbatch"),
    *("ignore_errors", "rejection_resample", "shard", "window"),
}
# The name of the stage, because `fit` on arrays does not import pipelines.
_BATCH = "batch"


def empty_data_error(batches: object = None) -> ArgumentError:
    """Return the error about data without batches.

    Args:
        batches: the object that returned no batch; None if it is unknown.
    """
    if isinstance(batches, data.DatasetIterator):
        batches = batches._dataset
    if isinstance(batches, data.Dataset):
        return ArgumentError(
            "expected at least one batch; received an empty data set: "
            f"{_explain(batches)}"
        )
    return ArgumentError("expected at least one batch; the data is empty")


def _explain(dataset: data.Dataset) -> str:
    """Return the stage that removes all elements, or the stages that can."""
    pipeline = dataset._pipeline()
    for stage in dataset._ancestors():
        counts = [parent.cardinality() for parent in stage._parents]
        if stage.cardinality() != 0 or not counts or 0 in counts:
            continue
        if stage._name == _BATCH and counts[0] > 0:
            size = getattr(stage, "_size", "")
            return (
                f"batch({size}, drop_remainder=True) drops all {counts[0]} "
                "elements, because they do not fill a batch; use a smaller batch, or "
                "drop_remainder=False"
            )
        number = f" of {counts[0]} elements" if counts[0] > 0 else ""
        return f"the stage {stage._name} of {pipeline} returns none{number}"
    names = [x._name for x in dataset._ancestors() if _can_remove(x)][::-1]
    if dataset.cardinality() == 0 or not names:
        return f"{pipeline} has no elements"
    return (
        f"in {pipeline} these stages can remove all elements: {', '.join(names)}; "
        "list(dataset.take(1)) shows whether a data set has any"
    )


def _can_remove(stage: data.Dataset) -> bool:
    if stage._name == _BATCH:
        return bool(getattr(stage, "_drops", True))
    return stage._name in _REMOVING
