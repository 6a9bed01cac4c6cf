"""Test limits of reading: the load budget, the structure of HDF5, and its checks."""

import io
import json
import os
import pickle
import sys
import time
import zipfile
import zlib

import h5py
import numpy as np
import pytest

import toolkit as tk
from toolkit.datasets.pickles import load_data
from toolkit.errors import (
    ArgumentError,
    DatasetError,
    ImageFileError,
    LoadBudgetError,
    ModelFileError,
)
from toolkit.reading import hdf5_probe
from toolkit.reading.budget import (
    check_temporary,
    load_within_budget,
    refund_at_end,
    spend,
    spend_time,
)
from toolkit.reading.hdf5 import open_datasets


@pytest.fixture(autouse=True)
def default_budget():
    yield
    tk.saving.set_load_budget()


def test_budgets():
    assert tk.saving.load_budget(0) == 1 << 26
    assert tk.saving.load_budget(1 << 24) == 1 << 30
    huge = 1 << 50  # more than half of any memory, but reading it takes some
    assert tk.saving.load_budget(huge) == 8 * huge
    tk.saving.set_load_budget(ratio=2, least=0)
    assert tk.saving.load_budget(1000) == 8000


@pytest.mark.parametrize("wrong", [{"ratio": 0}, {"share": 2}, {"least": -1}])
def test_invalid_budgets_are_refused(wrong):
    with pytest.raises(ArgumentError, match="set_load_budget"):
        tk.saving.set_load_budget(**wrong)


def test_nested_load_shares_the_budget(tmp_path):
    (tmp_path / "a").write_bytes(b"x")
    spend(1 << 40, "what no load asks for")
    with (
        load_within_budget(tmp_path / "a") as outer,
        load_within_budget(tmp_path / "a") as inner,
    ):
        assert inner is outer
        spend(1 << 25, "the first half")
        with pytest.raises(LoadBudgetError, match="the other"):
            spend((1 << 25) + 1, "the other")


def test_weights_of_a_config_count_against_the_budget(tmp_path):
    model = tk.Sequential([tk.Input((64,)), tk.layers.Dense(64)])
    model.save(tmp_path / "m.keras")
    tk.saving.set_load_budget(ratio=1, least=0)
    tk.saving.load_model(tmp_path / "m.keras")  # eight times the file is allowed


@pytest.mark.parametrize("version", ["earliest", "latest"])
def test_child_reads_unchecked_structures(version, tmp_path):
    with h5py.File(tmp_path / "a.h5", "w", libver=version) as file:
        file.create_dataset("x", data=np.arange(6), chunks=(2,), compression="gzip")
        file["x"].attrs["unit"] = "metres"
    before = len(hdf5_probe._children)
    with open_datasets(tmp_path / "a.h5") as datasets:
        assert datasets["x"].read().tolist() == list(range(6))
    assert version == "latest" or len(hdf5_probe._children) == before


def test_child_that_times_out_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(hdf5_probe, "_children", [])
    busy = (
        "import toolkit.reading.hdf5_probe as p\n"
        "def hang(*_):\n    while True: pass\n"
        "p._read_all = hang\np.serve()"
    )
    command = [sys.executable, "-c", busy]
    monkeypatch.setattr(hdf5_probe, "python_command", lambda function: command)
    with h5py.File(tmp_path / "a.h5", "w", libver="latest") as file:
        file["x"] = [1.0]
    start = time.monotonic()
    with pytest.raises(ModelFileError, match="does not end"):
        with open_datasets(tmp_path / "a.h5"):
            pass
    assert time.monotonic() - start < 60
    assert not hdf5_probe._children


def test_endless_heap_is_detected_before_the_library_hangs(tmp_path):
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file.create_group("g").attrs["name"] = "text of any length"
    data = bytearray(path.read_bytes())
    heap = data.index(b"GCOL")
    data[heap + 24 : heap + 32] = bytes(8)  # the size of its first value
    path.write_bytes(data)
    with pytest.raises(ModelFileError, match="heap"):
        with open_datasets(path):
            pass


def test_control_characters_in_names_are_escaped():
    error = ModelFileError("a \x1b[31m name\n\u202e")
    assert str(error) == "a \\x1b[31m name\n\\u202e"
    with pytest.raises(ArgumentError, match="control characters"):
        tk.layers.Dense(1, name="a\x07")


def test_failed_write_keeps_hdf5_usable(tmp_path):
    from toolkit.models.saving.h5_files import _Disk, created

    class Full(io.FileIO):
        def write(self, data):
            raise OSError(28, os.strerror(28))

    with Full(tmp_path / "a", "x+") as full:
        disk = _Disk(full)
        assert disk.write(b"1234") == 4
        assert disk.error.errno == 28
    with created(tmp_path / "b.h5") as file:
        file["x"] = [1.0]
    with h5py.File(tmp_path / "b.h5") as file:
        assert file["x"][0] == 1


def test_config_may_use_a_fraction_of_the_memory():
    model = tk.Sequential([tk.Input((3,)), tk.layers.Dense(2)])
    text = model.to_json().replace('"units": 2', f'"units": {2**40}')
    with pytest.raises(LoadBudgetError, match="model_from_json: making the variable"):
        tk.models.model_from_json(text)


def test_zip_with_a_hidden_member_is_refused(tmp_path):
    path = tmp_path / "x.npz"
    np.savez(path, x=np.ones(3), y=np.ones(3))
    content = bytearray(path.read_bytes())
    entry = content.index(b"PK\1\2")
    content[entry + 33] = 8  # its comment, as long as the rest of the file
    path.write_bytes(content)
    with pytest.raises(DatasetError, match="list of members is corrupt"):
        tk.data.Dataset.from_npz(path)


def test_pickle_with_too_many_marks_is_refused():
    hostile = b"\x80\x02]r" + (1 << 31).to_bytes(4, "little") + b"."
    with pytest.raises(pickle.UnpicklingError, match="it marks 2,147,483,648 objects"):
        load_data(io.BytesIO(hostile))
    value = {b"a": [1, 2, 300, 70_000], b"b": "x" * 300}
    for protocol in (3, 4, 5):
        assert load_data(io.BytesIO(pickle.dumps(value, protocol))) == value


def test_truncated_png_is_refused_before_allocation(tmp_path):
    image = pytest.importorskip("PIL.Image")
    path = tmp_path / "x.png"
    image.new("RGB", (2000, 2000)).save(path)  # of one colour, for maximum compression
    assert tk.utils.load_img(path).size == (2000, 2000)
    content = bytearray(path.read_bytes())
    content[16:24] = (9000).to_bytes(4, "big") * 2
    content[29:33] = zlib.crc32(content[12:29]).to_bytes(4, "big")
    path.write_bytes(content)
    with pytest.raises(ImageFileError, match="9000 x 9000 pixels do not fit"):
        tk.utils.load_img(path)


@pytest.mark.parametrize("initializer", ["orthogonal", "identity", "he_normal"])
def test_initializers_are_estimated_before_they_run(initializer, tmp_path):
    tk.saving.set_load_budget(share=1e-12, least=1 << 26)
    model = tk.Sequential(
        [tk.Input((2,)), tk.layers.Dense(2, kernel_initializer=initializer)]
    )
    model.save(tmp_path / "m.keras")
    with zipfile.ZipFile(tmp_path / "m.keras") as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    config = members["config.json"].decode()
    config = config.replace('"units": 2', '"units": 4000')
    config = config.replace("[null, 2]", "[null, 4000]")
    with zipfile.ZipFile(tmp_path / "m.keras", "w") as archive:
        for name, content in {**members, "config.json": config}.items():
            archive.writestr(name, content)
    start = time.process_time()
    with pytest.raises(LoadBudgetError, match=r"of shape \(4000, 4000\) takes"):
        tk.saving.load_model(tmp_path / "m.keras")
    assert time.process_time() - start < 5  # the factorization would take 15 seconds


def test_time_limit_is_proportional_to_memory(tmp_path):
    (tmp_path / "a").write_bytes(b"x")
    spend_time(1e9, "what no load asks for")
    with load_within_budget(tmp_path / "a"):
        spend_time(1.9, "the first part")
        with pytest.raises(LoadBudgetError, match="the other would need far more time"):
            spend_time(0.2, "the other")
    tk.saving.set_load_budget(least=1 << 27)
    with load_within_budget(tmp_path / "a"):
        spend_time(3.9, "twice the budget")


def test_temporary_memory_is_released(tmp_path):
    (tmp_path / "a").write_bytes(b"x")
    with load_within_budget(tmp_path / "a"):
        for _ in range(3):
            check_temporary(1 << 26, "all of it")
            with refund_at_end():
                spend(1 << 26, "all of it")
        spend(1 << 25, "half of it")
        with pytest.raises(LoadBudgetError, match="all of it takes"):
            check_temporary(1 << 26, "all of it")


def test_many_layers_in_a_small_file_are_refused(tmp_path):
    layer = {"class_name": "Activation", "module": "keras.layers"}
    rows = [
        {**layer, "config": {"name": f"a{i}", "activation": "relu"}} for i in range(99)
    ]
    first = {"class_name": "InputLayer", "module": "keras.layers"}
    first["config"] = {"batch_shape": [None, 4]}
    model = {"class_name": "Sequential", "module": "keras"}
    model["config"] = {"name": "many", "layers": [first, *rows]}
    (tmp_path / "a").write_bytes(b"x")
    assert len(tk.models.model_from_json(json.dumps(model)).layers) == 99
    tk.saving.set_load_budget(least=1 << 20)
    with load_within_budget(tmp_path / "a"):
        with pytest.raises(LoadBudgetError, match="this number of .* would need"):
            tk.models.model_from_json(json.dumps(model))
