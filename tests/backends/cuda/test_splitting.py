"""Tests of generated kernels without a primitive: window matrices, joined updates."""

from dataclasses import replace

import numpy as np
import pytest

from tests.backends.cases_nn import CONVOLUTIONS, convolution, counts
from tests.backends.cuda.host import GXX, Host
from tests.compiler.graphs import evaluate
from toolkit.backends import get_backend
from toolkit.backends.cupy.cuda.batched_launch import build_table, partition_levels
from toolkit.backends.cupy.cuda.columns import Windows, columns, images
from toolkit.backends.cupy.cuda.fused import generate_body
from toolkit.backends.cupy.cuda.launch import Launch, Scalar, Table
from toolkit.compiler.fusion.fuse import join_nodes
from toolkit.core.trace import Trace
from toolkit.ir import Spec
from toolkit.plans.operands import contiguous

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


def segments():
    """Launches of all that this file tests, in some dtypes."""
    for dtype in ("bfloat16", "float32", "float64"):
        for row in CONVOLUTIONS[::3]:
            (spatial, *_, channels, _), windows = row, windows_of(row)
            spec = Spec((2, *spatial, channels), dtype)
            yield from columns(contiguous(spec), windows)
            yield from images(spec, windows)
        launch = launch_of(momentum((64, 32), dtype))
        yield from (launch, replace(launch, kernel=launch.kernel.batched))


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
        (actual,), _ = host.run(into, [x], [matrix])
        y = actual.reshape(groups, -1, filters.shape[1]) @ filters
        expected = reference.kernels["conv"](x, w, **forward.attrs)
        y = y.transpose(1, 0, 2).reshape(expected.shape)
        np.testing.assert_allclose(y, expected, 1e-10, 1e-10)
        shares = g.reshape(-1, groups, width).transpose(1, 0, 2)
        gradients = np.ascontiguousarray(shares @ filters.transpose(0, 2, 1))
        (actual,), _ = host.run(back, [gradients], [spec])
        expected = reference.kernels["conv_input_grad"](g, w, **backward.attrs)
        np.testing.assert_allclose(actual, expected, 1e-10, 1e-10)


def momentum(shape, dtype="float32"):
    """A fused update of a parameter and its velocity."""
    with Trace("update") as trace:
        p, v, g = (trace.placeholder(Spec(shape, dtype)) for _ in range(3))
        rate = trace.placeholder(Spec((), dtype))
        new = v * 0.9 - g * rate
        updated = p + new
    graph = trace.finish([updated, new])
    (node,) = join_nodes(graph, lambda node: True).nodes
    return node.attrs["body"]


def launch_of(body):
    """The one launch of a body."""
    specs = [[contiguous(x.spec) for x in xs] for xs in (body.inputs, body.outputs)]
    (launch,) = generate_body(body, *specs, True)
    return launch


def bound(launch, arrays):
    """A launch on arrays: buffers in order, then the count."""
    addresses = [arrays[a.index].ctypes.data for a in launch.arguments[:-1]]
    return launch.kernel, (*addresses, launch.arguments[-1].value)


def test_one_launch_updates_all_parameters(tmp_path):
    shapes = [(7,), (64, 32), (3, 3, 16), (4096,), (1024, 4), (2, 2)]
    bodies = [momentum(shape) for shape in shapes]
    launches = [launch_of(body) for body in bodies]
    kernels = {launch.kernel for launch in launches}
    assert len(kernels) == 2  # one has an odd extent
    rng, rate = np.random.default_rng(0), np.array(0.1, np.float32)
    tasks = []
    for body, launch in zip(bodies, launches, strict=True):
        operands = [
            rate if x.spec.shape == () else rng.random(x.spec.shape, np.float32)
            for x in body.inputs
        ]
        outputs = [np.zeros(y.spec.shape, np.float32) for y in body.outputs]
        tasks.append((body, operands, outputs, bound(launch, [*operands, *outputs])))
    everything = [task[-1] for task in tasks]
    assert partition_levels(everything) == [list(range(len(shapes)))]
    joint = []
    for kernel in kernels:
        rows, blocks = build_table(
            [update for update in everything if update[0] == kernel]
        )
        table = Table(tuple(map(tuple, rows)))
        arguments = (table, Scalar(len(rows), "int"))
        joint.append(Launch(kernel.batched, (blocks, 1, 1), (256, 1, 1), arguments))
    Host(joint, tmp_path).run(joint, [], [])
    for body, operands, outputs, _ in tasks:
        for expected, result in zip(evaluate(body, operands), outputs, strict=True):
            np.testing.assert_allclose(result, expected, 1e-6, 1e-6)


def test_dependent_launches_are_not_merged():
    body = momentum((64, 32))
    launch, arrays = launch_of(body), [np.zeros((64, 32), "float32") for _ in range(9)]
    a, b, c, d, e, f, g, h, rate = arrays
    first = bound(launch, [a, b, c, rate, d, e])
    in_place = bound(launch, [f, g, h, rate, f, g])
    reads_first = bound(launch, [d, f, g, rate, h, c])
    writes_what_first_reads = bound(launch, [f, g, h, rate, f, a[32:]])
    assert partition_levels([first, in_place]) == [[0, 1]]
    assert partition_levels([first, reads_first]) == [[0], [1]]
    assert partition_levels([first, writes_what_first_reads, in_place]) == [
        [0],
        [1],
        [2],
    ]
    assert partition_levels([first, reads_first, first]) == [[0], [1], [2]]
    separate = bound(launch_of(body), [np.zeros((64, 32), "float32") for _ in range(6)])
    assert partition_levels([first, reads_first, separate]) == [[0, 2], [1]]
