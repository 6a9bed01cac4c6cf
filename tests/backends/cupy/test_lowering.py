"""Tests that run lowered calls from their records only, against the reference."""

from collections import Counter

import numpy as np
import pytest

import toolkit
from tests.backends.cases import ARRAYS
from tests.backends.cases_nn import NN
from tests.backends.cupy.lowered import followed, lowered, lowered_node, node_of
from tests.backends.test_kernels import compare, expected_of
from toolkit import layers, ops, random  # noqa: F401  (declare primitives)
from toolkit.backends.cupy.lowering import LibraryCalls, Numerics, lower
from toolkit.backends.cupy.steps import Dnn, Product
from toolkit.ir import PRIMITIVES, Spec
from toolkit.plans.operands import Operand, contiguous

CONTRACT = [
    c
    for c in (*ARRAYS, *NN)
    if c.name in ("matmul", "conv", "conv_input_grad", "conv_kernel_grad")
    and c.arrays[0].dtype.kind in "fV"
]
CONVOLUTIONS = [case for case in CONTRACT if case.name != "matmul"]


def tanh_gelu(x):
    return ops.gelu(x, approximate=True)


def check(gpu, reference, case, arrays, kind):
    expected = expected_of(reference, case)
    placed = [gpu.memory.asarray(a) for a in arrays]
    actual = gpu.kernels[case.name](*placed, **case.attrs)
    compare(case, gpu.memory.to_numpy(actual), expected)
    if expected.size and arrays[0].size:
        (program, _) = list(gpu.kernels[case.name].programs.values())[-1]
        assert any(isinstance(s, kind) for _, s in program.steps), program.nodes


@pytest.mark.parametrize("case", CONTRACT, ids=str)
@pytest.mark.one_in(15)
def test_products_and_convolutions(gpu, reference, case):
    kind = Product if case.name == "matmul" else Dnn
    if case.name != "matmul" and case.arrays[0].dtype == np.float64:
        kind = Product
    check(gpu, reference, case, case.arrays, kind)


UNEVEN = ((0, 1), (2, 1))


@pytest.mark.parametrize(
    ("shape", "kernel", "groups", "precision", "is_of_windows"),
    [
        ((256, 32, 32, 3), (3, 3, 3, 32), 1, "tf32", True),
        ((256, 32, 32, 3), (3, 3, 3, 32), 1, "strict", False),
        ((256, 32, 32, 8), (3, 3, 8, 96), 1, "tf32", False),
        # Of a group are few channels: that is no picture.
        ((256, 32, 32, 32), (3, 3, 1, 32), 32, "tf32", False),
        # Much is seen of each, or all that is seen takes much memory.
        ((256, 32, 32, 3), (7, 7, 3, 160), 1, "tf32", False),
        ((256, 224, 224, 3), (3, 3, 3, 64), 1, "tf32", False),
    ],
)
def test_kernel_gradients_of_small_images_are_products(
    shape, kernel, groups, precision, is_of_windows
):
    attrs = {"strides": (1, 1), "padding": ((1, 1), (1, 1)), "dilation": (1, 1)}
    x, w = Spec(shape, "float32"), Spec(kernel, "float32")
    g = PRIMITIVES["conv"].spec(x, w, **attrs, groups=groups)
    attrs |= {"groups": groups, "kernel": kernel[:2]}
    numerics = Numerics(precision=precision)
    actual = lowered("conv_kernel_grad", [x, g], (), numerics, **attrs)
    kinds = {type(step) for step in actual.steps}
    assert (Product in kinds, Dnn in kinds) == (is_of_windows, not is_of_windows)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", ["conv", "conv_input_grad", "conv_kernel_grad"])
def test_gradients_of_float32_have_even_padding(name, dtype):
    """Some cuDNN engines are wrong if the padding after an image is the larger one."""
    x, w, y = (
        Spec(shape, dtype) for shape in ((2, 8, 9, 8), (3, 3, 8, 16), (2, 7, 10, 16))
    )
    attrs = {"strides": (1, 1), "padding": UNEVEN, "dilation": (1, 1), "groups": 1}
    paddings, conv_paddings = {
        "conv": ((x, w), {}),
        "conv_input_grad": ((y, w), {"spatial": x.shape[1:3]}),
        "conv_kernel_grad": ((x, y), {"kernel": w.shape[:2]}),
    }[name]
    (step,) = (
        step
        for step in lowered_node(
            node_of(name, paddings, **conv_paddings, **attrs)
        ).steps
        if isinstance(step, Dnn)
    )
    arguments = dict(step.signature.nodes[0].arguments)
    is_even = arguments["pre_padding"] == arguments["post_padding"] == (0, 0)
    assert is_even == (dtype == "float32" and name != "conv")


@pytest.mark.parametrize("on_host", [{"libraries": ("cublaslt",)}], indirect=True)
@pytest.mark.parametrize("case", CONVOLUTIONS, ids=str)
@pytest.mark.one_in(20)
def test_convolutions_without_cudnn(on_host, reference, case):
    check(on_host, reference, case, case.arrays, Product)


# The dtype of a product, its epilogue, and the operations that one call computes.
FOLLOWED = [
    ("float32", ("bias",), {"epilogue": "bias"}),
    ("float64", ("bias", "relu"), {"epilogue": "relu_bias"}),
    ("float32", ("add",), {"beta": 1.0}),
    ("float16", ("bias", "add", "relu"), {"epilogue": "relu_bias", "beta": 1.0}),
    ("bfloat16", ("add", "bias"), {"epilogue": "bias", "beta": 1.0}),
    ("float32", ("scale", "add"), {"alpha": 0.25, "beta": 1.0}),
    ("bfloat16", ("cast",), {"dtypes": ("bfloat16", "float32")}),
    ("float16", ("scale", "cast", "add"), {"alpha": 0.25, "beta": 1.0}),
]


@pytest.mark.parametrize(("dtype", "follow", "expected"), FOLLOWED)
def test_product_calls_include_the_epilogue(dtype, follow, expected):
    specs = [Spec((2, 4, 30), dtype), Spec((30, 5), dtype)]
    (step,) = lowered("matmul", specs, follow).steps
    assert {name: getattr(step.gemm, name) for name in expected} == expected
    assert len(step.operands) == 3 + len(step.gemm.extras)


def test_strided_residual_is_added_by_another_kernel():
    """The addend of a call has the layout of its result."""
    node = followed(
        node_of("matmul", [Spec((4, 3), "float32"), Spec((3, 5), "float32")]), ("add",)
    )
    inputs = [contiguous(x.spec) for x in node.inputs]
    inputs[2] = Operand(inputs[2].spec, (40, 4))
    assert lower(node, inputs, [contiguous(node.outputs[0].spec)]) is None


@pytest.mark.parametrize(
    "follow", [("exp",), ("add", "add"), ("relu", "bias"), ("bias", "cast")]
)
def test_unsupported_operations_use_other_kernels(follow):
    specs = [Spec((4, 3), "bfloat16"), Spec((3, 5), "bfloat16")]
    node = followed(node_of("matmul", specs), follow)
    assert not LibraryCalls(Numerics()).can_take_epilogue(node.attrs["body"].nodes)
    assert lowered_node(node) is None


def model(policy, activation):
    """Return a transformer block, then two layers with an activation."""
    x = y = layers.Input((6, 16))
    y = layers.LayerNormalization(dtype=policy)(y)
    y = x + layers.MultiHeadAttention(2, 8, dtype=policy)(y, y)
    z = layers.LayerNormalization(dtype=policy)(y)
    z = layers.Dense(32, activation, dtype=policy)(z)
    return toolkit.Model(x, y + layers.Dense(16, dtype=policy)(z))


def trained(policy, activation):
    """The products of a step of training, by their epilogue; nothing is run."""
    network = model(policy, activation)
    optimizer = toolkit.optimizers.SGD(0.1)
    optimizer.build(network.trainable_variables)

    @toolkit.function
    def step(x):
        with toolkit.GradientTape() as tape:
            loss = ops.mean(ops.square(ops.cast(network(x), "float32") - x))
        weights = network.trainable_variables
        optimizer.apply(tape.gradient(loss, weights), weights)
        return loss

    x = np.ones((8, 6, 16), "float32")
    with toolkit.device("gpu:0"):
        program = step.get_concrete_function(x).program
    steps = [s for node in program.lowered if node for s in node.steps]
    return [step.gemm for step in steps if isinstance(step, Product)]


# Four projections of attention and the last layer add a bias.
WHOLE = {"bias": 5}
STEPS = [
    ("mixed_bfloat16", "relu", {"relu_aux_bias": 1, "drelu_bgrad": 1, "bgrada": 3}),
    ("mixed_float16", tanh_gelu, {"gelu_aux_bias": 1, "dgelu_bgrad": 1, "bgrada": 3}),
    ("float32", "relu", {"relu_aux_bias": 1, "drelu_bgrad": 1}),
    # By erf, and in strict float32: computed by generated kernels.
    ("mixed_bfloat16", "gelu", {"bias": 6, "bgrada": 3}),
    ("float32", tanh_gelu, {"bias": 6}),
]


@pytest.mark.parametrize(("policy", "activation", "expected"), STEPS)
def test_products_of_a_train_step(on_host, policy, activation, expected):
    gemms = trained(policy, activation)
    counts = Counter(g.epilogue for g in gemms)
    del counts["default"]
    assert counts == WHOLE | expected
    # The gradient of the input of three projections; scores, if cuDNN has no attention.
    assert sum(g.beta for g in gemms) >= 2
    assert any(g.alpha != 1 for g in gemms) == (policy == "float32")
    if policy != "float32":
        weights = [g for g in gemms if g.dtypes[1] == "float32"]
        assert len(weights) == 6
