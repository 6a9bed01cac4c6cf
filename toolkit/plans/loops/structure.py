"""The structure of a body: bodies with equal structure share one plan."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from toolkit.ir import Graph
from toolkit.plans.loops.iteration_space import uniform_value


def structure_of(body: Graph) -> Hashable | None:
    """Return a key that is equal for bodies that differ only in value identity.

    Returns:
        None if the elements of a constant differ.
    """
    positions: dict[Any, Hashable] = {x: i for i, x in enumerate(body.inputs)}
    lines = []
    for node in body.nodes:
        read = []
        for x in node.inputs:
            if x not in positions:
                number = uniform_value(x)
                if number is None:
                    return None
                positions[x] = number.tobytes(), x.spec
            read.append(positions[x])
        attrs = tuple(sorted(node.attrs.items()))
        output_specs = tuple(y.spec for y in node.outputs)
        lines.append((node.op.name, tuple(read), attrs, output_specs))
        for y in node.outputs:
            positions[y] = len(positions)
    input_specs = tuple(x.spec for x in body.inputs)
    return input_specs, tuple(lines), tuple(positions[y] for y in body.outputs)
