"""Copies of matrices between different row pitches, with zero padding."""

from __future__ import annotations

from toolkit.backends.cupy.cuda.body import kernel_text
from toolkit.backends.cupy.cuda.launch import Buffer, Launch, make_kernel
from toolkit.backends.cupy.cuda.scalars import SourceWriter
from toolkit.backends.cupy.cuda.threads import THREADS, unit_type

# Elements per thread: the number of reads in flight at a time.
THREAD_ELEMENTS = 8
# Elements per block; a block handles one row.
BLOCK_ELEMENTS = THREADS * THREAD_ELEMENTS


def copy_rows(
    shape: tuple[int, int], source: tuple[int, int], pitch: int, itemsize: int
) -> Launch:
    """Return the launch that copies a matrix from buffer 0 to buffer 1.

    Args:
        shape: the shape of the destination, row-major.
        source: the shape of the source; elements outside it are zero.
        pitch: the row pitch of the source, in elements.
        itemsize: bytes per element.
    """
    (rows, columns), (source_rows, source_columns) = shape, source
    tiles = -(-columns // BLOCK_ELEMENTS)
    ctype, w = unit_type(itemsize), SourceWriter()
    w(f"const int tile = blockIdx.x % {tiles};")
    w(f"const i64 row = blockIdx.x / {tiles};")
    w(f"const int first = tile * {BLOCK_ELEMENTS} + threadIdx.x;")
    w(f"x += row * {pitch} + first;")
    w(f"y += row * {columns} + first;")
    w(f"const int given = {f'row < {source_rows} ? {source_columns} - first : 0'};")
    w(f"{ctype} found[{THREAD_ELEMENTS}];")
    for line in (
        f"found[k] = k * {THREADS} < given ? x[k * {THREADS}] : 0;",
        f"if (first + k * {THREADS} < {columns}) y[k * {THREADS}] = found[k];",
    ):
        with w.block("#pragma unroll", f"for (int k = 0; k < {THREAD_ELEMENTS}; ++k)"):
            w(line)
    parameters = [(f"const {ctype}*", "x", Buffer(0)), (f"{ctype}*", "y", Buffer(1))]
    text = kernel_text(parameters, THREADS, w.text)
    kernel = make_kernel("copy_rows", text, [p[0] for p in parameters])
    return Launch(kernel, (rows * tiles, 1, 1), (THREADS, 1, 1), (Buffer(0), Buffer(1)))
