"""Convolutions as products: the pixels of each window are a row of a matrix (im2col).

For x of shape (batch, *spatial, channels), that matrix has shape (groups, batch,
*counts, *kernel, channels / groups). Its rows times the filters of a group, a view of
w, are the group's part of the result.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from toolkit.backends.cupy.cuda.launch import Buffer, Launch
from toolkit.backends.cupy.cuda.prelude import COMPUTED, STORED
from toolkit.backends.cupy.cuda.threads import Threads, offset_text
from toolkit.definitions.records import record
from toolkit.ir import Spec
from toolkit.plans.operands import Operand, contiguous

Shape = tuple[int, ...]


@record
class Windows:
    """Geometry of windows over images.

    Attributes:
        kernel: the pixels of a window along each axis.
        counts: the number of windows along each axis.
        strides, padding, dilation, groups: as for `conv`.
    """

    kernel: Shape
    counts: Shape
    strides: Shape
    padding: tuple[tuple[int, int], ...]
    dilation: Shape
    groups: int

    def matrix(self, images: Spec) -> Spec:
        """Return the spec of the matrix for images of a spec."""
        batch, channels = images.shape[0], images.shape[-1] // self.groups
        shape = (self.groups, batch, *self.counts, *self.kernel, channels)
        return images.with_shape(shape)

    def axes(self) -> Any:
        """Return (axis, kernel, count, stride, low padding, dilation) of each axis."""
        low = [pair[0] for pair in self.padding]
        rows = zip(
            self.kernel, self.counts, self.strides, low, self.dilation, strict=True
        )
        return [(a, *row) for a, row in enumerate(rows)]


def columns(x: Operand, windows: Windows) -> list[Launch]:
    """Return the launches that unfold images (buffer 0) to the matrix (buffer 1)."""
    matrix = contiguous(windows.matrix(x.spec))
    if not matrix.spec.size:
        return []
    rank, shape = len(windows.kernel), matrix.spec.shape
    k = Threads("columns", shape, x, matrix)
    k.source("x", x.spec.dtype, Buffer(0))
    k.target("y", x.spec.dtype, Buffer(1))
    group, image, *spatial, channel = k.indices
    tests, names = [], []
    for a, _, _, stride, low, gap in windows.axes():
        k(
            f"const int x{a} = {spatial[a]} * {stride} - {low} + "
            f"{spatial[rank + a]} * {gap};"
        )
        tests.append(f"x{a} >= 0 && x{a} < {x.spec.shape[1 + a]}")
        names.append(f"x{a}")
    channel_index = f"({group} * {shape[-1]} + {channel})"
    k(f"{COMPUTED[x.spec.dtype]} value = 0;")
    source = offset_text(x, [image, *names, channel_index])
    k(f"if ({' && '.join(tests)}) value = widen(x[{source}]);")
    k(f"y[i] = Narrow<{STORED[x.spec.dtype]}>::of(value);")
    return [k.launch()]


def images(
    spec: Spec, windows: Windows, matrix_dtype: str | None = None
) -> list[Launch]:
    """Return the launches that sum a matrix into images at each pixel.

    Buffer 0 is the matrix, buffer 1 the images. A pixel adds its elements in the order
    of the window's pixels.

    Args:
        spec: of the images.
        windows: their geometry.
        matrix_dtype: the dtype of the matrix; None is the dtype of the images.
    """
    if not spec.size:
        return []
    dtype, matrix_dtype = spec.dtype, matrix_dtype or spec.dtype
    matrix = contiguous(Spec(windows.matrix(spec).shape, matrix_dtype))
    k = Threads("images", spec.shape, contiguous(spec), matrix)
    k.source("x", matrix_dtype, Buffer(0))
    k.target("y", dtype, Buffer(1))
    image, *pixel, channel = k.indices
    k(f"{COMPUTED[dtype]} sum = 0;")
    with ExitStack() as stack:
        for a, size, count, stride, low, gap in windows.axes():
            stack.enter_context(k.block(f"for (int w{a} = 0; w{a} < {size}; ++w{a})"))
            k(f"const int at{a} = {pixel[a]} + {low} - w{a} * {gap};")
            k(f"const int y{a} = at{a} / {stride};")
            k(f"if (at{a} < 0 || at{a} % {stride} || y{a} >= {count}) continue;")
        share = matrix.spec.shape[-1]
        inner_indices = [f"{letter}{a}" for letter in "yw" for a in range(len(pixel))]
        names = [f"{channel} / {share}", image, *inner_indices, f"{channel} % {share}"]
        k(f"sum += widen(x[{offset_text(matrix, [f'({n})' for n in names])}]);")
    k(f"y[i] = Narrow<{STORED[dtype]}>::of(sum);")
    return [k.launch()]
