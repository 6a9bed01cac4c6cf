"""Matrix products as steps; the operand layouts decide between strides and copies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from math import prod
from typing import NoReturn

from toolkit import dtypes
from toolkit.backends.cupy.cublaslt import Gemm, compute_type
from toolkit.backends.cupy.cuda.launch import Buffer
from toolkit.backends.cupy.cuda.pitch import BLOCK_ELEMENTS, copy_rows
from toolkit.backends.cupy.epilogues import HALVES, Epilogue, match_epilogue
from toolkit.backends.cupy.steps import (
    Address,
    Lowered,
    NotLowered,
    Product,
    StepBuilder,
)
from toolkit.definitions.records import record
from toolkit.ir import Graph, Node, Spec
from toolkit.plans.operands import Operand, contiguous

# The maximum number of calls for products without a uniform stride; above it, copy.
MAX_CALLS = 64
# The row size in bytes that tensor cores need at full speed in half precision. An H200
# then computes 6e14 operations per second, else 1.2e14.
ROW_BYTES = 16
SAVED_PER_OPERATION = 1 / 1.2e14 - 1 / 6e14
# Cost model of copies in seconds: per byte read and written, and per launch.
COPY_SECONDS_PER_BYTE, LAUNCH_SECONDS = 1e-12, 2e-5


class Matrix:
    """Operand of a product: its location, and its strides in elements."""

    def __init__(self, address: Address, operand: Operand) -> None:
        self.address = address
        self.spec: Spec = operand.spec
        self.itemsize: int = dtypes.itemsize(operand.spec.dtype)
        self.strides: tuple[int, ...] = tuple(
            s // self.itemsize for s in operand.strides
        )

    @property
    def rows(self) -> tuple[bool, int] | None:
        """Return whether it is transposed, and its leading dimension.

        The result is None if neither axis is contiguous. An extent of 1 has any stride.
        """
        (m, n), (down, across) = self.spec.shape[-2:], self.strides[-2:]
        if (n == 1 or across == 1) and (m == 1 or down >= n):
            return False, max(n, down if m > 1 else n)
        if (m == 1 or down == 1) and (n == 1 or across >= m):
            return True, max(m, across if n > 1 else m)
        return None

    @property
    def layout(self) -> tuple[bool, int]:
        """Return the `rows` of a matrix that has them."""
        rows = self.rows
        assert rows is not None
        return rows

    @property
    def is_row_major(self) -> bool:
        """Return whether it is contiguous in row-major order."""
        strides = tuple(s * self.itemsize for s in self.strides)
        return Operand(self.spec, strides).is_contiguous

    def batch_strides(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the strides of the batch axes of a product; 0 for broadcast axes."""
        batch = self.spec.shape[:-2]
        lead = (0,) * (len(shape) - len(batch))
        axes = zip(batch, self.strides, strict=False)
        return lead + tuple(0 if n == 1 else stride for n, stride in axes)


@record
class ProductEpilogue:
    """Epilogue of a product call, with its operands.

    Attributes:
        name: a key of `EPILOGUES`.
        alpha: the scale factor of the product.
        added: an array with the layout of the result, which the call adds.
        vectors: a bias, and the auxiliary operand of the epilogue.
        aux_leading: the leading dimension of the auxiliary operand, in elements.
    """

    name: str = "default"
    alpha: float = 1.0
    added: Address | None = None
    vectors: tuple[Address, ...] = ()
    aux_leading: int = 0


NO_EPILOGUE = ProductEpilogue()


# The order of the steps in a call; a call cannot do two of the same rank.
_ORDER = {"scale": 0, "cast": 1, "bias": 2, "add": 2, "relu": 3}


def is_supported(node: Node, epilogue: Epilogue | None) -> bool:
    """Return whether one call computes a product and its epilogue."""
    if epilogue is None or len({*epilogue.steps}) < len(epilogue.steps):
        return False
    # Readers of half-precision values cast them without extra cost. A float32 result
    # costs more memory traffic, and is worth it for weight gradients, which are long
    # sums.
    size = node.outputs[0].spec.size
    if "cast" in epilogue.steps and size > min(x.spec.size for x in node.inputs):
        return False
    order = [_ORDER[step] for step in epilogue.steps]
    return order == sorted(order)


def lower_matmul(
    body: Graph, inputs: Sequence[Operand], outputs: Sequence[Operand], precision: str
) -> Lowered | None:
    """Lower a product and its epilogue to steps; return None if unsupported.

    Args:
        body: the product, and the elementwise nodes on its result.
        inputs, outputs: the operands of the body.
        precision: of float32: "highest", "strict" or "tf32".
    """
    if body.nodes[0].op.name == "product":
        return _lower_product(body.nodes[0], inputs, outputs, precision)
    (out,) = outputs if len(outputs) == 1 else (None,)
    if out is None or not dtypes.is_float(out.spec.dtype) or not out.spec.size:
        return Lowered() if out is not None and not out.spec.size else None
    epilogue = match_epilogue(body)
    anchor = body.nodes[0]
    if (
        epilogue is None
        or not is_supported(anchor, epilogue)
        or not anchor.inputs[0].spec.size
    ):
        return None
    numbers = {x: i for i, x in enumerate(body.inputs)}
    # A constant in the body has no address.
    if any(x not in numbers for x in (*anchor.inputs, *epilogue.extra)):
        return None
    if not all(inputs[numbers[x]].is_contiguous for x in epilogue.extra):
        return None
    builder = StepBuilder()
    a, b = (Matrix(Buffer(numbers[x]), inputs[numbers[x]]) for x in anchor.inputs)
    spec = anchor.outputs[0].spec.with_dtype(out.spec.dtype)
    target = Matrix(Buffer(len(inputs)), contiguous(spec))
    additions = [s for s in epilogue.steps if s in ("bias", "add")]
    addresses = [Buffer(numbers[x]) for x in epilogue.extra]
    extra_addresses = dict(zip(additions, addresses, strict=True))
    names = [s for s in ("relu", "bias") if s in epilogue.steps]
    vectors = (extra_addresses["bias"],) if "bias" in extra_addresses else ()
    finish = ProductEpilogue(
        "_".join(names) or "default",
        epilogue.scale,
        extra_addresses.get("add"),
        vectors,
    )
    try:
        multiply(builder, a, b, target, precision, finish)
    except NotLowered:
        return None
    return builder.build()


def _lower_product(
    node: Node, inputs: Sequence[Operand], outputs: Sequence[Operand], precision: str
) -> Lowered | None:
    """Lower a product with auxiliary operands or results to steps."""
    name, result = node.attrs["epilogue"], outputs[0].spec
    if not all(x.is_contiguous for x in inputs[2:]) or not inputs[0].spec.size:
        return None
    if "gelu" in name and not is_gelu_supported(result.dtype, precision):
        return None
    addresses = [Buffer(i) for i in range(2, len(inputs) + len(outputs))]
    addresses.remove(Buffer(len(inputs)))
    # A bias precedes an auxiliary result, and row sums precede an auxiliary operand.
    is_read = "bgrad" in name
    vectors = addresses[::-1] if is_read else addresses
    leading = 0
    if "aux" in name or name.startswith("d"):
        aux = outputs[-1].spec if "aux" in name else inputs[-1].spec
        leading = 8 * aux.shape[-1] if aux.dtype == "uint8" else result.shape[-1]
        if leading % 8:
            return None
    builder = StepBuilder()
    a, b = (Matrix(Buffer(i), x) for i, x in enumerate(inputs[:2]))
    target = Matrix(Buffer(len(inputs)), contiguous(result))
    called = "bgrada" if name == "bgrad" else name
    finish = ProductEpilogue(called, vectors=tuple(vectors), aux_leading=leading)
    try:
        multiply(builder, a, b, target, precision, finish)
    except NotLowered:
        return None
    calls = [step for step in builder.steps if isinstance(step, Product)]
    return builder.build() if len(calls) == 1 == calls[0].gemm.batch else None


def is_gelu_supported(dtype: str, precision: str) -> bool:
    """Return whether the library's gelu is exact enough: its tanh is not documented."""
    return dtype in HALVES or (dtype == "float32" and precision == "tf32")


def raise_unlowered(*inputs: object, **attrs: object) -> NoReturn:
    """Raise an error: this primitive exists only where it can be lowered."""
    raise AssertionError("a primitive of the compiler has no kernel")


def multiply(
    builder: StepBuilder,
    a: Matrix,
    b: Matrix,
    d: Matrix,
    precision: str,
    finish: ProductEpilogue = NO_EPILOGUE,
) -> None:
    """Append d = finish(a @ b), all row-major, with leading batch axes."""
    a, b = (x if x.rows else _copy_contiguous(builder, x) for x in (a, b))
    batch = d.spec.shape[:-2]
    if batch and not any(b.batch_strides(batch)):
        a, b, d = _merge_batch(a, b, d)
        batch = d.spec.shape[:-2]
    result = d
    if not batch:
        a, b, d, finish = _pad_to_alignment(builder, a, b, d, finish)
    strides = [x.batch_strides(batch) for x in (a, b, d)]
    axes = [(n, *steps) for n, *steps in zip(batch, *strides, strict=True) if n != 1]
    outer, inner = _split_batch(axes)
    if prod(row[0] for row in outer) > MAX_CALLS:
        a, b = (_copy_contiguous(builder, _expand_batch(x, batch)) for x in (a, b))
        strides = [x.batch_strides(batch) for x in (a, b, d)]
        rows = zip(batch, *strides, strict=True)
        outer, inner = _split_batch([(n, *steps) for n, *steps in rows if n != 1])
    gemm = _gemm(a, b, d, precision, finish, inner)
    for at in product(*(range(row[0]) for row in outer)):
        steps = [
            sum(i * row[which] for i, row in zip(at, outer, strict=True))
            for which in (1, 2, 3)
        ]
        sa, sb, sd = (n * x.itemsize for n, x in zip(steps, (a, b, d), strict=True))
        # In column-major order the product is transposed, so b is the first operand.
        operands: list[Address] = [b.address, a.address, d.address, *finish.vectors]
        offsets = [sb, sa, sd]
        if finish.added is not None:
            operands.insert(3, finish.added)
            offsets.append(sd)
        builder.steps.append(Product(gemm, tuple(operands), tuple(offsets)))
    if d is not result:
        _copy_rows(builder, d, result)


def _pad_to_alignment(
    builder: StepBuilder, a: Matrix, b: Matrix, d: Matrix, finish: ProductEpilogue
) -> tuple[Matrix, Matrix, Matrix, ProductEpilogue]:
    """Return the product with zero-padded matrices, if that is faster.

    Otherwise rows of half-precision values have addresses that tensor cores cannot
    read. For example, products with 50,257 logits take more than five times as long.
    """
    unpadded = a, b, d, finish
    is_plain = finish.name in ("default", "bias", "relu", "relu_bias")
    if a.spec.dtype not in HALVES or finish.added is not None or not is_plain:
        return unpadded
    units = ROW_BYTES // a.itemsize

    def up(n: int) -> int:
        return -(-n // units) * units

    (m, k), n = a.spec.shape, b.spec.shape[1]
    (turned_a, _), (turned_b, _) = a.layout, b.layout
    rows = up(m) if turned_a else m
    depth = k if turned_a and not turned_b else up(k)
    shapes = (rows, depth), (depth, up(n)), (rows, up(n))
    pairs = list(zip((a, b, d), shapes, strict=True))
    changed = [x for x, shape in pairs if x.spec.shape != shape]
    copied = sum(_rows_bytes(x) for x in changed)
    saved = SAVED_PER_OPERATION * 2 * m * n * k
    if (
        saved <= COPY_SECONDS_PER_BYTE * copied + LAUNCH_SECONDS * len(changed)
        or not changed
    ):
        return unpadded
    bias = d.spec.with_shape((1, n))
    vectors = (Matrix(address, contiguous(bias)) for address in finish.vectors)
    addresses = tuple(_pad(builder, x, (1, up(n))).address for x in vectors)
    a, b = (_pad(builder, x, shape) for x, shape in pairs[:2])
    return (
        a,
        b,
        _allocate_resized(builder, d, shapes[2]),
        replace(finish, vectors=addresses),
    )


def _rows_bytes(x: Matrix) -> int:
    """Return the bytes of a matrix; short rows count as the minimum for a block."""
    is_transposed, _ = x.layout
    rows, columns = x.spec.shape[::-1] if is_transposed else x.spec.shape
    return rows * max(columns, BLOCK_ELEMENTS) * x.itemsize


def _pad(builder: StepBuilder, x: Matrix, shape: tuple[int, int]) -> Matrix:
    """Return a matrix with zero padding up to other extents."""
    y = _allocate_resized(builder, x, shape)
    if y is not x:
        _copy_rows(builder, x, y)
    return y


def _allocate_resized(
    builder: StepBuilder, x: Matrix, shape: tuple[int, int]
) -> Matrix:
    """Return scratch memory for a matrix with other extents, or the matrix."""
    if x.spec.shape == shape:
        return x
    (is_transposed, _), spec = x.layout, x.spec.with_shape(shape)
    strides = (1, shape[0]) if is_transposed else (shape[1], 1)
    operand = Operand(spec, tuple(s * x.itemsize for s in strides))
    return Matrix(builder.allocate(spec.nbytes), operand)


def _copy_rows(builder: StepBuilder, x: Matrix, y: Matrix) -> None:
    """Copy a matrix into a smaller one, or into a larger one with zero padding."""
    is_transposed, pitch = x.layout
    (height, width), (source_rows, source_columns) = (
        z.spec.shape[::-1] if is_transposed else z.spec.shape for z in (y, x)
    )
    launch = copy_rows(
        (height, width), (source_rows, source_columns), pitch, x.itemsize
    )
    builder.launch([launch], [x.address, y.address])


def _gemm(
    a: Matrix,
    b: Matrix,
    d: Matrix,
    precision: str,
    finish: ProductEpilogue,
    inner: tuple[int, int, int, int],
) -> Gemm:
    (turned_a, leading_a), (turned_b, leading_b) = a.layout, b.layout
    _, leading_d = d.layout
    m, k = a.spec.shape[-2:]
    n = b.spec.shape[-1]
    count, step_a, step_b, step_d = inner
    return Gemm(
        *(n, m, k),
        transpose=(turned_b, turned_a),
        leading=(leading_b, leading_a, leading_d),
        dtypes=(a.spec.dtype, d.spec.dtype),
        compute=compute_type(a.spec.dtype, precision),
        epilogue=finish.name,
        batch=count,
        strides=(step_b, step_a, step_d),
        aux_leading=finish.aux_leading,
        alpha=finish.alpha,
        beta=0.0 if finish.added is None else 1.0,
    )


def _copy_contiguous(builder: StepBuilder, x: Matrix) -> Matrix:
    source = Operand(x.spec, tuple(s * x.itemsize for s in x.strides))
    return Matrix(builder.copy(x.address, source), contiguous(x.spec))


def _expand_batch(x: Matrix, batch: tuple[int, ...]) -> Matrix:
    """Return the matrix with all batch axes; broadcast axes have stride 0."""
    strides = (*x.batch_strides(batch), *x.strides[-2:])
    spec = x.spec.with_shape((*batch, *x.spec.shape[-2:]))
    return Matrix(x.address, Operand(spec, tuple(s * x.itemsize for s in strides)))


def _merge_batch(a: Matrix, b: Matrix, d: Matrix) -> tuple[Matrix, Matrix, Matrix]:
    """Merge the batch into the rows of a, if b is shared and a is contiguous."""
    if (
        not (a.is_row_major and d.is_row_major)
        or a.spec.shape[:-2] != d.spec.shape[:-2]
    ):
        return a, b, d
    rows = prod(a.spec.shape[:-1])

    def joined(x: Matrix) -> Matrix:
        spec = x.spec.with_shape((rows, x.spec.shape[-1]))
        return Matrix(x.address, contiguous(spec))

    strides = tuple(s * b.itemsize for s in b.strides[-2:])
    one = Operand(b.spec.with_shape(b.spec.shape[-2:]), strides)
    return joined(a), Matrix(b.address, one), joined(d)


Axis = tuple[int, ...]


def _split_batch(axes: list[Axis]) -> tuple[list[Axis], tuple[int, int, int, int]]:
    """Split batch axes into loop axes and one strided batch axis.

    Args:
        axes: extent, and the strides of a, b and d, outermost first.
    """
    inner: tuple[int, ...] = (1, 0, 0, 0)
    outer = list(axes)
    while outer:
        n, *steps = outer[-1]
        count, *inner_axes = inner
        if count > 1 and any(
            s != count * i for s, i in zip(steps, inner_axes, strict=True)
        ):
            break
        inner = (count * n, *(inner_axes if count > 1 else steps))
        outer.pop()
    return outer, inner  # type: ignore[return-value]
