"""Quantized models compared with float32 and with ONNX Runtime's quantization.

    python benchmarks/cpu/quantized.py --peer-python PEERS/bin/python

One thread each. `dense 4x1024x256` is a layer from 1024 inputs to 256 outputs on four
rows. `encoder 128` is six blocks of attention of width 256 on one sequence of that
length. `mobilenet_v2 16` is MobileNetV2 on a batch of that size, whose convolutions are
calibrated on random images. ONNX Runtime's files are from `Model.export`, and its
weights are int8 per output. It uses dynamic quantization, and static quantization for
MobileNetV2, with QDQ nodes or with quantized operators.
"""

import sys
import tempfile
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))  # of harness.py

from harness import Candidate, main
from inference import encoder, make as make_network

CASES = (
    "dense 1x1024x1024",
    "dense 1x4096x4096",
    "dense 4x2048x2048",
    "dense 128x256x1024",
    "encoder 128",
    "mobilenet_v2 1",
    "mobilenet_v2 16",
)
# Models with static quantization, whose ranges are from calibration images.
CALIBRATED = "mobilenet_v2"
IMAGES = 4


def make(case):
    """Return the model, the same in each process, and its input."""
    import numpy as np

    import toolkit
    from toolkit import layers

    toolkit.utils.set_random_seed(0)
    toolkit.config.set_num_threads(1)
    kind, size = case.split()
    if kind == CALIBRATED:
        return make_network(case)
    if kind == "dense":
        rows, features, units = map(int, size.split("x"))
        shape = (rows, features)
        model = toolkit.Sequential([layers.Input((features,)), layers.Dense(units)])
    else:
        shape = (1, int(size), 256)
        model = encoder(toolkit, *shape[1:])
    x = np.random.default_rng(0).standard_normal(shape).astype("float32")
    return model, x


def images():
    """Yield the calibration images of a network."""
    import numpy as np

    for seed in range(IMAGES):
        rng = np.random.default_rng(seed)
        yield rng.standard_normal((1, 224, 224, 3)).astype("float32")


def of_mode(mode):
    """Return a candidate's function: the compiled model, quantized if mode is set."""

    def prepared(case):
        import warnings

        import toolkit

        model, x = make(case)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about layers without quantization
            if case.startswith(CALIBRATED) and mode == "int8":
                config = toolkit.quantizers.Int8QuantizationConfig(dataset=images())
                model.quantize(config=config)
            elif mode:
                model.quantize(mode)
        x = toolkit.ops.convert_to_tensor(x)
        compiled = toolkit.function(lambda x: model(x, training=False))
        return lambda: compiled(x)

    return prepared


def quantized_file(path, way):
    """Return the path of ONNX Runtime's quantized version of a file."""
    from onnxruntime import quantization as q
    from onnxruntime.quantization.shape_inference import quant_pre_process

    prepared, small = (str(path.with_name(f"{n}.onnx")) for n in ("prepared", "int8"))
    options = {"per_channel": True, "weight_type": q.QuantType.QInt8}
    if way == "dynamic":
        q.quantize_dynamic(path, small, **options)
        return small
    quant_pre_process(str(path), prepared)
    q.quantize_static(
        prepared,
        small,
        reader(path),
        quant_format=q.QuantFormat[way],
        activation_type=q.QuantType.QUInt8,
        **options,
    )
    return small


def reader(path):
    """Return the calibration data reader of a file."""
    import onnx
    from onnxruntime.quantization import CalibrationDataReader

    name = onnx.load(path).graph.input[0].name

    class Reader(CalibrationDataReader):
        def __init__(self):
            self.images = images()

        def get_next(self):
            image = next(self.images, None)
            return None if image is None else {name: image}

    return Reader()


def with_onnxruntime(way):
    """Return a candidate's function: ONNX Runtime on the file of the model.

    way: of quantization, or None. Only calibrated networks support more than one way.
    """

    def prepared(case):
        import onnxruntime

        if way in ("QDQ", "QOperator") and not case.startswith(CALIBRATED):
            return None
        model, x = make(case)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "model.onnx")
            model.export(path, verbose=False)
            file = quantized_file(path, way) if way else path
            options = onnxruntime.SessionOptions()
            options.intra_op_num_threads = 1
            session = onnxruntime.InferenceSession(
                str(file), options, providers=["CPUExecutionProvider"]
            )
        name = session.get_inputs()[0].name
        return lambda: session.run(None, {name: x})

    return prepared


CANDIDATES = (
    Candidate("int8", of_mode("int8")),
    Candidate("float32", of_mode(None)),
    Candidate("int4", of_mode("int4")),
    Candidate("ORT int8", with_onnxruntime("dynamic"), peer=True),
    Candidate("ORT QDQ", with_onnxruntime("QDQ"), peer=True),
    Candidate("ORT QOperator", with_onnxruntime("QOperator"), peer=True),
    Candidate("ORT", with_onnxruntime(None), peer=True),
)

if __name__ == "__main__":
    main(__doc__, CASES, CANDIDATES)
