"""What programs ask of a GPU, and what is the same on every one.

`cuda.CudaDevice` is the real one; tests run programs on one made of host memory.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from toolkit.backends.cupy.cublaslt import Gemm
from toolkit.backends.cupy.cuda.launch import Kernel
from toolkit.backends.cupy.signatures import Signature

Array = Any
# What the numbers of kernels are passed as.
SCALARS = {
    "bool": np.bool_,
    "char": np.int8,
    "int": np.int32,
    "long long": np.int64,
    "unsigned": np.uint32,
    "unsigned int": np.uint32,
    "unsigned long long": np.uint64,
    "float": np.float32,
    "double": np.float64,
}


class OutOfMemory(MemoryError):
    """The device has not as much memory as was asked for."""


class Device(ABC):
    """A GPU: memory, kernels, libraries, and one stream that all runs on.

    Attributes:
        name: such as "gpu:0".
        captures: whether steps can be captured.
        libraries: which there are: "cublaslt", "cudnn".
        broken: what ended all work on the device, if something did.
    """

    name = "gpu:0"
    captures = False
    libraries: frozenset[str] = frozenset()
    broken: Exception | None = None

    def __init__(self) -> None:
        self._watched: dict[int, tuple[Any, list[str]]] = {}

    # --- memory -----------------------------------------------------------------------

    @abstractmethod
    def empty(self, shape: tuple[int, ...], dtype: str) -> Array:
        """An array whose content is undefined; OutOfMemory if there is no room."""

    @abstractmethod
    def owns(self, array: Any) -> bool:
        """Whether an array lies in the memory of this device."""

    @abstractmethod
    def upload(self, values: Any) -> Array:
        """An array of host data, of its dtype; of a list of ints, of int64."""

    @abstractmethod
    def adopt(self, array: Any) -> Array:
        """A copy of an array of another library that lies on this device."""

    @abstractmethod
    def download(self, array: Array) -> np.ndarray[Any, Any]:
        """A copy in host memory, once all that was started is done."""

    @abstractmethod
    def address(self, array: Array) -> int:
        """Where the first element of an array is."""

    @abstractmethod
    def view(
        self, arena: Array, offset: int, shape: tuple[int, ...], dtype: str
    ) -> Array:
        """An array on the bytes of `arena` that start at `offset`."""

    @abstractmethod
    def copy(self, target: int, source: int, nbytes: int) -> None:
        """Start a copy between two addresses of this device."""

    @abstractmethod
    def memory(self) -> str:
        """The state of memory, for messages."""

    @abstractmethod
    def trim(self) -> None:
        """Give memory that nobody uses back to the device."""

    # --- work -------------------------------------------------------------------------

    @abstractmethod
    def load(self, kernels: Sequence[Kernel]) -> list[Callable[..., None]]:
        """Functions that start each: (grid, block, arguments, shared bytes)."""

    @abstractmethod
    def product(
        self, gemm: Gemm, pointers: tuple[int, ...], workspace: int
    ) -> Callable[[tuple[int, ...], int], None]:
        """A function that starts a product: (pointers, address of scratch memory)."""

    def offers(self, gemm: Gemm) -> bool:
        """Whether the library has an algorithm for a product."""
        return True

    @abstractmethod
    def dnn(self, signature: Signature, workspace: int | None) -> Any:
        """A function like that of `product`, with its scratch bytes as `.workspace`."""

    @abstractmethod
    def synchronize(self) -> None:
        """Wait until all that was started is done."""

    def capture(self, start: Callable[[], None]) -> Callable[[], None]:
        """A function that starts at once what `start` starts."""
        return start

    def scope(self) -> contextlib.AbstractContextManager[Any]:
        """The context in which anything is started on this device."""
        return contextlib.nullcontext()

    def scalar(self, value: float, ctype: str) -> Any:
        """A number as kernels take it."""
        return SCALARS[ctype](value)

    # --- bad indices ------------------------------------------------------------------

    def watch(self, words: Array | None, problems: list[str]) -> None:
        """Look at the words that kernels report bad indices in, when someone waits."""
        if words is not None:
            self._watched[self.address(words)] = words, problems

    def raise_problems(self) -> None:
        """Raise what kernels have reported since the last time.

        Raises:
            IndexError: with the index and the limit.
        """
        watched, self._watched = self._watched, {}
        for words, problems in watched.values():
            rows = self.download(words).reshape(-1, 3)
            if rows[:, 0].any():
                clear = self.upload([0] * rows.size)
                self.copy(self.address(words), self.address(clear), 8 * rows.size)
                first = int(rows[:, 0].argmax())
                _, index, limit = rows[first].tolist()
                raise IndexError(problems[first].format(index=index, limit=limit))
