"""Attacks by HDF5 files, folders and lists of shards that name other files."""

import json
import os
import struct

import h5py
import numpy as np

from tests.faults.attack_list import SECRET, attack
from tests.faults.attacks_by_configs import layer, sequential
from tests.faults.attacks_on_zips import members_of, zipped
from tests.faults.formats import (
    inspect,
    model_with_words,
    read_model,
    read_weights,
    small_model,
)
from toolkit.data import Dataset

# --- HDF5 -----------------------------------------------------------------------------


def weights(folder):
    path = folder / "bad.weights.h5"
    small_model().save_weights(path)
    return path


PLACE = "layers/dense/vars/0"


def external_link(file, folder):
    with h5py.File(folder / "other.h5", "w") as other:
        other["x"] = np.ones((3, 4), "float32")
    file[PLACE] = h5py.ExternalLink(str(folder / "other.h5"), "x")


def soft_link(file, folder):
    file[PLACE] = h5py.SoftLink("/layers/dense_1/vars/0")


def loop(file, folder):
    file["layers/again"] = file["layers"]


def external_data(file, folder):
    segment = [(str(folder / "secret.txt"), 0, 48)]
    file.create_dataset(PLACE, (3, 4), "f4", external=segment)


def virtual(file, folder):
    layout = h5py.VirtualLayout((3, 4), "f4")
    layout[:] = h5py.VirtualSource(str(folder / "other.h5"), "x", (3, 4))
    file.create_virtual_dataset(PLACE, layout)


def zeros(file, folder):
    file.create_dataset(
        PLACE, (2**28,), "f4", chunks=(2**20,), compression="gzip", fillvalue=0
    )[: 2**24] = 0


def huge_chunk(file, folder):
    file.create_dataset(PLACE, (2**29,), "f4", chunks=(2**26,), compression="gzip")[
        :1
    ] = 1


def unwritten(file, folder):
    file.create_dataset(PLACE, (2**44,), "f4", chunks=(1024,))


def texts(file, folder):
    file.create_dataset(PLACE, data=["a" * 1000] * 12, dtype=h5py.string_dtype())


def references(file, folder):
    data = [file["layers"].ref] * 12
    file.create_dataset(PLACE, data=data, dtype=h5py.ref_dtype)


def records(file, folder):
    file.create_dataset(PLACE, (3, 4), [("a", "f4"), ("b", "i8")])


def many_axes(file, folder):
    file.create_dataset(PLACE, (1,) * 32, "f4")


def large_attribute(file, folder):
    file["layers"].attrs["name"] = "\x1b[31m" * 5000


IN_HDF5 = (external_link, soft_link, loop, external_data, virtual, zeros, huge_chunk)
IN_HDF5 += (unwritten, texts, references, records, many_axes, large_attribute)

# Harmless if rows are read one by one.
IN_DATA = (large_attribute, loop, texts, records, many_axes, zeros, unwritten)


def changed_weights(folder, change):
    path = weights(folder)
    with h5py.File(path, "a") as file:
        if change not in (loop, large_attribute):
            del file[PLACE]
        change(file, folder)
    return path


for change in IN_HDF5:
    words = change.__name__.replace("_", " ")

    def in_weights(folder, change=change):
        path = changed_weights(folder, change)
        return lambda: read_weights(path)

    def in_archive(folder, change=change):
        members = members_of(folder)
        members["model.weights.h5"] = changed_weights(folder, change).read_bytes()
        return zipped(folder, members.items())

    def in_data(folder, change=change):
        path = changed_weights(folder, change)
        key = "layers/again/dense/vars/0" if change is loop else PLACE
        if change is large_attribute:
            return lambda: inspect(path)
        return lambda: next(iter(Dataset.from_hdf5(path, key)))

    attack(f"HDF5 weights: {words}", in_weights, change is large_attribute)
    attack(f"HDF5 in .keras: {words}", in_archive, change is large_attribute)
    attack(
        f"HDF5 data: {words}",
        in_data,
        change in IN_DATA,
    )


@attack("HDF5 in a second HDF5 by hand")
def _(folder):
    path = folder / "bad.h5"
    small_model().save(path)
    with h5py.File(path, "a") as file:
        file.attrs["model_config"] = json.dumps(
            sequential(layer("system", "os"))
        ).encode()
    return lambda: read_model(path)


@attack("HDF5: names that are said to be long")
def _(folder):
    path = folder / "bad.h5"
    small_model().save(path)
    data = bytearray(path.read_bytes())
    heap = data.index(b"GCOL")
    offset = data.index(struct.pack("<QI", heap, 1))
    data[offset - 4 : offset] = struct.pack("<I", 3 << 30)
    path.write_bytes(data)
    return lambda: read_model(path)


# --- folders and shards ---------------------------------------------------------------


def link_in_folder(name, target):
    def make(folder):
        path = folder / "model"
        model_with_words().save(path, zipped=False)
        (folder / "outside").mkdir()
        (folder / "outside" / "vocabulary.txt").write_text(SECRET)
        link = path / name
        if link.is_dir():
            link.rename(folder / "was")
        elif link.exists():
            link.rename(folder / "was.file")
        target(folder, link)
        return lambda: read_model(path)

    return make


attack(
    "folder: words are a link",
    link_in_folder(
        "assets/layers/string_lookup/vocabulary.txt",
        lambda folder, link: link.symlink_to(folder / "secret.txt"),
    ),
)
attack(
    "folder: assets are a link",
    link_in_folder(
        "assets/layers/string_lookup",
        lambda folder, link: link.symlink_to(folder / "outside"),
    ),
)
attack(
    "folder: the config is a link",
    link_in_folder(
        "config.json",
        lambda folder, link: link.symlink_to(folder / "was.file"),
    ),
)
attack(
    "folder: the weights are a link",
    link_in_folder(
        "model.weights.h5",
        lambda folder, link: link.symlink_to(folder / "was.file"),
    ),
)
attack(
    "folder: the weights are a pipe",
    link_in_folder("model.weights.h5", lambda folder, link: os.mkfifo(link)),
)
attack(
    "folder: the config is a device",
    link_in_folder("config.json", lambda folder, link: link.symlink_to("/dev/zero")),
)

for name in ("../x.weights.h5", "/etc/passwd", "a/../../x", "..", "a\\b", "", "\0"):

    def listed(folder, name=name):
        small_model().save_weights(folder / "m.weights.json", max_shard_size=1e-7)
        text = {"metadata": {}, "weight_map": {"/a": name}}
        (folder / "m.weights.json").write_text(json.dumps(text))
        return lambda: read_weights(folder / "m.weights.json")

    attack(f"list of shards names {name!r}", listed)


@attack("list of shards names itself")
def _(folder):
    text = {"metadata": {}, "weight_map": {"/a": "m.weights.json"}}
    (folder / "m.weights.json").write_text(json.dumps(text))
    return lambda: read_weights(folder / "m.weights.json")
