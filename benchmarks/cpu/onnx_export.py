#!/usr/bin/env python3
"""Exported ONNX files in ONNX Runtime, compared with handwritten files.

    python benchmarks/cpu/onnx_export.py
    python benchmarks/cpu/onnx_export.py --only MLP --runs 200 --json PATH

Both have the same weights, and their results are compared. They alternate, one thread
each, and the medians are compared. The script also prints the export time. It needs the
packages onnx and onnxruntime.
"""

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import onnx_by_hand as by_hand
import onnxruntime

import toolkit
from toolkit import Input, Model, Sequential, applications, layers

BAR, EXPORT_BAR = 1.05, 3.0
HEADS = 4


def mlp():
    """Build 784-512-512-10."""
    x = Input((784,))
    y = layers.Dense(512, activation="relu")(x)
    y = layers.Dense(512, activation="relu")(y)
    return Model(x, layers.Dense(10)(y))


def cifar():
    """Build four convolutions and two dense layers."""
    x = Input((32, 32, 3))
    y = layers.Conv2D(32, 3, padding="same", activation="relu")(x)
    y = layers.Conv2D(32, 3, activation="relu")(y)
    y = layers.MaxPooling2D(2)(y)
    y = layers.Conv2D(64, 3, padding="same", activation="relu")(y)
    y = layers.Conv2D(64, 3, activation="relu")(y)
    y = layers.MaxPooling2D(2)(y)
    flat = layers.Dense(512, activation="relu")
    flat._by_hand_shape = tuple(y.shape[1:])
    return Model(x, layers.Dense(10)(flat(layers.Flatten()(y))))


def lstm():
    """Build two LSTMs of 128 units over 80 steps."""
    return Sequential(
        [
            Input((80, 64)),
            layers.LSTM(128, return_sequences=True),
            layers.LSTM(128),
            layers.Dense(10),
        ]
    )


def encoder():
    """Build two blocks of a transformer: 64 tokens of width 128."""
    x = inputs = Input((64, 128))
    for i in range(2):
        y = layers.LayerNormalization(name=f"before_{i}")(x)
        attention = layers.MultiHeadAttention(HEADS, 32, name=f"attention_{i}")
        x = layers.Add()([x, attention(y, y)])
        y = layers.LayerNormalization(name=f"behind_{i}")(x)
        wide = layers.Dense(512, activation=_gelu, name=f"wide_{i}")
        x = layers.Add()([x, layers.Dense(128, name=f"narrow_{i}")(wide(y))])
    return Model(inputs, x)


def _gelu(x):
    return toolkit.ops.gelu(x, approximate=False)


# Name -> the builder of the model, and the writer of its file.
CASES = {
    "MLP": (mlp, by_hand.of_layers),
    "CIFAR": (cifar, by_hand.of_layers),
    "LSTM": (lstm, by_hand.of_lstm),
    "MobileNetV2": (
        lambda: applications.MobileNetV2(weights=None),
        by_hand.of_layers,
    ),
    "ResNet50": (lambda: applications.ResNet50(weights=None), by_hand.of_layers),
    "encoder": (encoder, lambda m, path: by_hand.of_encoder(m, path, HEADS)),
}


def prepared(make):
    """Return a model whose weights differ from their initial values."""
    toolkit.utils.set_random_seed(0)
    model, rng = make(), np.random.default_rng(0)
    for variable in model.weights:
        if variable.ndim == 1:
            noise = rng.uniform(0, 0.2, variable.shape).astype("float32")
            variable.assign(variable.numpy() + noise)
    return model


def session_of(path):
    """Return a session with one thread."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(str(path), options)


def compare(name, runs, batch):
    """Return the medians of both files in ms, their ratio, and the export time."""
    make, write = CASES[name]
    model = prepared(make)
    with tempfile.TemporaryDirectory() as folder:
        ours, theirs = Path(folder, "ours.onnx"), Path(folder, "by_hand.onnx")
        start = time.perf_counter()
        model.export(ours, verbose=False)
        export = time.perf_counter() - start
        write(model, theirs)
        sessions = [session_of(ours), session_of(theirs)]
    x = np.random.default_rng(1).normal(size=(batch, *model.input_shape[1:]))
    x = x.astype("float32")
    channels_first = x.transpose(0, 3, 1, 2) if x.ndim == 4 else x
    feeds = [x, np.ascontiguousarray(channels_first)]
    calls = [
        lambda s=s, f=f: s.run(None, {s.get_inputs()[0].name: f})[0]
        for s, f in zip(sessions, feeds, strict=True)
    ]
    a, b = (call() for call in calls)
    error = float(np.abs(a - b).max() / np.abs(b).max())
    if error > 1e-4:
        raise SystemExit(f"{name}: both files differ by {error:.1e}")
    samples = [[], []]
    for _ in range(runs):
        for times, call in zip(samples, calls, strict=True):
            start = time.perf_counter()
            call()
            times.append(1e3 * (time.perf_counter() - start))
    medians = [statistics.median(times[runs // 5 :]) for times in samples]
    return {
        "case": name,
        "ms": medians,
        "ratio": medians[0] / medians[1],
        "export_s": export,
        "error": error,
    }


def main():
    """Read the command line and measure."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", choices=CASES)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows = []
    for name in [options.only] if options.only else CASES:
        row = compare(name, options.runs, options.batch)
        rows.append(row)
        verdict = "met" if row["ratio"] <= BAR else "missed"
        print(
            f"{name:12} exported {row['ms'][0]:8.3f} ms, by hand "
            f"{row['ms'][1]:8.3f} ms, ratio {row['ratio']:.3f} (bar {BAR}: "
            f"{verdict}); export {row['export_s']:.2f} s (bar {EXPORT_BAR})"
        )
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
