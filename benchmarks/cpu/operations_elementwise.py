"""Elementwise rows of the table of operations.py."""

from operations_inputs import (
    CLASSES,
    MATRIX,
    VECTOR,
    Operation,
    booleans,
    integers,
    matrix,
    named,
    normal,
    pair,
    positive,
    positive_matrix,
    uniform,
)


def inside(size):
    """Return a matrix of numbers in (-0.9, 0.9)."""
    return (uniform(-0.9, 0.9, *MATRIX[size]),)


def probabilities(size):
    """Return a matrix of numbers in (0.05, 0.95)."""
    return (uniform(0.05, 0.95, *MATRIX[size]),)


def beyond_one(size):
    """Return a matrix of numbers in [1.5, 2.5)."""
    return (positive(*MATRIX[size]) + 1,)


def positive_pair(size):
    """Return two matrices of positive numbers."""
    return positive(*MATRIX[size]), positive(*MATRIX[size])


def integer_pair(size):
    """Return two matrices of integers; the second is not zero."""
    return integers(1000, *MATRIX[size]), integers(10, *MATRIX[size]) + 1


def boolean_pair(size):
    """Return two matrices of booleans."""
    return booleans(*MATRIX[size]), booleans(*MATRIX[size])


def complexes(size):
    """Return a matrix of complex numbers."""
    return ((normal(*MATRIX[size]) + 1j * normal(*MATRIX[size])).astype("complex64"),)


def sums(size):
    """Return a matrix, a row and a column."""
    rows, columns = MATRIX[size]
    return normal(rows, columns), normal(columns), normal(rows, 1)


SMOOTH = [
    *named(
        "exp sin cos tan tanh sinh cosh arctan arcsinh expm1 exp2 sinc",
        matrix,
    ),
    *named("abs square negative deg2rad rad2deg", matrix),
    *named("fabs", matrix, "fabs=abs"),
    *named("sqrt log log1p log2 log10 reciprocal", positive_matrix),
    *named("rsqrt", positive_matrix, numpy="-"),
    *named("cbrt", positive_matrix, torch="-", is_differentiable=False),
    *named("arcsin arccos arctanh", inside),
    *named("arccosh", beyond_one),
    *named("erf erfc", matrix, numpy="-"),
    *named("erfinv", inside, numpy="-"),
    *named("ndtri", probabilities, numpy="-"),
    *named("lgamma digamma", positive_matrix, numpy="-"),
]
ACTIVATIONS = named(
    "sigmoid relu relu6 silu softplus elu celu selu hard_sigmoid hard_silu hard_tanh "
    "hard_shrink soft_shrink tanh_shrink softsign log_sigmoid",
    matrix,
    "hard_sigmoid=hardsigmoid hard_silu=hardswish hard_tanh=hardtanh "
    "hard_shrink=hardshrink soft_shrink=softshrink tanh_shrink=tanhshrink "
    "log_sigmoid=logsigmoid",
    "-",
)
ACTIVATIONS += [
    Operation(
        "leaky_relu",
        "",
        matrix,
        lambda tk, x: tk.ops.leaky_relu(x, 0.2),
        lambda t, x: t.nn.functional.leaky_relu(x, 0.2),
    ),
    Operation(
        "gelu",
        "exact",
        matrix,
        lambda tk, x: tk.ops.gelu(x, approximate=False),
        lambda t, x: t.nn.functional.gelu(x),
    ),
    Operation(
        "gelu",
        "tanh",
        matrix,
        lambda tk, x: tk.ops.gelu(x),
        lambda t, x: t.nn.functional.gelu(x, approximate="tanh"),
    ),
    Operation(
        "glu",
        "",
        matrix,
        lambda tk, x: tk.ops.glu(x),
        lambda t, x: t.nn.functional.glu(x),
    ),
    Operation(
        "threshold",
        "",
        matrix,
        lambda tk, x: tk.ops.threshold(x, 0.5, 0.0),
        lambda t, x: t.nn.functional.threshold(x, 0.5, 0.0),
    ),
    Operation(
        "squareplus",
        "",
        matrix,
        lambda tk, x: tk.ops.squareplus(x),
        lambda t, x: (x + t.sqrt(x * x + 4)) / 2,
        lambda n, x: (x + n.sqrt(x * x + 4)) / 2,
    ),
]
# Functions with zero gradient, or of numbers that have none.
FLAT = [
    *named(
        "floor ceil trunc round sign isnan isfinite isinf isneginf isposinf signbit "
        "isreal",
        matrix,
        is_differentiable=False,
    ),
    *named("logical_not", lambda size: (booleans(*MATRIX[size]),), is_differentiable=0),
    *named(
        "i0 i0e i1 i1e bessel_j0 bessel_j1 bessel_y0 bessel_y1 bessel_k0 bessel_k1 "
        "bessel_k0e bessel_k1e",
        positive_matrix,
        "bessel_k0=modified_bessel_k0 bessel_k1=modified_bessel_k1 "
        "bessel_k0e=scaled_modified_bessel_k0 bessel_k1e=scaled_modified_bessel_k1",
        "i0e= i1= i1e= bessel_j0= bessel_j1= bessel_y0= bessel_y1= bessel_k0= "
        "bessel_k1= bessel_k0e= bessel_k1e=",
        is_differentiable=False,
    ),
]
BINARY = [
    *named(
        "add subtract multiply divide maximum minimum fmax fmin arctan2 hypot "
        "logaddexp logaddexp2",
        pair,
    ),
    *named("power", lambda size: pair(size)[::-1], "power=pow"),
    *named("mod fmod", pair, "mod=remainder", is_differentiable=False),
    *named("floor_divide heaviside nextafter", pair, is_differentiable=False),
    *named(
        "greater greater_equal less less_equal equal not_equal isclose",
        pair,
        "equal=eq",
        is_differentiable=False,
    ),
    *named("logical_and logical_or logical_xor", boolean_pair, is_differentiable=False),
    *named(
        "bitwise_and bitwise_or bitwise_xor bitwise_left_shift bitwise_right_shift "
        "gcd lcm",
        integer_pair,
        numpy="bitwise_left_shift=left_shift bitwise_right_shift=right_shift",
        is_differentiable=False,
    ),
    *named(
        "bitwise_not",
        lambda size: (integers(1000, *MATRIX[size]),),
        is_differentiable=False,
    ),
    *named(
        "ldexp",
        lambda size: (normal(*MATRIX[size]), integers(9, *MATRIX[size])),
        is_differentiable=False,
    ),
    *named(
        "add floor_divide mod",
        integer_pair,
        "mod=remainder",
        case="int32",
        is_differentiable=False,
    ),
    *named(
        "igamma igammac",
        positive_pair,
        "igamma=gammainc igammac=gammaincc",
        "-",
        is_differentiable=False,
    ),
    *named(
        "zeta",
        lambda size: (*beyond_one(size), positive(*MATRIX[size])),
        numpy="-",
        is_differentiable=False,
    ),
    Operation(
        "polygamma",
        "order 1",
        positive_matrix,
        lambda tk, x: tk.ops.polygamma(1, x),
        lambda t, x: t.polygamma(1, x),
        is_differentiable=False,
    ),
    Operation(
        "power",
        "exponent 3",
        matrix,
        lambda tk, x: tk.ops.power(x, 3),
        lambda t, x: t.pow(x, 3),
        lambda n, x: n.power(x, 3),
    ),
    Operation(
        "add",
        "a row and a column",
        sums,
        lambda tk, x, y, z: tk.ops.add(tk.ops.add(x, y), z),
        lambda t, x, y, z: x + y + z,
        lambda n, x, y, z: x + y + z,
    ),
    Operation(
        "add",
        "float16",
        lambda size: tuple(x.astype("float16") for x in pair(size)),
        lambda tk, x, y: tk.ops.add(x, y),
        lambda t, x, y: x + y,
        lambda n, x, y: x + y,
    ),
    Operation(
        "exp",
        "float64",
        lambda size: (normal(*MATRIX[size]).astype("float64"),),
        lambda tk, x: tk.ops.exp(x),
        lambda t, x: t.exp(x),
        lambda n, x: n.exp(x),
    ),
]
OTHERS = [
    Operation(
        "clip",
        "",
        matrix,
        lambda tk, x: tk.ops.clip(x, -1, 1),
        lambda t, x: t.clamp(x, -1, 1),
        lambda n, x: n.clip(x, -1, 1),
    ),
    *named("nan_to_num", matrix),
    Operation(
        "where",
        "",
        pair,
        lambda tk, x, y: tk.ops.where(x > 0, x, y),
        lambda t, x, y: t.where(x > 0, x, y),
        lambda n, x, y: n.where(x > 0, x, y),
    ),
    Operation(
        "select",
        "2 conditions",
        pair,
        lambda tk, x, y: tk.ops.select([x > 1, x > 0], [x, y], 0.0),
        lambda t, x, y: t.where(x > 1, x, t.where(x > 0, y, 0.0)),
        lambda n, x, y: n.select([x > 1, x > 0], [x, y], 0.0),
    ),
    *(
        Operation(
            "cast",
            f"to {dtype}",
            matrix,
            lambda tk, x, dtype=dtype: tk.ops.cast(x, dtype),
            lambda t, x, dtype=dtype: x.to(getattr(t, dtype)),
            None if dtype == "bfloat16" else lambda n, x, dtype=dtype: x.astype(dtype),
            is_differentiable=False,
        )
        for dtype in ("int32", "float16", "bfloat16", "float64")
    ),
    Operation(
        "cast",
        "uint8 to float32, scaled",
        lambda size: (integers(255, *MATRIX[size], dtype="uint8"),),
        lambda tk, x: tk.ops.cast(x, "float32") * (1 / 255),
        lambda t, x: x.to(t.float32) * (1 / 255),
        lambda n, x: x.astype("float32") * n.float32(1 / 255),
        is_differentiable=False,
    ),
    Operation(
        "multiply",
        "chain of 6",
        pair,
        lambda tk, x, y: tk.ops.tanh(x * y + 1.0) * x - tk.ops.exp(-x * x),
        lambda t, x, y: t.tanh(x * y + 1.0) * x - t.exp(-x * x),
        lambda n, x, y: n.tanh(x * y + 1) * x - n.exp(-x * x),
    ),
    *named("real conj", complexes, is_differentiable=False),
    *named("imag angle", complexes, is_differentiable=False),
    Operation(
        "isin",
        "100 values",
        lambda size: (integers(10_000, VECTOR[size]), integers(10_000, 100)),
        lambda tk, x, y: tk.ops.isin(x, y),
        lambda t, x, y: t.isin(x, y),
        lambda n, x, y: n.isin(x, y),
        is_differentiable=False,
    ),
    Operation(
        "digitize",
        "",
        lambda size: (normal(VECTOR[size] // 10 + 1), sorted_edges(size)),
        lambda tk, x, edges: tk.ops.digitize(x, edges),
        lambda t, x, edges: t.bucketize(x, edges, right=True),
        lambda n, x, edges: n.digitize(x, edges),
        is_differentiable=False,
    ),
]


def sorted_edges(size):
    """Return increasing numbers."""
    edges = normal(CLASSES[size])
    edges.sort()
    return edges


ELEMENTWISE = [*SMOOTH, *ACTIVATIONS, *FLAT, *BINARY, *OTHERS]
