"""Compiled inference of networks: toolkit, ONNX Runtime, OpenVINO and torch.compile.

    python benchmarks/cpu/inference.py --threads 2 --peer-python PEERS/bin/python
    python benchmarks/cpu/inference.py --only mobilenet

A case is a network and a batch. ONNX Runtime and OpenVINO read the file of
`Model.export`, with the same weights. torch compiles torchvision's equivalent network,
and has no row without one. All compute in float32, and their results are compared with
toolkit's results.
"""

import os
import sys
import tempfile
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))  # of harness.py

import harness
import numpy as np
from harness import Candidate

APPLICATIONS = {
    "mobilenet_v2": "MobileNetV2",
    "resnet50": "ResNet50",
    "efficientnet_b0": "EfficientNetB0",
    "convnext_tiny": "ConvNeXtTiny",
}
BATCHES = {
    **dict.fromkeys((*APPLICATIONS, "encoder"), (1, 16)),
    **dict.fromkeys(("mlp", "cifar"), (1, 256)),
}
CASES = tuple(f"{name} {batch}" for name, sizes in BATCHES.items() for batch in sizes)
THREADS = int(os.environ.get("OMP_NUM_THREADS", os.cpu_count() or 1))


def make(case):
    """Return the model, the same in each process, and its input."""
    import toolkit
    from toolkit import layers

    name, batch = case.split()
    toolkit.utils.set_random_seed(0)
    if name in APPLICATIONS:
        model = getattr(toolkit.applications, APPLICATIONS[name])(weights=None)
    elif name == "encoder":
        model = encoder(toolkit, 128, 256)
    elif name == "mlp":
        model = toolkit.Sequential([layers.Input((784,))])
        for units in (512, 512):
            model.add(layers.Dense(units, activation="relu"))
        model.add(layers.Dense(10, activation="softmax"))
    else:
        model = toolkit.Sequential([layers.Input((32, 32, 3))])
        for filters in (32, 64):
            for padding in ("same", "valid"):
                model.add(layers.Conv2D(filters, 3, padding=padding, activation="relu"))
            model.add(layers.MaxPooling2D())
        model.add(layers.Flatten())
        model.add(layers.Dense(512, activation="relu"))
        model.add(layers.Dense(10, activation="softmax"))
    shape = (int(batch), *model.input_shape[1:])
    x = np.random.default_rng(0).standard_normal(shape).astype("float32")
    return model, x


def encoder(toolkit, length, width, blocks=6, heads=4):
    """Build blocks of attention and of two dense layers."""
    from toolkit import layers

    inputs = x = toolkit.Input((length, width))
    for _ in range(blocks):
        attended = layers.MultiHeadAttention(heads, width // heads)(x, x)
        x = layers.LayerNormalization()(x + attended)
        hidden = layers.Dense(4 * width, activation="gelu")(x)
        x = layers.LayerNormalization()(x + layers.Dense(width)(hidden))
    return toolkit.Model(inputs, x)


def with_toolkit(case):
    """Return the compiled model on a tensor."""
    import toolkit

    model, x = make(case)
    compiled = toolkit.function(lambda x: model(x, training=False))
    x = toolkit.ops.convert_to_tensor(x)
    return lambda: compiled(x)


def exported(case, folder):
    """Return the path of a model's ONNX file, its input, and its output."""
    model, x = make(case)
    path = str(Path(folder, "model.onnx"))
    model.export(path, verbose=False)
    return path, x, np.asarray(model(x, training=False))


def check(actual, expected):
    """Raise an error unless another engine computes the same."""
    scale = np.abs(expected).max()
    np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-3 * scale)


def with_onnxruntime(case):
    """Return ONNX Runtime with bound inputs and outputs."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = THREADS
    with tempfile.TemporaryDirectory() as folder:
        path, x, expected = exported(case, folder)
        session = onnxruntime.InferenceSession(
            path, options, providers=["CPUExecutionProvider"]
        )
    binding = session.io_binding()
    value = onnxruntime.OrtValue.ortvalue_from_numpy(x)
    binding.bind_ortvalue_input(session.get_inputs()[0].name, value)
    binding.bind_output(session.get_outputs()[0].name)
    session.run_with_iobinding(binding)
    check(binding.copy_outputs_to_cpu()[0], expected)
    return lambda: session.run_with_iobinding(binding)


def with_openvino(case):
    """Return OpenVINO with the latency hint and float32 precision."""
    import openvino

    core = openvino.Core()
    with tempfile.TemporaryDirectory() as folder:
        path, x, expected = exported(case, folder)
        model = core.read_model(path)
        model.reshape(list(x.shape))
        compiled = core.compile_model(
            model,
            "CPU",
            {
                "PERFORMANCE_HINT": "LATENCY",
                "INFERENCE_NUM_THREADS": THREADS,
                "INFERENCE_PRECISION_HINT": "f32",
            },
        )
    request = compiled.create_infer_request()
    request.set_input_tensor(openvino.Tensor(x, shared_memory=True))
    request.infer()
    check(request.get_output_tensor().data, expected)
    return request.infer


def with_torch(case):
    """Return torch.compile on torchvision's network."""
    import torch
    import torchvision

    name, batch = case.split()
    if name not in APPLICATIONS:
        return None
    torch.manual_seed(0)
    model = getattr(torchvision.models, name)().eval()
    model = model.to(memory_format=torch.channels_last)
    x = torch.randn(int(batch), 3, 224, 224).to(memory_format=torch.channels_last)
    compiled = torch.compile(model, mode="max-autotune")

    def call():
        with torch.inference_mode():
            return compiled(x)

    call()
    return call


CANDIDATES = (
    Candidate("toolkit", with_toolkit),
    Candidate("ONNX Runtime", with_onnxruntime, peer=True),
    Candidate("OpenVINO", with_openvino, peer=True),
    Candidate("torch.compile", with_torch, peer=True),
)

if __name__ == "__main__":
    harness.main(__doc__, CASES, CANDIDATES)
