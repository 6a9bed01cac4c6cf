"""Tests that a row has the same bits in any batch, if a program promises that."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

import toolkit
from toolkit import layers, ops
from toolkit.backends import get_backend
from toolkit.bench import networks
from toolkit.compiler.mixed import compile_graph
from toolkit.functions import concrete_function

ROWS = 64
BATCHES = (1, 2, 3, 5, 8, 16, 37)

pytestmark = pytest.mark.skipif(
    not get_backend("numpy").generator.can_generate,
    reason="only generated code promises it",
)


@pytest.fixture(autouse=True)
def independent_rows(monkeypatch):
    """Compile functions like the parts of distributed programs."""
    promising = partial(compile_graph, rows_independent=True)
    monkeypatch.setattr(concrete_function, "compile_graph", promising)


def random(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape, dtype="float32")


def split_rows(x, low, high, axis=0):
    return x[(*[slice(None)] * axis, slice(low, high))]


def run(function, *arrays):
    outputs = function(*map(ops.convert_to_tensor, arrays))
    return [ops.convert_to_numpy(y) for y in toolkit.tree.flatten(outputs)]


def check(compute, *arrays, axis=0, batches=BATCHES):
    """Check that rows have the same bits in smaller batches from both ends."""
    full_outputs = run(toolkit.function(compute), *arrays)
    count = arrays[0].shape[axis]
    assert all(y.shape[axis] == count for y in full_outputs)
    for batch in batches:
        function = toolkit.function(compute)
        for low in {0, count - batch, min(count // 3, count - batch)}:
            high = low + batch
            outputs = run(function, *(split_rows(x, low, high, axis) for x in arrays))
            for y, actual in zip(full_outputs, outputs, strict=True):
                expected = split_rows(y, low, high, axis)
                assert expected.tobytes() == actual.tobytes(), (batch, low)


def gradients(compute):
    """Return the gradients of a function's inputs, row by row."""

    def function(*xs):
        with toolkit.GradientTape() as tape:
            tape.watch(xs)
            ys = toolkit.tree.flatten(compute(*xs))
            total = sum(ops.sum(ops.square(y)) for y in ys)
        return [g for g in tape.gradient(total, list(xs)) if g is not None]

    return function


# --- products -------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["int8", "int4"])
def test_quantized_weights(mode):
    layer = layers.Dense(70, activation="relu")
    layer.build((None, 1100))
    layer.quantize(mode)
    check(lambda x: layer(x), random(16, 1100), batches=(1, 2, 8, 9))


# Depth and columns: few and many, odd, deeper than a step, wider than a block.
FACTORS = [
    *[(1, 1), (1, 7), (3, 5), (7, 3), (33, 1), (100, 2), (257, 17), (512, 10)],
    *[(784, 512), (1100, 33), (2048, 128), (4100, 7), (3000, 600), (70_000, 4)],
]
LAYOUTS = {
    "row by row": lambda w: w,
    "transposed": lambda w: ops.transpose(ops.reshape(w, w.shape[::-1])),
}


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("depth, columns", FACTORS)
@pytest.mark.one_in(3)
def test_products(depth, columns, layout):
    w = toolkit.Variable(random(depth, columns, seed=1))
    x = random(ROWS, depth)
    check(lambda x: ops.matmul(x, layout(w)), x)
    if depth * columns < 200_000:
        check(lambda x: ops.gelu(ops.matmul(x, layout(w)) + 1.0), x)
        check(gradients(lambda x: ops.matmul(x, layout(w))), x)
        check(lambda x: ops.matmul(x, layout(w)), random(ROWS, 5, depth))


@pytest.mark.parametrize("dtype", ["float64", "bfloat16"])
@pytest.mark.parametrize("depth, columns", [(7, 3), (1100, 33), (784, 512)])
def test_products_of_other_dtypes(depth, columns, dtype):
    w = toolkit.Variable(random(depth, columns, seed=1))

    def multiply(x):
        product = ops.matmul(ops.cast(x, dtype), ops.cast(w, dtype))
        return ops.cast(product, "float64")

    check(multiply, random(ROWS, depth))


STACKS = [
    *[(1, 8, 1), (4, 8, 4), (5, 17, 3), (32, 64, 32), (7, 1500, 9), (1, 2048, 5)],
    *[(3, 33, 1), (2, 2100, 40), (1, 9, 50)],
]
FORMS = {
    "plain": lambda x, y: ops.matmul(x, y),
    "second transposed": lambda x, y: ops.matmul(
        x, ops.swapaxes(ops.reshape(y, (-1, y.shape[2], y.shape[1])), 1, 2)
    ),
    "first transposed": lambda x, y: ops.matmul(
        ops.swapaxes(ops.reshape(x, (-1, x.shape[2], x.shape[1])), 1, 2), y
    ),
    "gradients": gradients(ops.matmul),
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("rows, depth, columns", STACKS)
@pytest.mark.one_in(3)
def test_stacks_of_products(rows, depth, columns, form):
    check(form, random(ROWS, rows, depth), random(ROWS, depth, columns, seed=1))


@pytest.mark.parametrize(
    "equation", ["bi,ij->bj", "ij,bj->bi", "bij,bjk->bik", "bi,bj->bij", "bti,bi->bt"]
)
def test_einsum(equation):
    sizes = dict(zip("bitjk", (ROWS, 21, 6, 5, 7), strict=True))
    terms = equation.partition("->")[0].split(",")
    arrays = [random(*(sizes[c] for c in t), seed=i) for i, t in enumerate(terms)]
    fixed = {
        i: ops.convert_to_tensor(x) for i, x in enumerate(arrays) if "b" not in terms[i]
    }

    def compute(*xs):
        operands = iter(xs)
        return ops.einsum(
            equation,
            *(fixed[i] if i in fixed else next(operands) for i in range(len(terms))),
        )

    check(compute, *(x for i, x in enumerate(arrays) if i not in fixed))


# --- convolutions and pools -----------------------------------------------------------

# Side, channels, filters, size of the kernel, strides, groups.
CONVOLUTIONS = [
    *[(8, 3, 8, 3, 1, 1), (8, 16, 16, 3, 1, 1), (16, 8, 32, 3, 1, 1)],
    *[(6, 5, 7, 3, 1, 1), (9, 4, 4, 5, 2, 1), (4, 16, 16, 3, 1, 1)],
    *[(8, 32, 16, 1, 1, 1), (8, 16, 8, 1, 2, 1), (3, 1, 1, 3, 1, 1)],
    *[(32, 3, 16, 3, 1, 1), (7, 12, 12, 3, 1, 12), (7, 12, 8, 3, 1, 4)],
]


@pytest.mark.parametrize("padding", ["same", "valid"])
@pytest.mark.parametrize("case", CONVOLUTIONS, ids=str)
@pytest.mark.one_in(3)
def test_convolutions(case, padding):
    side, channels, filters, size, strides, groups = case
    w = toolkit.Variable(random(size, size, channels // groups, filters, seed=1))

    def convolve(x):
        return ops.conv(x, w, strides=strides, padding=padding)

    x = random(ROWS, side, side, channels)
    check(convolve, x)
    check(lambda x: ops.relu(convolve(x) + 0.5), x)
    check(gradients(convolve), x)


@pytest.mark.parametrize("size, strides", [(2, 2), (3, 1), (3, 2)])
@pytest.mark.parametrize("channels", [1, 5, 32])
def test_pools(size, strides, channels):
    x = random(ROWS, 9, 9, channels)
    for pool in (ops.max_pool, ops.average_pool):
        compute = partial(pool, pool_size=size, strides=strides, padding="same")
        check(compute, x)
        check(gradients(compute), x)


# --- sums within rows -----------------------------------------------------------------

SHAPES = [
    *[(1,), (7,), (16,), (40,), (300,), (5000,), (20_000,)],
    *[(3, 7), (5, 40), (4, 300), (1, 9), (9, 1), (2, 3, 5), (6, 1, 20)],
]


def _axes(shape):
    count = len(shape)
    axes = [(i,) for i in range(1, count + 1)]
    axes += [tuple(range(1, count + 1))] if count > 1 else []
    return [*axes, (1, count)] if count > 2 else axes


REDUCTIONS = {
    "sum": ops.sum,
    "prod": lambda x, **kw: ops.prod(1 + 0.01 * x, **kw),
    "mean": ops.mean,
    "var": ops.var,
    "max": ops.max,
    "min": ops.min,
    "logsumexp": ops.logsumexp,
    "norm": lambda x, **kw: ops.sqrt(ops.sum(ops.square(x), **kw)),
    "of much": lambda x, **kw: ops.sum(ops.exp(ops.sin(ops.tanh(x))) * x, **kw),
    "any": lambda x, **kw: ops.any(x > 2, **kw),
    "all": lambda x, **kw: ops.all(x > -2, **kw),
}


@pytest.mark.parametrize("reduce", REDUCTIONS.values(), ids=REDUCTIONS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.one_in(4)
def test_reductions(shape, reduce):
    x = random(ROWS, *shape)
    for axis in _axes(shape):
        check(partial(reduce, axis=axis), x)
        check(lambda x, axis=axis: x * reduce(x, axis=axis, keepdims=True), x)


@pytest.mark.parametrize("shape", [(7, 5), (30, 40), (3, 1, 4), (600, 3)], ids=str)
@pytest.mark.parametrize("reduce", [ops.sum, ops.var], ids=["sum", "var"])
def test_reductions_with_an_inner_batch_axis(shape, reduce):
    x = random(shape[0], ROWS, *shape[1:])
    axes_list = [a for a in range(x.ndim) if a != 1]
    for axes in [*axes_list, tuple(axes_list)]:

        def compute(x, axes=axes):
            reduced = reduce(x, axis=axes, keepdims=True)
            return reduced, ops.exp(x) * reduced

        check(compute, x, axis=1)


@pytest.mark.parametrize("order", [(0, 2, 1), (1, 0, 2), (2, 1, 0), (1, 2, 0)])
def test_reductions_of_transposed_values(order):
    x = random(ROWS, 6, 20)
    batch = order.index(0)
    for axis in {0, 1, 2} - {batch}:

        def compute(x, axis=axis):
            transposed = ops.transpose(x, order)
            sums = ops.sum(transposed, axis=axis) + ops.sum(
                ops.exp(transposed), axis=axis
            )
            return ops.moveaxis(sums, batch - (axis < batch), 0)

        check(compute, x)


def log_softmax_loss(x):
    return ops.sum(ops.log_softmax(x) * ops.sin(x), axis=-1)


def group_norm(x):
    grouped = ops.reshape(x, (-1, *x.shape[1:-1], x.shape[-1] // 4, 4))
    axes = (1, grouped.ndim - 1)
    mean = ops.mean(grouped, axis=axes, keepdims=True)
    scale = ops.rsqrt(ops.var(grouped, axis=axes, keepdims=True) + 1e-3)
    return ops.reshape((grouped - mean) * scale, (-1, *x.shape[1:]))


def layer_norm(x):
    return ops.layer_normalization(x, epsilon=1e-3)


NORMS = {
    "softmax": ops.softmax,
    "log softmax": log_softmax_loss,
    "layer": layer_norm,
    "group": group_norm,
    "unit": lambda x: ops.normalize(x, axis=-1),
}


@pytest.mark.parametrize("norm", NORMS.values(), ids=NORMS)
@pytest.mark.parametrize("shape", [(8,), (40,), (1000,), (6, 36), (50, 512)], ids=str)
@pytest.mark.one_in(3)
def test_norms(shape, norm):
    x = random(ROWS, *shape)
    check(norm, x)
    check(gradients(norm), x)


# --- attention, loops, indices --------------------------------------------------------


@pytest.mark.parametrize("causal", [False, True], ids=["whole", "causal"])
@pytest.mark.parametrize(
    "targets, sources, heads, features",
    [(1, 1, 1, 1), (5, 7, 2, 3), (33, 33, 4, 8), (300, 300, 1, 16), (20, 600, 3, 5)],
)
def test_attention(targets, sources, heads, features, causal):
    q = random(24, targets, heads, features)
    k, v = (random(24, sources, heads, features, seed=i) for i in (1, 2))
    attend = partial(ops.dot_product_attention, is_causal=causal)
    check(attend, q, k, v, batches=(1, 2, 7, 8, 9))
    check(gradients(attend), q, k, v, batches=(1, 2, 7, 8, 9))


CELLS = {
    "LSTM": layers.LSTM,
    "GRU": layers.GRU,
    "simple": layers.SimpleRNN,
}


@pytest.mark.parametrize("return_all", [False, True], ids=["last", "sequences"])
@pytest.mark.parametrize("units, features", [(1, 1), (5, 3), (17, 33), (64, 32)])
@pytest.mark.parametrize("cell", CELLS.values(), ids=CELLS)
@pytest.mark.one_in(4)
def test_recurrent_layers(cell, units, features, return_all):
    toolkit.utils.set_random_seed(0)
    layer = cell(units, return_sequences=return_all)
    layer.build((None, 6, features))
    x = random(ROWS, 6, features)
    check(layer, x)
    check(gradients(layer), x)


def scanned(x):
    def step(state, inputs):
        state = ops.tanh(state * 0.5 + ops.sum(inputs, axis=-1, keepdims=True) + inputs)
        return state, ops.softmax(state)

    time_major = ops.swapaxes(x, 0, 1)
    last, outputs = ops.scan(step, time_major[0], time_major)
    return last, ops.swapaxes(outputs, 0, 1)


def looped(x):
    return ops.fori_loop(0, 3, lambda i, y: y * ops.mean(y, axis=-1, keepdims=True), x)


@pytest.mark.parametrize("loop", [scanned, looped])
def test_loops(loop):
    check(loop, random(ROWS, 5, 9))


def indices(*shape, maximum, seed=0):
    return np.random.default_rng(seed).integers(0, maximum, shape).astype("int32")


def test_indices():
    table = toolkit.Variable(random(50, 9, seed=1))
    x, i = random(ROWS, 12), indices(ROWS, 4, maximum=12)
    check(lambda i: ops.take(table, i, axis=0), i)
    check(lambda x, i: ops.take_along_axis(x, i, axis=1), x, i)
    check(lambda x, i: ops.take_along_axis(ops.exp(x), i[:, :1], axis=1), x, i)
    check(lambda x, i: gradients(lambda x: ops.take_along_axis(x, i, axis=1))(x), x, i)
    check(
        lambda x, i: gradients(lambda x: ops.take_along_axis(x, i[:, :1], axis=1))(x),
        x,
        i,
    )
    check(
        lambda x: ops.slice(x, (0, ops.argmax(x[0]) // 3), (x.shape[0], 5)),
        x[:, :9] * 0,
    )
    check(lambda x: ops.slice_update(x, (0, 1), ops.exp(x)[:, 4:9]), x)
    check(lambda x: ops.take(x, np.array([1, 1, 5]), axis=1), x)
    check(gradients(lambda x: ops.take(x, np.array([1, 1, 5]), axis=1)), x)


OTHERS = {
    "sort": ops.sort,
    "argsort": ops.argsort,
    "argmax": lambda x: ops.argmax(x, axis=-1),
    "argmin": lambda x: ops.argmin(x, axis=1),
    "top_k": lambda x: ops.top_k(x, 3),
    "searchsorted": lambda x: ops.searchsorted(np.arange(-2.0, 2.0, 0.3), x),
    "cumsum": lambda x: ops.cumsum(x, axis=1),
    "cumprod": lambda x: ops.cumprod(x, axis=-1),
    "concatenate": lambda x: ops.concatenate([x, ops.exp(x)], axis=1),
    "pad": lambda x: ops.pad(x, ((0, 0), (1, 2), (0, 3))),
    "roll": lambda x: ops.roll(x, 1, axis=1),
    "fft": lambda x: ops.fft((x, ops.sin(x))),
    "rfft": lambda x: ops.rfft(x),
    "solve": lambda x: ops.solve(x[:, :5, :5] + 9 * ops.eye(5), x[:, :5, 5:]),
    "inv": lambda x: ops.inv(x[:, :5, :5] + 9 * ops.eye(5)),
    "solve_triangular": lambda x: ops.solve_triangular(
        x[:, :5, :5] + 9 * ops.eye(5), x[:, :5, 5:]
    ),
    "det": lambda x: ops.det(x[:, :5, :5]),
    "qr": lambda x: ops.qr(x),
    "svd": lambda x: ops.svd(x),
    "lu": lambda x: ops.lu_factor(x[:, :5, :5]),
    "cholesky": lambda x: ops.cholesky(
        ops.matmul(x, ops.swapaxes(x, 1, 2)) + 9 * ops.eye(6)
    ),
    "eigh": lambda x: ops.eigh(x[:, :5, :5] + ops.swapaxes(x[:, :5, :5], 1, 2)),
    "bits": lambda x: ops.bitwise_and(ops.cast(x * 99, "int32"), 13),
    "mixed": lambda x: ops.where(
        x > 0, ops.power(ops.abs(x), 1.7) / (1 + x), ops.arctan2(x, 0.3) * ops.erf(x)
    ),
}


@pytest.mark.parametrize("compute", OTHERS.values(), ids=OTHERS)
def test_remaining_operations(compute):
    check(compute, random(ROWS, 6, 10))


@pytest.mark.parametrize("shape", [(), (1,), (5,), (16,), (37,), (3, 1000)], ids=str)
def test_elementwise_functions(shape):
    names = "exp expm1 log1p sqrt rsqrt sin cos tan arctan sinh cosh tanh arcsinh erf"
    x = random(ROWS, *shape)

    def compute(x):
        results = [getattr(ops, name)(x) for name in names.split()]
        results += [ops.sigmoid(x * 30), ops.log(ops.abs(x)), ops.sin(x * 1e7)]
        return [*results, ops.gelu(x), ops.softplus(x), ops.arctan2(x, x + 1)]

    check(compute, x)


# --- networks -------------------------------------------------------------------------


def _tokens(count, length, words):
    return np.random.default_rng(0).integers(0, words, (count, length)).astype("int32")


def narrow_mlp(keras, units):
    hidden = [keras.layers.Dense(n, activation="relu") for n in (units, units + 1)]
    return keras.Sequential([keras.Input((13,)), *hidden, keras.layers.Dense(3)])


def narrow_cnn(keras, filters):
    layers = keras.layers
    return keras.Sequential(
        [
            keras.Input((11, 11, 3)),
            layers.Conv2D(filters, 3, padding="same", activation="relu"),
            layers.GroupNormalization(1),
            layers.MaxPooling2D(2),
            layers.Conv2D(filters + 1, 3, activation="gelu"),
            layers.BatchNormalization(),
            layers.GlobalAveragePooling2D(),
            layers.Dense(5, activation="softmax"),
        ]
    )


def narrow_sequences(keras, units):
    layers = keras.layers
    return keras.Sequential(
        [
            keras.Input((9,), dtype="int32"),
            layers.Embedding(50, units),
            layers.Bidirectional(layers.GRU(units, return_sequences=True)),
            layers.LayerNormalization(),
            layers.LSTM(units + 1),
            layers.Dense(1, activation="sigmoid"),
        ]
    )


# The builder of the network, and its inputs.
NETWORKS = {
    "mnist_mlp": (networks.mnist_mlp, lambda n: random(n, 784)),
    "cifar_cnn": (networks.cifar_cnn, lambda n: random(n, 32, 32, 3)),
    "resnet": (networks.resnet, lambda n: random(n, 32, 32, 3)),
    "lstm": (networks.lstm, lambda n: _tokens(n, networks.TEXT_LENGTH, 10_000)),
    "gpt": (networks.gpt, lambda n: _tokens(n, networks.CONTEXT, 512)),
    **{
        f"{build.__name__} {width}": (partial(build, **{name: width}), data)
        for build, name, data in (
            (narrow_mlp, "units", lambda n: random(n, 13)),
            (narrow_cnn, "filters", lambda n: random(n, 11, 11, 3)),
            (narrow_sequences, "units", lambda n: _tokens(n, 9, 50)),
        )
        for width in (1, 3, 17, 33)
    },
}
CUTS = [(16,), (1, 15), (5, 5, 6), (1, 1, 14), (3, 4, 4, 5), (2,) * 8, (7, 1, 8)]


def _run_slices(function, cut, *arrays):
    """Return the concatenated results of a function for slices of its inputs."""
    ends = np.cumsum(cut)
    slices = [
        run(function, *(x[high - n : high] for x in arrays))
        for n, high in zip(cut, ends, strict=True)
    ]
    return [np.concatenate(pieces) for pieces in zip(*slices, strict=True)]


@pytest.mark.parametrize("build, data", NETWORKS.values(), ids=NETWORKS)
@pytest.mark.one_in(4)
def test_networks_on_slices_of_a_batch(build, data, monkeypatch):
    toolkit.utils.set_random_seed(0)
    model, x = build(toolkit), data(16)
    embed, batches = layers.Embedding.call, []

    def embedded(layer, x):
        """Return embeddings: token rows have no gradient, their embeddings have one."""
        y = embed(layer, x)
        if y.ndim == 3:
            batches.append(y)
        return y

    def step(x):
        """Return the outputs, and the gradients of the operands of the rows."""
        with toolkit.GradientTape() as tape:
            if x.dtype == "float32":
                batches[:] = [x]
                tape.watch(x)
            else:
                batches.clear()
                monkeypatch.setattr(layers.Embedding, "call", embedded)
            y = model(x, training=False)
            loss = ops.sum(ops.mean(ops.square(y), axis=tuple(range(1, y.ndim))))
        return [y, *tape.gradient(loss, batches)]

    function = toolkit.function(step)
    full_outputs = run(function, x)
    for cut in CUTS:
        for y, actual in zip(full_outputs, _run_slices(function, cut, x), strict=True):
            assert y.tobytes() == actual.tobytes(), cut


# --- sums over the batch, leaf by leaf ------------------------------------------------

LEAVES = [(0, 5), (5, 6), (6, 40), (40, 64)]


def products(x, g):
    return ops.matmul(ops.transpose(x), g)


def kernel_grad(x, g):
    w = ops.zeros((3, 3, x.shape[-1], g.shape[-1]))
    with toolkit.GradientTape() as tape:
        tape.watch(w)
        loss = ops.sum(ops.conv(x, w, padding="same") * g)
    return tape.gradient(loss, w)


def added_rows(x, g):
    segments = ops.cast(ops.abs(x[:, 0]) * 3, "int32") % 7
    return ops.segment_sum(g, segments, 7)


SUMS = {
    "products": (products, (33,), (17,)),
    "deep products": (products, (300,), (2,)),
    "kernel gradients": (kernel_grad, (9, 9, 16), (9, 9, 8)),
    "kernel gradients of few": (kernel_grad, (4, 4, 3), (4, 4, 5)),
    "sums of columns": (lambda x, g: ops.sum(x, axis=0), (40,), (1,)),
    "sums of many axes": (lambda x, g: ops.sum(x, axis=(0, 1)), (9, 5), (1,)),
    "sums of all": (lambda x, g: ops.sum(x), (30, 100), (1,)),
    "moments": (lambda x, g: ops.moments(x, axes=(0, 1, 2)), (5, 6, 7), (1,)),
    "scattered": (added_rows, (2,), (5,)),
}


@pytest.mark.parametrize("compute, x_shape, g_shape", SUMS.values(), ids=SUMS)
def test_leaf_sums_of_a_batch(compute, x_shape, g_shape):
    """Check for the same bits from slices, from copies, and with the producer of x."""
    x, g = random(ROWS, *x_shape), random(ROWS, *g_shape, seed=1)

    def from_slices(x, g):
        x = ops.tanh(x)
        return [compute(x[low:high], g[low:high]) for low, high in LEAVES]

    def from_copies(x, g):
        x = ops.tanh(x)
        return [compute(x, g), ops.exp(x)]

    def prepared(x, g):
        return [compute(x, g)]

    function = toolkit.function(from_slices)
    leaves = [toolkit.tree.flatten(leaf) for leaf in function(x, g)]
    tanh = ops.convert_to_numpy(toolkit.function(ops.tanh)(x))
    for leaf, (low, high) in zip(leaves, LEAVES, strict=True):
        slices = x[low:high].copy(), g[low:high].copy()
        fused = run(toolkit.function(from_copies), *slices)
        copied = run(toolkit.function(prepared), tanh[low:high].copy(), slices[1])
        for i, result in enumerate(leaf):
            assert result.numpy().tobytes() == fused[i].tobytes(), "beside others"
            assert result.numpy().tobytes() == copied[i].tobytes(), "from a copy"
