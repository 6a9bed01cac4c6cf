"""Programs for frequent eager calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from toolkit.backends.base import Backend
from toolkit.backends.kernels import Kernel
from toolkit.core.replays import set_programs
from toolkit.ir import Node, Value
from toolkit.type_aliases import Array


def install_programs() -> None:
    """Let replays of frequent calls use programs."""
    set_programs(_use_programs)


def _use_programs(
    backend: Backend,
    steps: Sequence[tuple[Kernel, Node]],
    outputs: Sequence[Value],
    constants: Mapping[Value, Array],
) -> list[tuple[Kernel, Node]]:
    # The first operation should not wait for the import of the compiler.
    from toolkit.compiler.step_programs import use_programs

    return use_programs(backend, steps, outputs, constants)
