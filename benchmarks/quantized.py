"""Models of few bits beside float32, and beside ONNX Runtime's dynamic quantization.

    python benchmarks/quantized.py --peer-python PEERS/bin/python

One thread each. `dense 4x1024x256` is a layer from 1024 inputs to 256 outputs on four
rows, `encoder 128` six blocks of attention of width 256 on one sequence of that length.
ONNX Runtime's files are those that `Model.export` writes, its weights are int8 for each
output.
"""

import tempfile
from pathlib import Path

from harness import Candidate, main
from inference import encoder

CASES = (
    "dense 1x1024x1024",
    "dense 1x4096x4096",
    "dense 4x2048x2048",
    "dense 128x256x1024",
    "encoder 128",
)


def make(case):
    """The model, the same in each process, and its input."""
    import numpy as np

    import toolkit
    from toolkit import layers

    toolkit.utils.set_random_seed(0)
    toolkit.config.set_num_threads(1)
    kind, size = case.split()
    if kind == "dense":
        rows, features, units = map(int, size.split("x"))
        shape = (rows, features)
        model = toolkit.Sequential([layers.Input((features,)), layers.Dense(units)])
    else:
        shape = (1, int(size), 256)
        model = encoder(toolkit, *shape[1:])
    x = np.random.default_rng(0).standard_normal(shape).astype("float32")
    return model, x


def of_mode(mode):
    """A candidate's function: the model as compiled, quantized if there is a mode."""

    def prepared(case):
        import warnings

        import toolkit

        model, x = make(case)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of layers that stay as they are
            if mode:
                model.quantize(mode)
        x = toolkit.ops.convert_to_tensor(x)
        compiled = toolkit.function(lambda x: model(x, training=False))
        return lambda: compiled(x)

    return prepared


def with_onnxruntime(is_quantized):
    """A candidate's function: ONNX Runtime on the file of the model."""

    def prepared(case):
        import onnxruntime
        from onnxruntime.quantization import QuantType, quantize_dynamic

        model, x = make(case)
        with tempfile.TemporaryDirectory() as folder:
            path, small = Path(folder, "model.onnx"), Path(folder, "int8.onnx")
            model.export(path, verbose=False)
            if is_quantized:
                kind = QuantType.QInt8
                quantize_dynamic(path, small, per_channel=True, weight_type=kind)
                path = small
            options = onnxruntime.SessionOptions()
            options.intra_op_num_threads = 1
            session = onnxruntime.InferenceSession(
                str(path), options, providers=["CPUExecutionProvider"]
            )
        name = session.get_inputs()[0].name
        return lambda: session.run(None, {name: x})

    return prepared


CANDIDATES = (
    Candidate("int8", of_mode("int8")),
    Candidate("float32", of_mode(None)),
    Candidate("int4", of_mode("int4")),
    Candidate("ORT int8", with_onnxruntime(True), peer=True),
    Candidate("ORT", with_onnxruntime(False), peer=True),
)

if __name__ == "__main__":
    main(__doc__, CASES, CANDIDATES)
