"""What the generator offers beside primitives: matrices of windows, joined updates."""

import numpy as np
import pytest

from tests.backends.cases_nn import CONVOLUTIONS, convolution, counts
from tests.backends.cuda.host import GXX, Host
from tests.compiler.graphs import evaluate
from toolkit import ops
from toolkit.backends import get_backend
from toolkit.backends.base import Operand
from toolkit.backends.cupy.cuda.columns import Windows, columns, images
from toolkit.backends.cupy.cuda.launch import contiguous
from toolkit.backends.cupy.cuda.many import generate_many, join_key
from toolkit.compiler.fuse import fuse
from toolkit.ir import Spec
from toolkit.trace import Trace

pytestmark = pytest.mark.skipif(GXX is None, reason="g++ is not installed")


def windows_of(row):
    spatial, size, strides, padding, dilation, groups, _, _ = row
    return Windows(
        size,
        counts(spatial, size, strides, padding, dilation),
        strides,
        padding,
        dilation,
        groups,
    )


def parts():
    """Launches of all that this file tests, in some dtypes."""
    for dtype in ("bfloat16", "float32", "float64"):
        for row in CONVOLUTIONS[::3]:
            (spatial, *_, channels, _), windows = row, windows_of(row)
            spec = Spec((2, *spatial, channels), dtype)
            yield from columns(contiguous(spec), windows)
            yield from images(spec, windows)
        body = momentum((64, 32), dtype)
        ins = [contiguous(x.spec) for x in body.inputs]
        yield generate_many([(body, ins, [contiguous(y.spec) for y in body.outputs])])


def test_convolutions_are_products_of_windows(tmp_path):
    reference, work = get_backend("reference"), []
    for row in CONVOLUTIONS:
        forward, backward, _ = convolution("float64", 3, row)
        x, w = forward.arrays
        windows, spec = windows_of(row), Spec(x.shape, "float64")
        into = columns(contiguous(spec), windows)
        back = images(spec, windows)
        work.append((forward, backward, windows, spec, into, back))
    host = Host([x for *_, into, back in work for x in (*into, *back)], tmp_path)
    for forward, backward, windows, spec, into, back in work:
        (x, w), (g, _) = forward.arrays, backward.arrays
        groups, width = windows.groups, w.shape[-1] // windows.groups
        filters = w.reshape(-1, groups, width).transpose(1, 0, 2)
        matrix = windows.matrix(spec)
        (found,), _ = host.run(into, [x], [matrix])
        y = found.reshape(groups, -1, filters.shape[1]) @ filters
        expected = reference.kernels["conv"](x, w, **forward.attrs)
        y = y.transpose(1, 0, 2).reshape(expected.shape)
        np.testing.assert_allclose(y, expected, 1e-10, 1e-10)
        shares = g.reshape(-1, groups, width).transpose(1, 0, 2)
        spread = np.ascontiguousarray(shares @ filters.transpose(0, 2, 1))
        (found,), _ = host.run(back, [spread], [spec])
        expected = reference.kernels["conv_input_grad"](g, w, **backward.attrs)
        np.testing.assert_allclose(found, expected, 1e-10, 1e-10)


def momentum(shape, dtype="float32"):
    """A fused update of a parameter and its velocity."""
    with Trace("update") as trace:
        p, v, g = (trace.placeholder(Spec(shape, dtype)) for _ in range(3))
        rate = trace.placeholder(Spec((), dtype))
        new = v * 0.9 - g * rate
        updated = p + new
    graph = trace.finish([updated, new])
    (node,) = fuse(graph, lambda node: True).nodes
    return node.attrs["body"]


def test_one_launch_updates_all_parameters(tmp_path):
    shapes = [(7,), (64, 32), (3, 3, 16), (4096,), (1024, 4), (2, 2)]
    tasks = {}
    for shape in shapes:
        body = momentum(shape)
        ins = [contiguous(x.spec) for x in body.inputs]
        outs = [contiguous(y.spec) for y in body.outputs]
        tasks.setdefault(join_key(body, ins, outs), []).append((body, ins, outs))
    assert None not in tasks
    assert sorted(map(len, tasks.values())) == [1, 5]  # one has an odd extent
    launches = [generate_many(found) for found in tasks.values()]
    host = Host(launches, tmp_path)
    rng = np.random.default_rng(0)
    for found, launch in zip(tasks.values(), launches, strict=True):
        arrays = [
            [np.array(rng.normal(size=x.spec.shape), np.float32) for x in ins]
            for _, ins, _ in found
        ]
        outs = [[np.zeros(y.spec.shape, np.float32) for y in ys] for *_, ys in found]
        # Buffers are numbered task by task: all go in as inputs, and are written.
        flat = [a for one in zip(arrays, outs, strict=True) for xs in one for a in xs]
        host.run([launch], flat, [])
        for (body, _, _), given, made in zip(found, arrays, outs, strict=True):
            for expected, result in zip(evaluate(body, given), made, strict=True):
                np.testing.assert_allclose(result, expected, 1e-6, 1e-6)


def test_bodies_with_rows_are_not_joined():
    with Trace("rows") as trace:
        x = trace.placeholder(Spec((4, 8), "float32"))
        y = x - ops.max(x, axis=-1, keepdims=True)
    graph = trace.finish([y])
    (node,) = fuse(graph, lambda node: True).nodes
    body, spec = node.attrs["body"], Spec((4, 8), "float32")
    assert join_key(body, [contiguous(spec)], [contiguous(spec)]) is None
    wide = Operand(spec, (64, 8))
    assert join_key(body, [wide], [contiguous(spec)]) is None
