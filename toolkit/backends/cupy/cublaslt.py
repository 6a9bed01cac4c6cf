"""ctypes binding of cuBLASLt: matrix products with epilogues, as data and as calls.

A `Gemm` describes a product in the library's column-major order. A row-major product d
= a @ b is its d' = b' @ a', so the bias of the last axis is along its rows. Descriptors
need no device; handles and the functions of `algorithms` need one.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from functools import cache
from typing import Any

from toolkit import dtypes
from toolkit.backends.cupy import libraries
from toolkit.definitions.records import record
from toolkit.errors import DeviceError, UnsupportedOnBackend

# The names of the headers: CUDA_R_*, CUBLAS_COMPUTE_* and CUBLASLT_EPILOGUE_*.
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
DESCRIPTOR = {
    "transpose_a": (3, ctypes.c_int32),
    "transpose_b": (4, ctypes.c_int32),
    "epilogue": (7, ctypes.c_int32),
    "bias": (8, ctypes.c_void_p),
    "aux": (11, ctypes.c_void_p),
    "aux_leading": (12, ctypes.c_int64),
    "bias_type": (26, ctypes.c_int32),
}
LAYOUT = {
    "type": (0, ctypes.c_uint32),
    "rows": (2, ctypes.c_uint64),
    "columns": (3, ctypes.c_uint64),
    "leading": (4, ctypes.c_int64),
    "batch": (5, ctypes.c_int32),
    "stride": (6, ctypes.c_int64),
}
PREFERENCE: dict[str, tuple[int, Any]] = {
    "workspace": (1, ctypes.c_uint64),
    "reductions": (3, ctypes.c_uint32),
    **{f"align_{x}": (5 + i, ctypes.c_uint32) for i, x in enumerate("abcd")},
}
# CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE
IN_COMPUTE_TYPE = 2

# Bytes that NVIDIA recommends for Hopper; smaller after an out-of-memory error.
WORKSPACE = 32 << 20
ALIGNMENT = 256


@record
class Gemm:
    """Column-major product d (m, n) = epilogue(alpha * op(a) @ op(b) + beta * c).

    op(a) has shape (m, k), and op(b) has shape (k, n).

    Attributes:
        transpose: whether a and b are transposed.
        leading: the leading dimensions of a, b and d, in elements.
        dtypes: of a and b, and of c, d, a bias and its gradient.
        compute: a key of `COMPUTE_TYPES`.
        epilogue: a key of `EPILOGUES`.
        batch: the number of products.
        strides: the elements between products, for a, b and d.
        aux_leading: the leading dimension of the auxiliary matrix of an epilogue, in
            elements (bits for relu).
        alpha, beta: the factors; c has the layout of d, and with beta 0 there is no c.
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
        """Return the names of the operands after a, b and d, in a call's order."""
        has_vector = "bias" in self.epilogue or "bgrad" in self.epilogue
        has_aux = "aux" in self.epilogue or self.epilogue.startswith("d")
        has_aux = has_aux and self.epilogue != "default"
        present = {"c": bool(self.beta), "bias": has_vector, "aux": has_aux}
        return [name for name, is_there in present.items() if is_there]

    @property
    def is_plain(self) -> bool:
        """Return whether it is a bare product, supported for all of its dtypes."""
        is_default = self.epilogue == "default" and not self.beta
        return is_default and self.dtypes[0] == self.dtypes[1]

    @property
    def flops(self) -> int:
        return 2 * self.batch * self.m * self.n * self.k

    @property
    def sizes(self) -> list[int]:
        """Return the accessed bytes of a, b, d and the extras."""
        last = self.batch - 1
        spans = [
            x["rows"] + (x["columns"] - 1) * x["leading"] + last * x["stride"]
            for x in self.layouts
        ]
        width, bits = dtypes.itemsize(self.dtypes[1]), "relu" in self.epilogue
        aux = self.n * self.aux_leading
        extra_sizes = {"c": width * spans[2], "bias": width * self.m}
        extra_sizes["aux"] = aux // 8 if bits else width * aux
        items = [dtypes.itemsize(self.dtypes[0])] * 2 + [width]
        nbytes = [item * span for item, span in zip(items, spans, strict=True)]
        return nbytes + [extra_sizes[name] for name in self.extras]

    @property
    def layouts(self) -> list[dict[str, int]]:
        """Return the attributes of the matrices a, b and d."""
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
        """Return the attributes of the product, without its pointers."""
        attributes = {
            f"transpose_{x}": int(t) for x, t in zip("ab", self.transpose, strict=True)
        }
        attributes["epilogue"] = EPILOGUES[self.epilogue]
        if "bias" in self.extras:
            attributes["bias_type"] = DATA_TYPES[self.dtypes[1]]
        if self.aux_leading:
            attributes["aux_leading"] = self.aux_leading
        return attributes


def compute_type(dtype: str, precision: str) -> str:
    """Return the compute type of products of a dtype, at a `matmul_precision`.

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
        "matmul", dtype, "row-major", "cuBLASLt multiplies only floats"
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
    """Load cuBLASLt and declare the types of its functions.

    Raises:
        BackendUnavailable: the library is missing.
    """
    cublaslt = libraries.load("cublasLt")
    for name, arguments in _SIGNATURES.items():
        function = getattr(cublaslt, f"cublasLt{name}")
        function.argtypes, function.restype = arguments, ctypes.c_int
    cublaslt.cublasLtGetVersion.restype = ctypes.c_size_t
    cublaslt.cublasLtGetStatusString.restype = ctypes.c_char_p
    return cublaslt


def call(name: str, *arguments: Any) -> None:
    """Call cublasLt<name>; raise an error if the status is not 0."""
    status = getattr(library(), f"cublasLt{name}")(*arguments)
    if status:
        describe = library().cublasLtGetStatusString
        raise DeviceError(f"cublasLt{name}: {describe(status).decode()} ({status})")


class Handle:
    """Owner of a library object, which it destroys; `pointer` is its address."""

    def __init__(self, kind: str, *arguments: Any) -> None:
        self.kind = kind
        self.pointer: ctypes.c_void_p = ctypes.c_void_p()
        # Looked up now: during interpreter exit no lookup is possible.
        self._destroy = getattr(library(), f"cublasLt{kind}Destroy")
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
        """Return the value of an attribute in the library."""
        number, kind = table[name]
        cell, written = kind(), ctypes.c_size_t()
        size = ctypes.sizeof(cell)
        where = ctypes.byref(cell), size, ctypes.byref(written)
        call(f"{self.kind}GetAttribute", self.pointer, number, *where)
        return int(cell.value or 0)

    def __del__(self) -> None:
        # No caller can handle an error in a finalizer.
        pointer = getattr(self, "pointer", None)
        self.pointer = ctypes.c_void_p()
        if pointer:
            self._destroy(pointer)


class Product:
    """Descriptors of a `Gemm`; they need no device."""

    def __init__(self, gemm: Gemm) -> None:
        self.gemm = gemm
        scale = SCALE_TYPES[gemm.compute]
        self.descriptor: Handle = Handle(
            "MatmulDesc", COMPUTE_TYPES[gemm.compute], scale
        )
        self.descriptor.set(DESCRIPTOR, **gemm.descriptor)
        self.layouts = []
        for attributes in gemm.layouts:
            keys = ("type", "rows", "columns", "leading")
            layout = Handle("MatrixLayout", *(attributes[key] for key in keys))
            layout.set(LAYOUT, batch=attributes["batch"], stride=attributes["stride"])
            self.layouts.append(layout)

    def attributes(self) -> tuple[dict[str, int], list[dict[str, int]]]:
        """Return the library's attributes of the product, and of a, b and d."""
        product = {n: self.descriptor.get(DESCRIPTOR, n) for n in self.gemm.descriptor}
        return product, [{n: x.get(LAYOUT, n) for n in LAYOUT} for x in self.layouts]
