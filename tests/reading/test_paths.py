"""Test paths of special files and other formats, and responses of faulty servers."""

import os
import signal
import socket
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import numpy as np
import pytest

import toolkit as tk
from toolkit.cli import main as command_line
from toolkit.errors import ArgumentError, DatasetError, ModelFileError, ToolkitError
from toolkit.utils.audio import read_wav
from toolkit.utils.files import hash_file


def load_weights(path):
    tk.Sequential([tk.Input((3,)), tk.layers.Dense(2)]).load_weights(path)


def download(path):
    cache = path.parent / "cache"
    tk.utils.get_file("x", f"file://{path}", cache_dir=cache, force_download=True)


def inspect(path):
    if command_line(["inspect", str(path)]):
        raise ModelFileError("the command has told it")


READERS = {
    "load_model": ("m.keras", tk.saving.load_model),
    "load_model h5": ("m.h5", tk.saving.load_model),
    "load_weights": ("m.weights.h5", load_weights),
    "load_weights of shards": ("m.weights.json", load_weights),
    "load_weights safetensors": ("m.safetensors", load_weights),
    "load_weights list": ("m.safetensors.index.json", load_weights),
    "load_onnx": ("m.onnx", tk.saving.load_onnx),
    "KerasFileEditor": ("m.weights.h5", tk.saving.KerasFileEditor),
    "load_img": ("x.png", tk.utils.load_img),
    "read_wav": ("x.wav", lambda p: read_wav(str(p))),
    "get_file": ("x.txt", download),
    "hash_file": ("x.txt", hash_file),
    "from_npy": ("x.npy", tk.data.Dataset.from_npy),
    "from_npz": ("x.npz", tk.data.Dataset.from_npz),
    "from_hdf5": ("x.h5", tk.data.Dataset.from_hdf5),
    "records": ("x.rec", lambda p: list(tk.data.TFRecordDataset(p))),
    "records gzip": ("x.rec", lambda p: list(tk.data.TFRecordDataset(p, "GZIP"))),
    "lines": ("x.txt", lambda p: list(tk.data.TextLineDataset(p))),
    "elements": ("elements.data", lambda p: list(tk.data.Dataset.load(p.parent))),
    "vocabulary": ("x.txt", lambda p: tk.layers.StringLookup(vocabulary=str(p))),
    "inspect": ("m.keras", inspect),
}


def make_special(kind, path):
    if kind == "FIFO":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind(str(path))
    elif kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "loop":
        path.symlink_to(path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no FIFOs")
@pytest.mark.parametrize("kind", ["FIFO", "folder", "socket", "device", "loop", "none"])
@pytest.mark.parametrize("name", READERS)
def test_readers_refuse_special_files(kind, name, tmp_path, monkeypatch):
    file, read = READERS[name]
    monkeypatch.chdir(tmp_path)  # the path of a socket must be short
    make_special(kind, Path(file))
    signal.alarm(60)  # opening a FIFO waits for a writer
    try:
        with pytest.raises(ToolkitError):
            read(tmp_path / file)
    finally:
        signal.alarm(0)


def test_folders_of_classes_must_be_folders(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    for name in ("file", "nothing"):
        with pytest.raises(DatasetError, match="expected a folder, but"):
            tk.utils.image_dataset_from_directory(tmp_path / name, verbose=False)


POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n"
OF_MODELS = ("load_model", "load_model h5", "load_weights", "load_weights safetensors")
OF_MODELS += ("load_onnx", "KerasFileEditor")


@pytest.mark.parametrize("name", OF_MODELS)
def test_readers_detect_a_pointer_of_git_lfs(name, tmp_path):
    file, read = READERS[name]
    (tmp_path / file).write_bytes(POINTER)
    with pytest.raises(ModelFileError, match="git lfs pull"):
        read(tmp_path / file)


@pytest.mark.parametrize(
    "path, advice",
    [
        ("m.onnx", "load it by `toolkit.saving.load_onnx`"),
        ("https://example.com/m.keras", r"get_file\(origin=...\)` returns its path"),
        ("hf://someone/m", "expected a path; received .* Download it first"),
        ("saved", "is a TensorFlow SavedModel"),
        ("m.ckpt", "is a TensorFlow checkpoint"),
        ("m.tflite", "TensorFlow Lite"),
        ("m.pt", "looks like a pickle"),
    ],
)
@pytest.mark.parametrize("read", [tk.saving.load_model, load_weights])
def test_other_formats_get_advice(path, advice, read, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "saved").mkdir()
    (tmp_path / "saved" / "saved_model.pb").write_bytes(b"")
    (tmp_path / "m.ckpt.index").write_bytes(b"")
    with pytest.raises(ArgumentError, match=advice):
        read(path)


def test_files_without_a_model_get_advice():
    with pytest.raises(
        ArgumentError, match="create the model, then call `load_weights`"
    ):
        tk.saving.load_model("m.weights.h5")
    with pytest.raises(
        ArgumentError, match="pass its text to `toolkit.models.model_from_json"
    ):
        tk.saving.load_model("m.json")


@pytest.mark.parametrize("depth", [200, 900])
def test_deep_configs_are_refused(depth):
    for key in ("units", "layer"):
        config = 1
        for _ in range(depth):
            config = {"class_name": "Dense", "config": {key: config}}
        for namespace in (tk.layers, tk.losses, tk.metrics, tk.optimizers):
            with pytest.raises(ToolkitError):
                namespace.deserialize(config)
        with pytest.raises(ToolkitError):
            tk.saving.deserialize_keras_object(config)


BAD_PATTERNS = ["{0}", "{}", "{", "}", "{epoch:q}", "{loss.x}", "{epoch[0]}"]
BAD_PATTERNS += ["{nothing}", "{loss!z}", "{epoch:{}}"]


@pytest.mark.parametrize("pattern", BAD_PATTERNS)
def test_checkpoints_refuse_an_invalid_pattern(pattern, tmp_path):
    model = tk.Sequential([tk.Input((3,)), tk.layers.Dense(2)])
    model.compile("sgd", "mse")
    path = str(tmp_path / pattern) + ".keras"
    saver = tk.callbacks.ModelCheckpoint(path)
    with pytest.raises(ToolkitError, match="Failed to format this callback filepath"):
        model.fit(np.ones((2, 3)), np.ones((2, 2)), verbose=0, callbacks=[saver])


@contextmanager
def served(status, headers):
    """Return the address of a server with one response."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(b"content")

        def log_message(self, *_):
            pass

    with HTTPServer(("127.0.0.1", 0), Answer) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/x"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    "status, headers, match",
    [
        (200, {"Content-Length": "many"}, "Content-Length of digits; received 'many'"),
        (200, {"Content-Length": "-1"}, "Content-Length of digits"),
        (200, {"Content-Length": "9"}, "closed after 7 of 9 bytes"),
        (302, {"Location": "ftp://127.0.0.1/x"}, "redirects to 'ftp://127.0.0.1/x'"),
        (302, {"Location": "file:///etc/passwd"}, "etc/passwd"),
        (302, {"Location": "/x"}, "could not download"),
    ],
)
def test_downloads_refuse_invalid_responses(status, headers, match, tmp_path):
    with served(status, headers) as origin, pytest.raises(DatasetError, match=match):
        tk.utils.get_file("x", origin, cache_dir=tmp_path)
    assert not (tmp_path / "datasets" / "x").exists()
