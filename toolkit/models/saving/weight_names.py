"""Names of weights in safetensors files: paths without the name of the model."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

from toolkit.core.naming import to_snake_case
from toolkit.errors import ArgumentError

# An automatic number is short, without leading zeros.
_NUMBERED = re.compile(r"(.*?)(?:_([1-9]\d{0,8}))?", re.DOTALL)


def named_weights(model: Any, method: str) -> dict[str, Any]:
    """Return name -> Variable of all weights of a model, in order.

    Raises:
        ArgumentError: two weights have the same path.
    """
    prefix = f"{model.name}/"
    weights = model.weights
    # Layers of a functional model do not have its name in their paths; other layers do.
    has_prefix = all(weight.path.startswith(prefix) for weight in weights)
    by_name: dict[str, Any] = {}
    for weight in weights:
        name = weight.path.removeprefix(prefix) if has_prefix else weight.path
        if by_name.setdefault(name, weight) is not weight:
            raise ArgumentError(
                f"{method}: two weights have the path {name!r}; give the layers "
                "unique names"
            )
    return by_name


def renumbered(
    model: Any, names: Iterable[str], stored: Iterable[str]
) -> dict[str, str] | None:
    """Return the names in a file whose layers another process has numbered.

    A layer without an explicit name is `dense_7` if it is the eighth of its process,
    and can be `dense` in the process that wrote the file.

    Args:
        model: the model with the weights.
        names: the names of the weights.
        stored: the names in the file.

    Returns:
        Name -> name in the file; None if the names differ in more than these numbers.
    """
    layers = model._flatten_layers()
    automatic = {to_snake_case(type(layer).__name__) for layer in layers}
    model_names, file_names = (
        _restart_numbers(names, automatic),
        _restart_numbers(stored, automatic),
    )
    if model_names.keys() != file_names.keys():
        return None
    return {
        name: file_names[renumbered_name]
        for renumbered_name, name in model_names.items()
    }


def _restart_numbers(names: Iterable[str], automatic: set[str]) -> dict[str, str]:
    """Return names with automatic numbers that restart at 0 in each layer."""
    numbers: dict[tuple[str, str], set[int]] = defaultdict(set)
    paths = {name: list(_split_name(name)) for name in names}
    for path in paths.values():
        for prefix, kind, number in path:
            numbers[prefix, kind].add(number)
    ranks = {
        key: {number: rank for rank, number in enumerate(sorted(used))}
        for key, used in numbers.items()
    }

    def rename(prefix: str, kind: str, number: int) -> str:
        rank = ranks[prefix, kind][number] if kind in automatic else number
        return f"{kind}_{rank}"

    return {
        "/".join(rename(*split_name) for split_name in path): n
        for n, path in paths.items()
    }


def _split_name(name: str) -> Iterator[tuple[str, str, int]]:
    """Return prefix, name and number of each component of a path."""
    components = name.split("/")
    for i, component in enumerate(components):
        match = _NUMBERED.fullmatch(component)
        assert match is not None
        yield "/".join(components[:i]), match[1], int(match[2] or 0)
