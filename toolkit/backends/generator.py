"""Code generator of a backend: lowers nodes to code, and joins it to programs."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from toolkit.backends.library import Library, LibrarySource
from toolkit.backends.library_calls import LibraryCallLimits
from toolkit.backends.target import BackendPasses
from toolkit.comm.group import Group
from toolkit.errors import UnsupportedError
from toolkit.ir import Node, Spec
from toolkit.plans.locations import LoopBody, Shares
from toolkit.plans.operands import LoopOperand, Operand

Array = Any


class CodeGenerator:
    """Code generator that generates no code; a subclass overrides `lower`.

    A program without generated code runs the kernels of the backend.

    Args:
        name: of the backend.
    """

    # Whether `lower` ever returns a result.
    can_generate = False
    # Whether a program can wait for a value to select a branch.
    can_branch = True
    # Whether generated code can select a branch or end a loop by a computed value.
    can_jump = False
    # Whether the bits of a row can depend on the other rows of its batch, even if a
    # program requires independent rows. A job then computes each leaf separately.
    rows_depend_on_batch = False
    # Whether `specialize` removes calls, so that frozen inputs bring a gain.
    can_specialize = False
    # The primitives that elementwise nodes can follow in a kernel.
    anchors: Collection[str] = ()
    # Graph passes in addition to the passes of every backend.
    passes: BackendPasses = BackendPasses()

    def __init__(self, name: str) -> None:
        self.name = name

    @property
    def library_calls(self) -> LibraryCallLimits | None:
        """Return the limits of one library call.

        None: generated code applies any elementwise nodes after anchors, several of
        which can have results.
        """
        return None

    def can_fuse(self, node: Node) -> bool:
        """Return whether an elementwise node can be part of a generated kernel."""
        return False

    def can_lower_composite(self, node: Node) -> bool:
        """Return whether `lower` computes a composite as one node."""
        return False

    def lower(
        self,
        node: Node,
        inputs: Sequence[Operand],
        outputs: Sequence[Operand],
        is_aligned: bool = True,
    ) -> Any:
        """Lower a node to generated calls, with scratch bytes `.work`; None by default.

        With None, a kernel computes the node.

        Args:
            node: of a fused or of any other primitive.
            inputs, outputs: the operands in the order of the node.
            is_aligned: whether all addresses are multiples of 16 bytes.
        """
        return None

    def lower_collective(
        self, node: Node, inputs: Sequence[Operand], outputs: Sequence[Operand]
    ) -> Any:
        """Lower a collective; None: a kernel runs it on the host.

        Args:
            node: the node of the collective. All ranks of its group must decide alike.
            inputs, outputs: the operands in the order of the node.
        """
        return None

    def can_overlap(self, group: Group) -> bool:
        """Return whether collectives of a group run in parallel with generated code.

        Args:
            group: the ranks, which all return the same.
        """
        return False

    def precompile(self, lowered: Any) -> None:
        """Start the slow preparation of a result of `lower`, before a program needs it.

        Args:
            lowered: for a node of a graph; the other nodes are lowered in parallel.
        """

    def cancel_precompile(self) -> None:
        """Cancel the preparation for a program that failed."""

    def specialize(self, lowered: Any, frozen: Collection[int], result: int = 0) -> Any:
        """Return a result of `lower` for inputs that never change.

        Args:
            lowered: for a node.
            frozen: the numbers of the inputs.
            result: the bytes of its only output if that can be cached too; else 0.
        """
        return lowered

    def assemble(
        self,
        lowered: Sequence[Any],
        shares: Shares,
        barrier: int,
    ) -> Any:
        """Join the results of `lower` for consecutive nodes into one program.

        Args:
            lowered: for each node.
            shares: the memory of their operands.
            barrier: the index of a node; it and later nodes run after all earlier ones.

        Returns:
            An object with the `moments` of the nodes, its timed `parts`, and `bind`.
        """
        raise NotImplementedError(f"backend {self.name} generates no code")

    def lower_loop(
        self,
        body: LoopBody,
        arena: tuple[str, int],
        moves: Sequence[LoopOperand],
        iterations: int,
        initial_outputs: Sequence[tuple[int, Spec]] = (),
        changing: Collection[tuple[str, int]] = (),
    ) -> Any:
        """Return a lowered loop over a program from `assemble`.

        Args:
            body: a program of generated code only.
            arena: the operand for the body's intermediate values.
            moves: the location of each array of the body, in the order of its numbers.
            iterations: the number of iterations, at least 1.
            initial_outputs: outputs that start as the inputs of these numbers, if
                the backend jumps.
            changing: operands that are frozen for the body, but differ between runs.
        """
        raise NotImplementedError(f"backend {self.name} generates no code")

    def lower_branch(
        self,
        branches: Sequence[LoopBody],
        inputs: Sequence[Operand],
        outputs: Sequence[Operand],
    ) -> Any:
        """Return the selection of a program by a bool, on backends that jump.

        Args:
            branches: programs of generated code only: for True and for False.
            inputs: the bool, and the inputs of both programs.
            outputs: the outputs of both programs.
        """
        raise NotImplementedError(f"backend {self.name} does not generate jumps")

    def lower_while(
        self,
        condition: LoopBody,
        body: LoopBody,
        inputs: Sequence[Operand],
        outputs: Sequence[Operand],
        limit: int | None,
        initial_outputs: Collection[int] = (),
    ) -> Any:
        """Return a lowered loop with an unknown trip count, on backends that jump.

        Args:
            condition: from carried values and constants: the first iteration runs.
            body: from the same: new carried values, and another iteration runs.
            inputs: the first carried values, then the constants.
            outputs: the last carried values.
            limit: the maximum trip count; None: no limit.
            initial_outputs: outputs that start as the inputs of these numbers, and
                are updated in place.
        """
        raise NotImplementedError(f"backend {self.name} does not generate jumps")

    # The identity of a call's array in generated code: the id of a NumPy array.
    handle: Callable[[Array], int] = staticmethod(id)

    def call_table(
        self, specs: Sequence[Spec], retained: Collection[int], plan: Any = None
    ) -> Any:
        """Return the table of the array handles of a call, for generated code.

        Args:
            specs: of the arrays, by number.
            retained: the numbers of the arrays that are the same in most calls.
            plan: the content of the program's arena.
        """
        return (ctypes.c_int64 * max(1, len(specs)))()

    def processors(
        self, name: str | None = None, threads: bool = True
    ) -> Sequence[Any]:
        """Return the targets of machine code: each is the `processor` of a `Target`.

        The result has several entries only for a name that means several: then a
        library has programs for each. Programs of one entry also run on the later
        entries.

        Args:
            name: for example "x86-64-v3"; None: the processor of this machine.
            threads: whether a library may start threads.

        Raises:
            UnsupportedError: the backend generates no machine code, or none for that.
        """
        raise UnsupportedError(f"backend {self.name} does not support native libraries")

    def missing_dtypes(self, processor: Any) -> Mapping[str, Sequence[str]]:
        """Return the dtypes that machine code for a processor cannot compute.

        Args:
            processor: one of `processors`.

        Returns:
            For each dtype, the names of the processors whose code can compute it.
        """
        return {}

    def build_library(self, source: LibrarySource) -> Library:
        """Build one object file that needs neither Python nor this package.

        Args:
            source: programs of generated code only, and their weights.

        Raises:
            UnsupportedError: the backend has no machine code, or the source is too
                large.
        """
        raise UnsupportedError(f"backend {self.name} does not support native libraries")

    def peak_rates(self) -> tuple[float, float] | None:
        """Return peak operations and bytes per second; None if unknown."""
        return None

    def cache_folder(self) -> Path | None:
        """Return the folder of compiled code; None without a cache."""
        return None
