"""Test models in binary file objects."""

import io
import zipfile

import numpy as np
import pytest

import toolkit
from toolkit.errors import ArgumentError, ModelFileError

X = np.ones((2, 3), "float32")


def compiled_model():
    model = toolkit.Sequential([toolkit.Input((3,)), toolkit.layers.Dense(2)])
    model.compile("adam", "mse")
    model.fit(X, np.zeros((2, 2)), verbose=0)
    return model


class Pipe(io.RawIOBase):
    """A stream without seek and tell."""

    def __init__(self, data=b""):
        self.data = data

    def readable(self):
        return True

    def writable(self):
        return True

    def readinto(self, buffer):
        chunk, self.data = self.data[: len(buffer)], self.data[len(buffer) :]
        buffer[: len(chunk)] = chunk
        return len(chunk)

    def write(self, data):
        self.data += bytes(data)
        return len(data)


@pytest.mark.parametrize("stream", [io.BytesIO, Pipe])
@pytest.mark.parametrize("options", [{}, {"zipped": False}, {"save_format": "h5"}])
def test_models_in_file_objects(stream, options):
    model, file = compiled_model(), stream()
    model.save(file, **options)
    loaded = toolkit.saving.load_model(file)
    assert np.array_equal(loaded.predict(X, verbose=0), model.predict(X, verbose=0))
    assert int(loaded.optimizer.iterations) == 1
    assert toolkit.models.load_model(io.BytesIO(read_again(model)), compile=False)


def read_again(model):
    file = io.BytesIO()
    toolkit.saving.save_model(model, file)
    assert zipfile.is_zipfile(file)
    return file.getvalue()


def test_models_in_open_files(tmp_path):
    model, path = compiled_model(), tmp_path / "model.keras"
    with open(path, "wb") as file:
        model.save(file)
    loaded = toolkit.saving.load_model(path)
    with open(path, "rb") as file:
        restored = toolkit.saving.load_model(file)
    for loaded_model in (loaded, restored):
        assert np.array_equal(loaded_model.get_weights()[0], model.get_weights()[0])


def test_models_inside_a_stream():
    file = io.BytesIO()
    file.write(b"header")
    compiled_model().save(file)
    assert file.getvalue().startswith(b"header")
    assert toolkit.saving.load_model(file).output_shape == (None, 2)


def test_file_objects_of_other_contents(tmp_path):
    model = compiled_model()
    for content in (b"", b"PK", b"\x89HDF\r\n\x1a\n and more"):
        with pytest.raises(ModelFileError, match="BytesIO") as error:
            toolkit.saving.load_model(io.BytesIO(content))
        assert "/keras-" not in str(error.value)
    with pytest.raises(ArgumentError, match="binary file object that is writable"):
        model.save(io.StringIO())
    with pytest.raises(ArgumentError, match="binary file object that is readable"):
        toolkit.saving.load_model(io.StringIO("text"))
    with open(tmp_path / "model.keras", "wb") as file:
        with pytest.raises(ArgumentError, match="mode 'rb'"):
            toolkit.saving.load_model(file)


def test_failed_save_writes_nothing_to_a_file_object():
    class Broken(toolkit.layers.Layer):
        def get_config(self):
            raise ArgumentError("no config")

    file = io.BytesIO()
    with pytest.raises(ArgumentError, match="no config"):
        toolkit.Sequential([toolkit.Input((3,)), Broken()]).save(file)
    assert file.getvalue() == b""
