"""Write a small file of each format, and name the public function that reads it."""

import contextlib
import functools
import gzip
import hashlib
import io
import json
import math
import os
import shutil
import tarfile
import wave
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np
from PIL import Image

import toolkit as tk
from tests.faults import mutations as m
from toolkit import layers
from toolkit.cli import main as command_line
from toolkit.data import (
    Dataset,
    TextLineDataset,
    TFRecordDataset,
    TFRecordWriter,
    make_example,
    read_example,
)
from toolkit.datasets.cifar import load_batch
from toolkit.datasets.fashion_mnist import read_idx
from toolkit.datasets.pickles import load_lists
from toolkit.utils.audio import read_wav


@dataclass(frozen=True)
class Format:
    """A kind of file.

    make: writes a valid file, given the path.
    read: returns the content, or raises an error of toolkit.
    differs: why a corrupt file may be read without an error; None: it may not.
    change: corrupts bytes.
    share: the share of the cases relative to other formats.
    """

    name: str
    file: str
    make: Callable
    read: Callable
    differs: str | None = None
    change: Callable = m.damaged
    share: int = 4


def digest(value):
    """Return a value that is equal for equal contents."""
    hashed = hashlib.sha1()

    def add(item):
        if isinstance(item, dict):
            for key in sorted(item, key=repr):
                hashed.update(repr(key).encode())
                add(item[key])
        elif isinstance(item, (list, tuple)):
            hashed.update(b"[%d" % len(item))
            for entry in item:
                add(entry)
        elif isinstance(item, np.ndarray) and item.dtype != object:
            hashed.update(f"{item.dtype}{item.shape}".encode() + item.tobytes())
        else:
            hashed.update(repr(item).encode("utf-8", "backslashreplace"))

    add(value)
    return hashed.hexdigest()


# --- models ---------------------------------------------------------------------------


def small_model():
    tk.utils.set_random_seed(1)
    inputs = tk.Input((3,), name="rows")
    hidden = layers.Dense(4, activation="relu", name="hidden")(inputs)
    hidden = layers.BatchNormalization(name="norm")(hidden)
    outputs = layers.Dense(2, name="outputs")(hidden)
    model = tk.Model(inputs, outputs, name="small")
    model.compile("adam", "mse", metrics=["mae"])
    model.optimizer.build(model.trainable_variables)
    return model


def model_with_words():
    words = layers.StringLookup(name="words")
    words.adapt(["one", "two", "three", "one", "two", "one"])
    model = tk.Sequential(
        [tk.Input((2,), dtype="string"), words, layers.Embedding(4, 2, name="vectors")]
    )
    tk.utils.set_random_seed(2)
    for variable in model.variables:
        variable.assign(np.ones(variable.shape, variable.dtype))
    return model


def contents(model):
    """Return the config and the weights of a model, and its layers' vocabularies."""
    state = [np.asarray(v) for v in model.variables if v.dtype != "string"]
    words = [x.get_vocabulary() for x in model.layers if hasattr(x, "get_vocabulary")]
    optimizer = getattr(model, "optimizer", None)
    state += [np.asarray(v) for v in optimizer.variables] if optimizer else []
    return json.dumps(model.get_config(), default=repr), state, words


def read_model(path):
    return contents(tk.saving.load_model(path))


def read_weights(path):
    model = small_model()
    model.load_weights(path)
    return [np.asarray(v) for v in model.variables]


def save_shards(path):
    small_model().save_weights(path, max_shard_size=1e-7)


def save_safetensors(path):
    model = small_model()
    if path.name.endswith(".json"):
        model.save_weights(path, max_shard_size=1e-7)
    else:
        model.save_weights(path)


def save_latest(path):
    """Write weights in the newer structures of HDF5, which toolkit does not write."""
    small_model().save_weights(path.with_name("first.weights.h5"))
    with h5py.File(path.with_name("first.weights.h5")) as old:
        with h5py.File(path, "w", libver="latest") as new:
            for key in old:
                old.copy(key, new)
    path.with_name("first.weights.h5").unlink()


def config_of_model(path):
    path.write_text(small_model().to_json())


def read_config(path):
    model = tk.models.model_from_json(path.read_bytes())
    return json.dumps(model.get_config(), default=repr)


ONNX = Path(__file__).parents[1] / "fixtures" / "onnx"


def save_onnx(path, name="lstm_torchscript"):
    shutil.copy(ONNX / f"{name}.onnx", path)


def read_onnx(path):
    """Return the config and weights of a model, and its outputs for zeros."""
    model = tk.saving.load_onnx(path)
    shapes = [tuple(n or 1 for n in x.shape) for x in model.inputs]
    results = None
    if sum(map(math.prod, shapes)) < 1 << 20:
        inputs = [
            np.zeros(s, x.dtype) for s, x in zip(shapes, model.inputs, strict=True)
        ]
        outputs = model(inputs if len(inputs) != 1 else inputs[0])
        outputs = outputs if isinstance(outputs, list) else [outputs]
        results = [np.asarray(y) for y in outputs]
    return contents(model), results


def onnx_rows():
    """Return the rows of torch's exporters, with corrupt bytes and corrupt messages."""
    for name in ("lstm_torchscript", "mobilenetv3_dynamo", "bert_torchscript"):
        save = functools.partial(save_onnx, name=name)
        kind = name.partition("_")[0]
        shared = ("model.onnx", save, read_onnx, FROM_CONFIG)
        yield Format(f"onnx {kind}", *shared)
        yield Format(f"onnx {kind} messages", *shared, m.mutate_onnx, 8)


# --- data -----------------------------------------------------------------------------

ARRAY = np.arange(24, dtype="float32").reshape(6, 4)


def save_npz(path):
    np.savez(path, x=ARRAY, y=np.arange(6))


def save_npz_packed(path):
    np.savez_compressed(path, x=ARRAY, y=np.arange(6))


def save_h5(path):
    with h5py.File(path, "w") as file:
        file["x"] = ARRAY
        file.create_dataset("y", data=np.arange(6), chunks=(2,), compression="gzip")
        file["x"].attrs["unit"] = "metres"


def save_records(compression):
    def save(path):
        with TFRecordWriter(path) as writer:
            for i in range(3):
                writer.write(make_example({"x": [i, i + 1], "name": [b"name"] * i}))
        data = path.read_bytes()
        packed = {"GZIP": gzip.compress, "ZLIB": zlib.compress, None: bytes}
        path.write_bytes(packed[compression](data))

    return save


def read_records(compression):
    def read(path):
        return list(TFRecordDataset(path, compression))

    return read


def read_examples(path):
    examples = [read_example(record) for record in TFRecordDataset(path)]
    return [{k: list(v) for k, v in example.items()} for example in examples]


def save_lines(path):
    path.write_bytes(gzip.compress(b"one\ntwo\n" * 20))


def save_elements(path):
    Dataset.from_tensor_slices({"x": ARRAY, "y": np.arange(6)}).save(path.parent)


def rows(dataset):
    return [{k: np.asarray(v) for k, v in row.items()} for row in dataset]


def save_image(kind):
    def save(path):
        pixels = np.arange(15 * 10 * 3, dtype="uint8").reshape(15, 10, 3)
        Image.fromarray(pixels).save(path, kind)

    return save


def read_image(path):
    return tk.utils.img_to_array(tk.utils.load_img(path, target_size=(5, 5)))


def read_image_folder(path):
    folder = path.parent / "classes" / "a"
    folder.mkdir(parents=True, exist_ok=True)
    os.replace(path, folder / path.name)
    dataset = tk.utils.image_dataset_from_directory(
        folder.parent, image_size=(4, 4), verbose=False, shuffle=False
    )
    return [np.asarray(x) for x, _ in dataset]


def save_wav(path):
    with wave.open(str(path), "wb") as file:
        file.setparams((1, 2, 8000, 0, "NONE", ""))
        file.writeframes(np.arange(200, dtype="<i2").tobytes())


def save_tar(mode):
    def save(path):
        with tarfile.open(path, f"w:{mode}") as archive:
            for name in ("a.txt", "inner/b.txt"):
                info = tarfile.TarInfo(name)
                info.size = 300
                archive.addfile(info, io.BytesIO(name[0].encode() * 300))

    return save


def save_zip(path):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in ("a.txt", "inner/b.txt"):
            archive.writestr(name, name[0] * 300)


def read_extracted(path):
    cache = path.parent / "cache"
    folder = tk.utils.get_file(
        "data", f"file://{path}", extract=True, cache_dir=cache, force_download=True
    )
    files = sorted(p for p in Path(folder).rglob("*") if p.is_file())
    contents = {str(p.relative_to(folder)): p.read_bytes() for p in files}
    shutil.rmtree(cache)
    return contents


def save_batch(path):
    import pickle

    content = {b"data": np.zeros((2, 3072), "uint8"), b"labels": [1, 2]}
    path.write_bytes(pickle.dumps(content, 3))


def save_lists(path):
    lists = np.empty(2, object)
    lists[:] = [[1, 2], [3]]
    np.savez(path, x=lists, y=np.arange(2))


def save_idx(path):
    data = bytes((0, 0, 8, 1, 0, 0, 0, 6)) + bytes(range(6))
    path.write_bytes(gzip.compress(data))


def inspect(path):
    """Return the output of the command line for a file."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        status = command_line(["inspect", str(path), "--values"])
    text = out.getvalue()
    assert status in (0, 1), status
    bad = [c for c in text if not c.isprintable() and c not in "\n\t"]
    assert not bad, f"inspect prints {bad}"
    return text


FROM_CONFIG = "a config says what the model is, and it may say something else"
UNCHECKED = "values without a checksum are whatever the file says"
UNCOUNTED = "a file that ends between two records is whole"
LOSSY = "pixels are whatever the file says"

FORMATS = (
    *onnx_rows(),
    Format("keras", "model.keras", lambda p: small_model().save(p), read_model),
    Format(
        *("keras members", "model.keras", lambda p: small_model().save(p)),
        *(read_model, FROM_CONFIG, m.mutate_zip, 8),
    ),
    Format(
        *("keras words", "model.keras", lambda p: model_with_words().save(p)),
        *(read_model, FROM_CONFIG, m.mutate_zip),
    ),
    Format("config", "model.json", config_of_model, read_config, FROM_CONFIG),
    Format(
        *("config values", "model.json", config_of_model, read_config, FROM_CONFIG),
        *(m.mutate_json, 8),
    ),
    Format(
        *("weights", "model.weights.h5"),
        *(lambda p: small_model().save_weights(p), read_weights, UNCHECKED),
        share=10,
    ),
    Format(
        *("latest weights", "model.weights.h5", save_latest, read_weights, UNCHECKED),
        share=2,
    ),
    Format(
        *("legacy", "model.h5", lambda p: small_model().save(p), read_model),
        FROM_CONFIG,
        share=8,
    ),
    Format(
        *("safetensors", "m.safetensors", save_safetensors, read_weights, UNCHECKED),
        share=8,
    ),
    Format(
        *("safetensors header", "m.safetensors", save_safetensors, read_weights),
        *(UNCHECKED, m.damaged_safetensors, 8),
    ),
    Format(
        *("safetensors list", "m.safetensors.index.json", save_safetensors),
        *(read_weights, UNCHECKED, m.mutate_json),
    ),
    Format("npz", "arrays.npz", save_npz, lambda p: rows(Dataset.from_npz(p))),
    Format(
        *("npz members", "arrays.npz", save_npz_packed),
        *(lambda p: rows(Dataset.from_npz(p)), UNCHECKED, m.mutate_zip),
    ),
    Format(
        *("npy", "array.npy", lambda p: np.save(p, ARRAY)),
        *(lambda p: [np.array(x) for x in Dataset.from_npy(p)], UNCHECKED),
    ),
    Format(
        *("hdf5", "data.h5", save_h5, lambda p: rows(Dataset.from_hdf5(p))),
        UNCHECKED,
        share=8,
    ),
    Format("tfrecord", "a.tfrecord", save_records(None), read_records(None), UNCOUNTED),
    Format(
        "tfrecord gzip",
        "a.tfrecord",
        save_records("GZIP"),
        read_records("GZIP"),
        UNCOUNTED,
    ),
    Format(
        *("tfrecord in gzip", "a.tfrecord", save_records("GZIP")),
        *(read_records("GZIP"), UNCOUNTED, m.damaged_gzip),
    ),
    Format(
        "tfrecord zlib",
        "a.tfrecord",
        save_records("ZLIB"),
        read_records("ZLIB"),
        UNCOUNTED,
    ),
    Format(
        *("examples", "a.tfrecord", save_records(None), read_examples, UNCHECKED),
        m.damaged_record,
    ),
    Format(
        *("lines", "a.gz", save_lines, lambda p: list(TextLineDataset(p, "GZIP"))),
        *(UNCHECKED, m.damaged_gzip),
        share=1,
    ),
    Format(
        *("elements", "elements.data", save_elements),
        *(lambda p: rows(Dataset.load(p.parent)), UNCHECKED),
    ),
    Format("png", "a.png", save_image("png"), read_image, LOSSY),
    Format("png chunks", "a.png", save_image("png"), read_image, LOSSY, m.mutate_png),
    Format("jpeg", "a.jpg", save_image("jpeg"), read_image, LOSSY),
    Format("gif", "a.gif", save_image("gif"), read_image, LOSSY, share=2),
    Format("bmp", "a.bmp", save_image("bmp"), read_image, LOSSY, share=2),
    Format(
        *("image folder", "a.png", save_image("png"), read_image_folder, LOSSY),
        *(m.mutate_png, 2),
    ),
    Format(*("wav", "a.wav", save_wav, lambda p: read_wav(str(p)), UNCHECKED), share=2),
    Format("tar", "a.tar", save_tar(""), read_extracted, UNCHECKED),
    Format("tar gz", "a.tar.gz", save_tar("gz"), read_extracted, UNCHECKED, share=2),
    Format(
        *("tar in gz", "a.tar.gz", save_tar("gz"), read_extracted, UNCHECKED),
        *(m.damaged_gzip, 2),
    ),
    Format("tar xz", "a.tar.xz", save_tar("xz"), read_extracted, UNCHECKED, share=2),
    Format("tar bz2", "a.tar.bz2", save_tar("bz2"), read_extracted, UNCHECKED, share=2),
    Format("zip", "a.zip", save_zip, read_extracted, UNCHECKED),
    Format("pickle", "data_batch", save_batch, load_batch, UNCHECKED, share=2),
    Format(
        *("npz lists", "a.npz", save_lists, lambda p: load_lists(str(p)), UNCHECKED),
        *(m.mutate_zip, 2),
    ),
    Format("idx", "a.gz", save_idx, lambda p: read_idx(str(p)), UNCHECKED, share=1),
    Format(
        *("inspect keras", "a.keras", lambda p: small_model().save(p), inspect),
        *(FROM_CONFIG, m.mutate_zip, 2),
    ),
    Format(
        *("inspect safetensors", "m.safetensors", save_safetensors, inspect),
        *(UNCHECKED, m.damaged_safetensors, 2),
    ),
    Format("inspect npy", "a.npy", lambda p: np.save(p, ARRAY), inspect, UNCHECKED),
    Format("inspect npz", "a.npz", save_npz, inspect, UNCHECKED, m.mutate_zip, 2),
    Format("inspect hdf5", "a.h5", save_h5, inspect, UNCHECKED, share=2),
    Format(
        *("inspect records", "a.rec", save_records(None), inspect, UNCHECKED), share=2
    ),
    Format(
        *("inspect gzip", "a.rec", save_records("GZIP"), inspect, UNCHECKED),
        *(m.damaged_gzip, 1),
    ),
    Format(
        *("inspect elements", "elements.data", save_elements, inspect, UNCHECKED),
        share=2,
    ),
)
BY_NAME = {form.name: form for form in FORMATS}
