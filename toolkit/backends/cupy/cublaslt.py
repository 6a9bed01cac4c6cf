"""cuBLASLt by ctypes: matrix products with epilogues, as data and as calls.

A `Gemm` is what the library is told, column-major as it counts: a row-major product
d = a @ b is its d' = b' @ a', so the bias of the last axis lies along its rows.
Descriptors can be made without a device; handles, algorithms and calls need one.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from toolkit.backends.cupy import libraries
from toolkit.errors import DeviceError, UnsupportedOnBackend

# What the library's headers call CUDA_R_*, CUBLAS_COMPUTE_* and CUBLASLT_EPILOGUE_*.
DATA_TYPES = {"float32": 0, "float64": 1, "float16": 2, "int8": 3, "int32": 10}
DATA_TYPES["bfloat16"] = 14
COMPUTE_TYPES = {"32F": 68, "64F": 70, "32I": 72, "32F_FAST_TF32": 77}
SCALE_TYPES = {"32F": 0, "64F": 1, "32I": 10, "32F_FAST_TF32": 0}
EPILOGUES = {
    "default": 1,
    "relu": 2,
    "relu_aux": 130,
    "bias": 4,
    "relu_bias": 6,
    "relu_aux_bias": 134,
    "drelu": 136,
    "drelu_bgrad": 152,
    "gelu": 32,
    "gelu_aux": 160,
    "gelu_bias": 36,
    "gelu_aux_bias": 164,
    "dgelu": 192,
    "dgelu_bgrad": 208,
    "bgrada": 256,
    "bgradb": 512,
}
_DESCRIPTOR = {
    "transpose_a": (3, ctypes.c_int32),
    "transpose_b": (4, ctypes.c_int32),
    "epilogue": (7, ctypes.c_int32),
    "bias": (8, ctypes.c_void_p),
    "aux": (11, ctypes.c_void_p),
    "aux_leading": (12, ctypes.c_int64),
    "bias_type": (26, ctypes.c_int32),
}
_LAYOUT = {
    "type": (0, ctypes.c_uint32),
    "rows": (2, ctypes.c_uint64),
    "columns": (3, ctypes.c_uint64),
    "leading": (4, ctypes.c_int64),
    "batch": (5, ctypes.c_int32),
    "stride": (6, ctypes.c_int64),
}
_PREFERENCE: dict[str, tuple[int, Any]] = {
    "workspace": (1, ctypes.c_uint64),
    "reductions": (3, ctypes.c_uint32),
    **{f"align_{x}": (5 + i, ctypes.c_uint32) for i, x in enumerate("abcd")},
}
# Parts of sums are added in the type that is computed in, never in that of the result:
# halves would be rounded once for each part.
_IN_COMPUTE_TYPE = 2

# What NVIDIA recommends for Hopper; smaller ones after running out of memory.
WORKSPACE = 32 << 20
ALIGNMENT = 256
# How many of its algorithms the library is asked to name.
MOST_ALGORITHMS = 8
# A plan's descriptor holds the pointers of the call that is being made.
_calling = threading.Lock()


@dataclass(frozen=True)
class Gemm:
    """d (m, n) = epilogue(alpha * op(a) (m, k) @ op(b) (k, n) + beta * c), by columns.

    Attributes:
        transpose: of a and of b.
        leading: elements from one column to the next, of a, b and d.
        dtypes: of a and b, and of c, d, a bias and its gradient.
        compute: a key of `COMPUTE_TYPES`.
        epilogue: a key of `EPILOGUES`.
        batch: how many products; strides: elements between them, of a, b and d.
        aux_leading: elements (of a relu: bits) between columns of what an epilogue
            keeps or reads.
        alpha, beta: factors; c lies as d does, and with beta 0 there is none.
    """

    m: int
    n: int
    k: int
    transpose: tuple[bool, bool]
    leading: tuple[int, int, int]
    dtypes: tuple[str, str]
    compute: str
    epilogue: str = "default"
    batch: int = 1
    strides: tuple[int, int, int] = (0, 0, 0)
    aux_leading: int = 0
    alpha: float = 1.0
    beta: float = 0.0

    @property
    def extras(self) -> list[str]:
        """What there is beside a, b and d, in the order of a call's pointers."""
        has_vector = "bias" in self.epilogue or "bgrad" in self.epilogue
        has_aux = "aux" in self.epilogue or self.epilogue.startswith("d")
        has_aux = has_aux and self.epilogue != "default"
        present = {"c": bool(self.beta), "bias": has_vector, "aux": has_aux}
        return [name for name, is_there in present.items() if is_there]

    @property
    def is_plain(self) -> bool:
        """Whether it only multiplies: that much there is for all of its dtypes."""
        is_default = self.epilogue == "default" and not self.beta
        return is_default and self.dtypes[0] == self.dtypes[1]

    @property
    def flops(self) -> int:
        return 2 * self.batch * self.m * self.n * self.k

    @property
    def layouts(self) -> list[dict[str, int]]:
        """The attributes of the matrices a, b and d."""
        a = (self.m, self.k)[:: -1 if self.transpose[0] else 1]
        b = (self.k, self.n)[:: -1 if self.transpose[1] else 1]
        names = (self.dtypes[0], *self.dtypes)
        rows = zip(names, (a, b, (self.m, self.n)), self.leading, strict=True)
        return [
            {
                "type": DATA_TYPES[dtype],
                "rows": shape[0],
                "columns": shape[1],
                "leading": leading,
                "batch": self.batch,
                "stride": stride,
            }
            for (dtype, shape, leading), stride in zip(rows, self.strides, strict=True)
        ]

    @property
    def descriptor(self) -> dict[str, int]:
        """The attributes of the product, but for its pointers."""
        found = {
            f"transpose_{x}": int(t) for x, t in zip("ab", self.transpose, strict=True)
        }
        found["epilogue"] = EPILOGUES[self.epilogue]
        if "bias" in self.extras:
            found["bias_type"] = DATA_TYPES[self.dtypes[1]]
        if self.aux_leading:
            found["aux_leading"] = self.aux_leading
        return found


def compute_type(dtype: str, precision: str) -> str:
    """How products of a dtype are computed: `precision` is "strict" or "tf32".

    Raises:
        UnsupportedOnBackend: the library has no product of that dtype.
    """
    if dtype == "float64":
        return "64F"
    if dtype in ("float16", "bfloat16"):
        return "32F"
    if dtype == "float32":
        return "32F_FAST_TF32" if precision == "tf32" else "32F"
    raise UnsupportedOnBackend(
        "matmul", dtype, "row-major", "cuBLASLt multiplies floats only"
    )


# --- the library ----------------------------------------------------------------------

_POINTER, _INT = ctypes.c_void_p, ctypes.c_int
_SIGNATURES: dict[str, tuple[Any, ...]] = {
    "Create": (_POINTER,),
    "Destroy": (_POINTER,),
    "MatmulDescCreate": (_POINTER, _INT, _INT),
    "MatmulDescDestroy": (_POINTER,),
    "MatmulDescSetAttribute": (_POINTER, _INT, _POINTER, ctypes.c_size_t),
    "MatmulDescGetAttribute": (*(_POINTER, _INT, _POINTER), ctypes.c_size_t, _POINTER),
    "MatrixLayoutCreate": (
        *(_POINTER, _INT, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_int64),
    ),
    "MatrixLayoutDestroy": (_POINTER,),
    "MatrixLayoutSetAttribute": (_POINTER, _INT, _POINTER, ctypes.c_size_t),
    "MatrixLayoutGetAttribute": (
        *(_POINTER, _INT, _POINTER, ctypes.c_size_t, _POINTER),
    ),
    "MatmulPreferenceCreate": (_POINTER,),
    "MatmulPreferenceDestroy": (_POINTER,),
    "MatmulPreferenceSetAttribute": (_POINTER, _INT, _POINTER, ctypes.c_size_t),
    "MatmulAlgoGetHeuristic": (*[_POINTER] * 7, _INT, _POINTER, _POINTER),
    "Matmul": (*[_POINTER] * 14, ctypes.c_size_t, _POINTER),
}


@cache
def library() -> ctypes.CDLL:
    """cuBLASLt with the types of the functions that are called.

    Raises:
        BackendUnavailable: it is not there.
    """
    found = libraries.load("cublasLt")
    for name, arguments in _SIGNATURES.items():
        function = getattr(found, f"cublasLt{name}")
        function.argtypes, function.restype = arguments, ctypes.c_int
    found.cublasLtGetVersion.restype = ctypes.c_size_t
    return found


def call(name: str, *arguments: Any) -> None:
    """Call cublasLt<name>; a status that is not 0 is an error."""
    status = getattr(library(), f"cublasLt{name}")(*arguments)
    if status:
        describe = library().cublasLtGetStatusString
        describe.restype = ctypes.c_char_p
        raise DeviceError(f"cublasLt{name}: {describe(status).decode()} ({status})")


class Handle:
    """Something that the library made and must destroy; `pointer` is its address."""

    def __init__(self, kind: str, *arguments: Any) -> None:
        self.kind = kind
        self.pointer = ctypes.c_void_p()
        call(f"{kind}Create", ctypes.byref(self.pointer), *arguments)

    def set(self, table: Mapping[str, tuple[int, Any]], **values: int) -> None:
        """Set attributes by name."""
        for name, value in values.items():
            number, kind = table[name]
            cell = kind(value)
            size = ctypes.sizeof(cell)
            call(
                f"{self.kind}SetAttribute",
                self.pointer,
                number,
                ctypes.byref(cell),
                size,
            )

    def get(self, table: Mapping[str, tuple[int, Any]], name: str) -> int:
        """An attribute as the library has it."""
        number, kind = table[name]
        cell, written = kind(), ctypes.c_size_t()
        size = ctypes.sizeof(cell)
        where = ctypes.byref(cell), size, ctypes.byref(written)
        call(f"{self.kind}GetAttribute", self.pointer, number, *where)
        return int(cell.value or 0)

    def close(self) -> None:
        """Destroy it; no more use."""
        pointer, self.pointer = self.pointer, ctypes.c_void_p()
        if pointer:
            call(f"{self.kind}Destroy", pointer)

    def __del__(self) -> None:
        # Nobody can handle an error here, and at exit the library may be gone.
        pointer, self.pointer = getattr(self, "pointer", None), ctypes.c_void_p()
        if pointer:
            getattr(library(), f"cublasLt{self.kind}Destroy")(pointer)


class Product:
    """The descriptors of a `Gemm`; no device is needed."""

    def __init__(self, gemm: Gemm) -> None:
        self.gemm = gemm
        scale = SCALE_TYPES[gemm.compute]
        self.descriptor = Handle("MatmulDesc", COMPUTE_TYPES[gemm.compute], scale)
        self.descriptor.set(_DESCRIPTOR, **gemm.descriptor)
        self.layouts = []
        for attributes in gemm.layouts:
            keys = ("type", "rows", "columns", "leading")
            layout = Handle("MatrixLayout", *(attributes[key] for key in keys))
            layout.set(_LAYOUT, batch=attributes["batch"], stride=attributes["stride"])
            self.layouts.append(layout)

    def attributes(self) -> tuple[dict[str, int], list[dict[str, int]]]:
        """What the library has stored: of the product, and of a, b and d."""
        product = {n: self.descriptor.get(_DESCRIPTOR, n) for n in self.gemm.descriptor}
        return product, [{n: x.get(_LAYOUT, n) for n in _LAYOUT} for x in self.layouts]


class _Algorithm(ctypes.Structure):
    """cublasLtMatmulHeuristicResult_t."""

    _fields_ = (
        ("algorithm", ctypes.c_uint64 * 8),
        ("workspace", ctypes.c_size_t),
        ("state", ctypes.c_int),
        ("waves", ctypes.c_float),
        ("reserved", ctypes.c_int * 4),
    )


class Plan:
    """A product with its algorithm, ready to be called and captured.

    The algorithm is chosen here, because asking during a capture fails.

    Args:
        handle: of the library, on the device.
        gemm: the product.
        pointers: addresses that are aligned as those of every call will be.
        workspace: how many bytes of scratch memory it may use.
    """

    def __init__(
        self, handle: Handle, gemm: Gemm, pointers: tuple[int, ...], workspace: int
    ) -> None:
        self.handle = handle
        self.gemm = gemm
        self.product = Product(gemm)
        self.limit = workspace
        kind = ctypes.c_double if gemm.compute == "64F" else ctypes.c_float
        self.scale = kind(gemm.alpha), kind(gemm.beta)
        # The library looks at them to see how a bias is aligned.
        self._point(pointers)
        self.algorithms = self._find(MOST_ALGORITHMS, pointers)
        self.algorithm = self.algorithms[0]

    def _point(self, pointers: tuple[int, ...]) -> dict[str, int]:
        """Tell the descriptor where its vectors are; returns all extras by name."""
        extra = dict(zip(self.gemm.extras, pointers[3:], strict=True))
        vectors = {name: x for name, x in extra.items() if name != "c"}
        self.product.descriptor.set(_DESCRIPTOR, **vectors)
        return extra

    def _find(self, count: int, pointers: tuple[int, ...]) -> list[_Algorithm]:
        """The best algorithms by the library's own estimate, best first."""
        found, number = (_Algorithm * count)(), ctypes.c_int()
        a, b, d = (layout.pointer for layout in self.product.layouts)
        at_a, at_b, at_d, *extra = map(aligned_to, pointers)
        at_c = extra[0] if self.gemm.beta else at_d
        limits = zip("abcd", (at_a, at_b, at_c, at_d), strict=True)
        alignments = {f"align_{x}": limit for x, limit in limits}
        preference = Handle("MatmulPreference")
        preference.set(_PREFERENCE, workspace=self.limit, **alignments)
        if self.gemm.dtypes[1] in ("float16", "bfloat16"):
            preference.set(_PREFERENCE, reductions=_IN_COMPUTE_TYPE)
        status = library().cublasLtMatmulAlgoGetHeuristic(
            *(self.handle.pointer, self.product.descriptor.pointer, a, b, d, d),
            *(preference.pointer, count, found, ctypes.byref(number)),
        )
        usable = [x for x in found[: number.value] if x.state == 0]
        if status or not usable:
            gemm = self.gemm
            layout = f"{gemm.m} x {gemm.n} x {gemm.k}, {gemm.epilogue}"
            reason = f"cuBLASLt has no algorithm (status {status})"
            raise UnsupportedOnBackend("matmul", gemm.dtypes[0], layout, reason)
        return usable

    def __call__(self, pointers: tuple[int, ...], workspace: int, stream: int) -> None:
        """Start the product on a stream; all are addresses.

        Args:
            pointers: of a, b, d, and of the product's `extras`.
            workspace: of as many bytes as the plan was made for.
            stream: the CUDA stream.
        """
        a, b, d = pointers[:3]
        la, lb, ld = (layout.pointer for layout in self.product.layouts)
        alpha, beta = map(ctypes.byref, self.scale)
        with _calling:
            c = self._point(pointers).get("c", d)
            call(
                "Matmul",
                *(self.handle.pointer, self.product.descriptor.pointer, alpha),
                *(a, la, b, lb, beta, c, ld, d, ld),
                *(ctypes.byref(self.algorithm.algorithm), workspace),
                *(self.limit, stream),
            )


class Plans:
    """The plans of one device, by product and by how its operands are aligned."""

    def __init__(self) -> None:
        self.handle = Handle("")
        self._plans: dict[Any, Plan] = {}

    def offers(self, gemm: Gemm, workspace: int) -> bool:
        """Whether there is an algorithm, for operands at multiples of 16 bytes."""
        try:
            self.get(gemm, (16,) * (3 + len(gemm.extras)), workspace)
        except UnsupportedOnBackend:
            return False
        return True

    def get(self, gemm: Gemm, pointers: tuple[int, ...], workspace: int) -> Plan:
        """The plan of a product on operands at these addresses."""
        key = gemm, tuple(map(aligned_to, pointers)), workspace
        if key not in self._plans:
            self._plans[key] = Plan(self.handle, gemm, pointers, workspace)
        return self._plans[key]


def aligned_to(pointer: int) -> int:
    """The largest power of 2 up to `ALIGNMENT` that divides an address."""
    return min(ALIGNMENT, pointer & -pointer) or ALIGNMENT
