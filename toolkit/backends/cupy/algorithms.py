"""Selection of cuBLASLt algorithms for matrix products, before any graph capture."""

from __future__ import annotations

import ctypes
import hashlib
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from toolkit.backends import disk_cache
from toolkit.backends.cupy.cublaslt import (
    ALIGNMENT,
    DESCRIPTOR,
    IN_COMPUTE_TYPE,
    PREFERENCE,
    Gemm,
    Handle,
    Product,
    call,
    library,
)
from toolkit.backends.cupy.device import OutOfMemory
from toolkit.errors import DeviceError, UnsupportedOnBackend

# Number of algorithms to request from the library's heuristic.
MAX_ALGORITHMS = 8
# The descriptor of a plan holds the pointers of the current call.
_call_lock = threading.Lock()


class Algorithm(ctypes.Structure):
    """cublasLtMatmulHeuristicResult_t."""

    _fields_ = (
        ("algorithm", ctypes.c_uint64 * 8),
        ("workspace", ctypes.c_size_t),
        ("state", ctypes.c_int),
        ("waves", ctypes.c_float),
        ("reserved", ctypes.c_int * 4),
    )


class ProductAlgorithm:
    """Executable matrix product with a selected algorithm, safe under graph capture.

    The constructor selects the algorithm, because the heuristic fails during a capture.

    Args:
        handle: the library handle on the device.
        gemm: the product.
        pointers: addresses with the same alignment as in all later calls.
        workspace: the limit of the scratch memory, in bytes.
    """

    def __init__(
        self, handle: Handle, gemm: Gemm, pointers: tuple[int, ...], workspace: int
    ) -> None:
        self.handle = handle
        self.gemm = gemm
        self.product: Product = Product(gemm)
        self.limit = workspace
        kind = ctypes.c_double if gemm.compute == "64F" else ctypes.c_float
        self.scale: tuple[Any, Any] = kind(gemm.alpha), kind(gemm.beta)
        # The heuristic reads the pointers to find the alignment of a bias.
        self._set_pointers(pointers)
        self.algorithms: list[Algorithm] = self._find_algorithms(
            MAX_ALGORITHMS, pointers
        )
        self.algorithm: Algorithm = self.algorithms[0]

    def _set_pointers(self, pointers: tuple[int, ...]) -> dict[str, int]:
        """Set the vector pointers in the descriptor, and return all extras by name."""
        extra = dict(zip(self.gemm.extras, pointers[3:], strict=True))
        vectors = {name: x for name, x in extra.items() if name != "c"}
        self.product.descriptor.set(DESCRIPTOR, **vectors)
        return extra

    def _find_algorithms(
        self, count: int, pointers: tuple[int, ...]
    ) -> list[Algorithm]:
        """Return the best algorithms by the library's own estimate, best first."""
        results, number = (Algorithm * count)(), ctypes.c_int()
        a, b, d = (layout.pointer for layout in self.product.layouts)
        at_a, at_b, at_d, *extra = map(aligned_to, pointers)
        at_c = extra[0] if self.gemm.beta else at_d
        limits = zip("abcd", (at_a, at_b, at_c, at_d), strict=True)
        alignments = {f"align_{x}": limit for x, limit in limits}
        preference = Handle("MatmulPreference")
        preference.set(PREFERENCE, workspace=self.limit, **alignments)
        if self.gemm.dtypes[1] in ("float16", "bfloat16"):
            # In the type of the result, each partial sum would be rounded once.
            preference.set(PREFERENCE, reductions=IN_COMPUTE_TYPE)
        status = library().cublasLtMatmulAlgoGetHeuristic(
            *(self.handle.pointer, self.product.descriptor.pointer, a, b, d, d),
            *(preference.pointer, count, results, ctypes.byref(number)),
        )
        usable = [x for x in results[: number.value] if x.state == 0]
        if status or not usable:
            gemm = self.gemm
            layout = f"{gemm.m} x {gemm.n} x {gemm.k}, {gemm.epilogue}"
            reason = f"cuBLASLt has no algorithm (status {status})"
            raise UnsupportedOnBackend("matmul", gemm.dtypes[0], layout, reason)
        return usable

    def select_stored(self, stored: bytes) -> bool:
        """Select an algorithm by its bytes; return False if no candidate matches."""
        matches = [a for a in self.algorithms if bytes(a.algorithm) == stored]
        self.algorithm = matches[0] if matches else self.algorithm
        return bool(matches)

    def select_fastest(self, measure: Callable[[ProductAlgorithm], float]) -> bool:
        """Select the fastest algorithm; return False if none can be timed."""
        times: list[tuple[float, int]] = []
        for number, algorithm in enumerate(self.algorithms):
            self.algorithm = algorithm
            # An algorithm that the device rejects or cannot allocate for is no
            # candidate.
            with suppress(DeviceError, OutOfMemory):
                times.append((measure(self), number))
        self.algorithm = self.algorithms[min(times)[1] if times else 0]
        return bool(times)

    def __call__(self, pointers: tuple[int, ...], workspace: int, stream: int) -> None:
        """Launch the product on a stream.

        Args:
            pointers: the addresses of a, b, d, and of the product's `extras`.
            workspace: the address of scratch memory of the size given to the
                constructor.
            stream: the CUDA stream.
        """
        a, b, d = pointers[:3]
        la, lb, ld = (layout.pointer for layout in self.product.layouts)
        alpha, beta = map(ctypes.byref, self.scale)
        with _call_lock:
            c = self._set_pointers(pointers).get("c", d)
            call(
                "Matmul",
                *(self.handle.pointer, self.product.descriptor.pointer, alpha),
                *(a, la, b, lb, beta, c, ld, d, ld),
                *(ctypes.byref(self.algorithm.algorithm), workspace),
                *(self.limit, stream),
            )


class Plans:
    """Cache of plans for one device, by product and by operand alignment.

    Args:
        folder: the cache folder for autotuned algorithms; None disables the disk cache.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.handle: Handle = Handle("")
        self.folder: Path | None = (
            folder and folder / f"cublaslt-{library().cublasLtGetVersion()}"
        )
        self._plans: dict[Any, ProductAlgorithm] = {}
        self._tuned: dict[Any, ProductAlgorithm] = {}

    def offers(self, gemm: Gemm, alignment: int, workspace: int) -> bool:
        """Return whether an algorithm exists for operands with this alignment."""
        try:
            self.get(gemm, (alignment,) * (3 + len(gemm.extras)), workspace)
        except UnsupportedOnBackend:
            return False
        return True

    def get(
        self, gemm: Gemm, pointers: tuple[int, ...], workspace: int
    ) -> ProductAlgorithm:
        """Return the plan of a product for operands at these addresses."""
        key = gemm, tuple(map(aligned_to, pointers)), workspace
        if key not in self._plans:
            self._plans[key] = ProductAlgorithm(self.handle, gemm, pointers, workspace)
        return self._plans[key]

    def tune(
        self,
        gemm: Gemm,
        pointers: tuple[int, ...],
        workspace: int,
        measure: Callable[[ProductAlgorithm], float],
    ) -> ProductAlgorithm:
        """Return the plan with the fastest algorithm: cached, from disk, or timed now.

        This cache is separate from the cache of `get`, whose results stay
        bit-identical.

        Args:
            gemm, pointers, workspace: as for `get`.
            measure: a function that returns the run time of a plan in seconds.
        """
        key = gemm, tuple(map(aligned_to, pointers)), workspace
        if key not in self._tuned:
            plan = ProductAlgorithm(self.handle, gemm, pointers, workspace)
            path = self._path(key)
            stored = path and disk_cache.load(path)
            if (
                not (stored and plan.select_stored(stored))
                and plan.select_fastest(measure)
                and path
            ):
                disk_cache.store(path, bytes(plan.algorithm.algorithm))
            self._tuned[key] = plan
        return self._tuned[key]

    def _path(self, key: Any) -> Path | None:
        name = hashlib.sha256(repr(key).encode()).hexdigest()[:32]
        return self.folder and self.folder / f"{name}.algorithm"


def aligned_to(pointer: int) -> int:
    """Return the largest power of 2, up to `ALIGNMENT`, that divides an address."""
    return min(ALIGNMENT, pointer & -pointer) or ALIGNMENT
