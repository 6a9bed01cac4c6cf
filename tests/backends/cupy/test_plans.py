"""Tests that cuDNN has a plan for every emitted graph, without a device."""

import subprocess
import sys
from itertools import product

import numpy as np
import pytest

import toolkit
from tests.backends.cupy import deviceless
from tests.backends.cupy.host import HostDevice
from tests.backends.cupy.lowered import lowered, lowered_node, node_of
from toolkit import ops  # noqa: F401  (declares primitives)
from toolkit.backends import registry
from toolkit.backends.cupy.backend import CupyBackend
from toolkit.backends.cupy.lowering import Numerics
from toolkit.backends.cupy.steps import Dnn
from toolkit.ir import PRIMITIVES, Spec

# x, kernel, strides, padding, dilation, groups
GEOMETRIES = {
    "plain": ((8, 16, 16, 64), (3, 3, 64, 32), (1, 1), ((1, 1), (1, 1)), (1, 1), 1),
    "stem": ((8, 32, 32, 3), (7, 7, 3, 64), (2, 2), ((2, 3), (2, 3)), (1, 1), 1),
    "odd": ((2, 9, 7, 13), (3, 2, 13, 5), (1, 2), ((0, 1), (1, 0)), (1, 1), 1),
    "point": ((8, 8, 8, 64), (1, 1, 64, 128), (1, 1), ((0, 0), (0, 0)), (1, 1), 1),
    "dilated": ((4, 16, 16, 32), (3, 3, 32, 32), (1, 1), ((2, 2), (2, 2)), (2, 2), 1),
    "grouped": ((4, 16, 16, 64), (3, 3, 16, 64), (1, 1), ((1, 1), (1, 1)), (1, 1), 4),
    "depthwise": ((4, 16, 16, 32), (3, 3, 1, 32), (1, 1), ((1, 1), (1, 1)), (1, 1), 32),
    "one": ((4, 50, 16), (5, 16, 24), (2,), ((2, 2),), (1,), 1),
    "three": (
        (2, 8, 8, 8, 16),
        (3, 3, 3, 16, 8),
        *[(1,) * 3, ((1, 1),) * 3, (1,) * 3],
        1,
    ),
}
DTYPES = (("float32", "strict"), ("float32", "tf32"), ("bfloat16", "strict"))
FOLLOW = {"conv": ((), ("bias",), ("bias", "relu"), ("bias", "add", "relu"))}


def signatures():
    """(name, signature) of every kind of graph."""
    for (name, geometry), (dtype, precision) in product(GEOMETRIES.items(), DTYPES):
        x, w, strides, padding, dilation, groups = geometry
        attrs = {"strides": strides, "padding": padding, "dilation": dilation}
        attrs["groups"] = groups
        y = PRIMITIVES["conv"].spec(Spec(x, dtype), Spec(w, dtype), **attrs).shape
        nodes = {
            "conv": ((x, w), {}),
            "conv_input_grad": ((y, w), {"spatial": x[1:-1]}),
            "conv_kernel_grad": ((x, y), {"kernel": w[:-2]}),
        }
        for op, (shapes, extra) in nodes.items():
            for follow in FOLLOW.get(op, ((),)):
                specs = [Spec(s, dtype) for s in shapes]
                numerics = Numerics(precision=precision)
                lowered_node = lowered(op, specs, follow, numerics, **attrs | extra)
                (step,) = (s for s in lowered_node.steps if isinstance(s, Dnn))
                label = f"{name} {op} {'+'.join(follow)} {dtype} {precision}"
                yield label, step.signature


# batch, targets, sources, heads, heads of keys, features
ATTENTIONS = (
    *(
        (4, 256, 256, 12, 12, 64),
        (8, 1024, 1024, 12, 12, 64),
        (4, 256, 256, 12, 12, 80),
    ),
    *((2, 128, 128, 8, 2, 64), (2, 64, 64, 8, 1, 128), (2, 77, 130, 8, 4, 40)),
    *((2, 1, 128, 8, 8, 64), (1, 5, 1, 3, 3, 8)),
)


def attentions():
    """The same for attention and its gradients: few keys, odd lengths, any width."""
    for sizes, dtype, causal in product(ATTENTIONS, ("bfloat16", "float16"), (0, 1)):
        batch, targets, sources, heads, key_heads, features = sizes
        query = Spec((batch, targets, heads, features), dtype)
        key = Spec((batch, sources, key_heads, features), dtype)
        attrs = {"given": (), "scale": 0.125, "is_causal": bool(causal)}
        rows = Spec((batch, heads, targets), "float32")
        inputs = [query, key, key]
        forward = node_of("attention", inputs, **attrs)
        backward = node_of("attention_grad_of", [query, query, rows, *inputs], **attrs)
        for node in (forward, backward):
            (step, *_) = lowered_node(node).steps
            yield f"{node.op.name} {dtype} {sizes} {causal}", step.signature


def normalizations():
    """Return the same for batch normalization, with and without an epilogue."""
    shapes = (8, 16, 16, 64), (64, 2048), (16, 50, 24), (4, 6, 6, 6, 16)
    for shape, dtype in product(shapes, ("float32", "bfloat16", "float16")):
        x, v = Spec(shape, dtype), Spec(shape[-1:], "float32")
        follow = (([], False), ([], True), ([x], True))
        nodes = [
            node_of("batch_norm_of", [x, v, v, *added], epsilon=1e-3, relu=relu)
            for added, relu in follow
        ]
        nodes.append(node_of("batch_norm_grad_of", [x, x, v, v, v]))
        for node in nodes:
            step = lowered_node(node).steps[0]
            yield f"{node.op.name} {dtype} {shape}", step.signature


MODELS = {
    "ResNet50": lambda: toolkit.applications.ResNet50(weights=None),
    "MobileNetV2": lambda: toolkit.applications.MobileNetV2(weights=None),
}
POLICIES = (
    *(("mixed_bfloat16", "strict"), ("mixed_float16", "strict")),
    *(("float32", "strict"), ("float32", "tf32")),
)


def steps_of_training(folder):
    """The same for whole steps of training of two networks."""
    for (name, model_of), (policy, precision) in product(MODELS.items(), POLICIES):
        device = HostDevice(folder, {})
        registry.register_backend("cupy", lambda d=device: CupyBackend(d, np))
        toolkit.config.set_matmul_precision(precision)
        toolkit.config.set_dtype_policy(policy)
        model = model_of()
        model.compile("sgd", "sparse_categorical_crossentropy")
        batch = np.zeros((32, 224, 224, 3), "float32"), np.zeros(32, "int64")
        with toolkit.device("gpu:0"):
            step = toolkit.function(lambda x, y, m=model: m.train_step((x, y)))
            program = step.get_concrete_function(*batch).program
        steps = [s for n in program.lowered for s in getattr(n, "steps", ())]
        for signature in {s.signature for s in steps if isinstance(s, Dnn)}:
            yield f"{name} {policy} {precision}", signature


def check_stored(cudnn, signature, graph, where):
    """Check that a plan read from disk is equal, and needs every address."""
    reloaded = cudnn.load_graph(bytes(graph.serialize()), where)
    assert reloaded.get_workspace_size() == graph.get_workspace_size()
    uids = sorted(t.uid for t in signature.tensors if t.uid)
    assert reloaded._variant_pack_uids() == graph._variant_pack_uids() == uids


def refused(folder):
    """The graphs that cuDNN has no plan for, one in a line."""
    from toolkit.backends.cupy import cudnn
    from toolkit.errors import UnsupportedOnBackend

    deviceless.load_stub(folder)
    where, lines = deviceless.properties(), []
    graphs = [*signatures(), *attentions(), *normalizations()]
    graphs += steps_of_training(folder)
    assert len(graphs) > 800
    for name, signature in graphs:
        try:
            check_stored(cudnn, signature, cudnn.plan(signature, where), where)
        except UnsupportedOnBackend as error:
            lines.append(f"{name}: {str(error)[-300:]}")
    return lines


@pytest.mark.slow
def test_every_graph_has_a_plan(tmp_path):
    if reason := deviceless.find_missing():
        pytest.skip(reason)
    code = (
        "import sys, pathlib\n"
        "from tests.backends.cupy.test_plans import refused\n"
        "print('\\n'.join(refused(pathlib.Path(sys.argv[1]))))"
    )
    # A separate process, because the stub driver stays loaded until it ends.
    command = [sys.executable, "-c", code, str(tmp_path)]
    completed = subprocess.run(command, capture_output=True, text=True, check=False)
    assert completed.returncode == 0, completed.stderr[-2000:]
    assert not completed.stdout.strip(), completed.stdout
