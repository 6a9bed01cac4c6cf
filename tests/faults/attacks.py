"""Files that somebody made to do harm, and the public function that reads each.

An attack is a function that writes a file into a folder and returns what reads it. Code
that ran would make the file `ran` in the folder; `secret.txt` beside it is what must not
be read.
"""

import base64
import bz2
import gzip
import io
import json
import marshal
import os
import pickle
import struct
import tarfile
import zipfile
import zlib

import h5py
import numpy as np

import toolkit as tk
from tests.faults.formats import (
    inspect,
    model_with_words,
    read_image,
    read_image_folder,
    read_model,
    read_weights,
    rows,
    small_model,
)
from toolkit.compat import tensorflow as tf
from toolkit.data import Dataset, TextLineDataset, TFRecordDataset, make_example
from toolkit.data.records import masked_crc32c, write_record
from toolkit.data.store import FIRST_LINE, HEAD, MARK, TAIL
from toolkit.datasets.cifar import load_batch
from toolkit.datasets.pickles import load_lists

ATTACKS = {}
HARMLESS = set()  # those that may be read: nothing of what was intended comes of it
SECRET = "the secret words"
CODE = "import os; os.system('touch ran')"
ZEROS = bytes(1 << 20)


def attack(name, make=None, harmless=False):
    """Note an attack; make: (folder) -> what reads the file."""

    def note(function):
        assert name not in ATTACKS, name
        ATTACKS[name] = function
        if harmless:
            HARMLESS.add(name)
        return function

    return note if make is None else note(make)


# --- .keras: the ZIP ------------------------------------------------------------------


def members_of(folder, make=small_model):
    make().save(folder / "good.keras")
    with zipfile.ZipFile(folder / "good.keras") as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def zipped(folder, members, method=zipfile.ZIP_DEFLATED, change=None):
    """A `.keras` file of (name or ZipInfo, content) pairs."""
    path = folder / "bad.keras"
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, content in members:
            archive.writestr(name, content)
    if change:
        path.write_bytes(change(path.read_bytes()))
    return lambda: read_model(path)


def with_member(name, content=b"x", **options):
    def make(folder):
        return zipped(folder, [*members_of(folder).items(), (name, content)], **options)

    return make


for name in (
    *("../evil", "/tmp/evil", "a/../../evil", "C:/evil", "C:evil", "..\\evil"),
    *("assets/../../evil", "assets\\..\\evil", "./../evil", "assets/..", "//a/b"),
):
    attack(f"zip member {name}", with_member(name))


def info(name, **fields):
    made = zipfile.ZipInfo(name)
    for key, value in fields.items():
        setattr(made, key, value)
    return made


attack(
    "zip member is a link",
    with_member(info("assets/a", external_attr=0o120777 << 16), b"/etc/passwd"),
)
attack("zip member of LZMA", with_member("assets/a", ZEROS, method=zipfile.ZIP_LZMA))
attack("zip member of bzip2", with_member("assets/a", ZEROS, method=zipfile.ZIP_BZIP2))
attack("zip of zeros in assets", with_member("assets/a", ZEROS * 200))
attack("zip with a long name", with_member("assets/" + "a" * 300), harmless=True)
attack("zip with deep folders", with_member("assets/" + "a/" * 2000 + "b"))


@attack("zip member twice")
def _(folder):
    members = members_of(folder)
    import warnings

    warnings.simplefilter("ignore")
    return zipped(folder, [*members.items(), ("config.json", b"{}")])


@attack("zip with 20,000 members")
def _(folder):
    members = members_of(folder)
    more = [(f"assets/{i}", b"") for i in range(20_000)]
    return zipped(folder, [*members.items(), *more])


@attack("zip member that is encrypted")
def _(folder):
    def change(data):
        place = data.rindex(b"PK\x01\x02")
        return data[: place + 8] + b"\x01" + data[place + 9 :]

    return zipped(folder, members_of(folder).items(), change=change)


@attack("zip member that declares 4 GB")
def _(folder):
    def change(data):
        place = data.rindex(b"PK\x01\x02")
        return data[: place + 24] + b"\xfe\xff\xff\xff" + data[place + 28 :]

    return zipped(folder, members_of(folder).items(), change=change)


@attack("zip with a file where a folder is")
def _(folder):
    more = [("assets/a", b"x"), ("assets/a/b", b"y")]
    return zipped(folder, [*members_of(folder).items(), *more])


# --- .keras: the config ---------------------------------------------------------------


def layer(class_name, module="keras.layers", registered_name=None, **config):
    return {
        "module": module,
        "class_name": class_name,
        "config": {"name": "bad", **config},
        "registered_name": registered_name,
    }


def sequential(*layers_, shape=(None, 4)):
    first = layer("InputLayer", batch_shape=list(shape), dtype="float32")
    first["config"]["name"] = "first"
    return layer("Sequential", "keras", layers=[first, *layers_])


def with_config(folder, config):
    members = members_of(folder)
    text = config if isinstance(config, bytes) else json.dumps(config).encode()
    return zipped(folder, [*{**members, "config.json": text}.items()])


def config_attack(name, config, harmless=False):
    def make(folder):
        return with_config(folder, config(folder) if callable(config) else config)

    attack(f"config: {name}", make, harmless)


HUGE = 2**40
HUNGRY = {
    "Dense": ({"units": HUGE}, {"units": 2**27}, {"units": "9" * 40}),
    "Embedding": ({"input_dim": 2**33, "output_dim": 8},),
    "LSTM": ({"units": 2**17},),
    "GRU": ({"units": 2**30},),
    "Conv1D": ({"filters": 2**33, "kernel_size": 3},),
    "Conv2DTranspose": ({"filters": 2**10, "kernel_size": 2**12},),
    "EinsumDense": ({"equation": "ab,bc->ac", "output_shape": 2**35},),
    "Normalization": ({"axis": -1}, {"mean": [0.0] * 4, "variance": "x"}),
    "MelSpectrogram": (
        {"num_mel_bins": 2**28, "fft_length": 2048},
        {"fft_length": 2**30, "num_mel_bins": 128},
    ),
    "STFTSpectrogram": ({"fft_length": 2**31, "frame_length": 2**31},),
    "IntegerLookup": ({"max_tokens": HUGE, "output_mode": "one_hot"},),
    "Discretization": ({"num_bins": HUGE}, {"bin_boundaries": ["x"]}),
    "CategoryEncoding": ({"num_tokens": HUGE},),
    "RepeatVector": ({"n": HUGE},),
    "Reshape": ({"target_shape": [HUGE, HUGE]},),
    "ZeroPadding1D": ({"padding": HUGE},),
    "UpSampling1D": ({"size": HUGE},),
    "SpectralNormalization": ({"layer": layer("Dense", units=2**33)},),
    "Bidirectional": ({"layer": layer("LSTM", units=2**17)},),
    "MultiHeadAttention": ({"num_heads": 2**20, "key_dim": 2**20},),
    "HashedCrossing": ({"num_bins": HUGE, "output_mode": "one_hot"},),
    "RandomCrop": ({"height": HUGE, "width": HUGE},),
    "Resizing": ({"height": HUGE, "width": HUGE},),
}
for class_name, settings in HUNGRY.items():
    for number, setting in enumerate(settings):
        shape = (None, 6, 4) if class_name[:3] in ("LST", "GRU", "Con", "Bid") else None
        config_attack(
            f"{class_name} asks for too much {number}",
            sequential(layer(class_name, **setting), shape=shape or (None, 4)),
            harmless=True,
        )

for name, initializer in {
    "Orthogonal": {"module": "keras.initializers", "class_name": "Orthogonal"},
    "Identity": {"module": "keras.initializers", "class_name": "Identity"},
    "a huge Constant": {
        "module": "keras.initializers",
        "class_name": "Constant",
        "inner": {"value": [1.0] * 9},
    },
}.items():
    inner = initializer.pop("inner", {})
    config_attack(
        f"initializer {name}",
        sequential(
            layer(
                "Dense",
                units=40_000,
                kernel_initializer={
                    **initializer,
                    "config": inner,
                    "registered_name": None,
                },
            ),
            shape=(None, 40_000),
        ),
    )


def nested(depth):
    inner = layer("Dense", units=1)
    for _ in range(depth):
        inner = layer("TimeDistributed", layer=inner)
    return sequential(inner)


def loaded_lambda(folder):
    code = compile(CODE, "x", "exec")
    text = base64.b64encode(marshal.dumps(code)).decode()
    function = {"class_name": "__lambda__", "config": {"code": text}}
    return sequential(layer("Lambda", function=function))


config_attack("nested 50 deep", nested(50), harmless=True)
config_attack("nested 300 deep", nested(300), harmless=True)
config_attack("nested 100,000 deep", b'{"a":' * 10**5)
config_attack("lists of 100 MB", b"[" + b"[]," * (1 << 25) + b"[]]")
config_attack("Lambda with code", loaded_lambda)
for name, function in {
    "Lambda of old Keras": [base64.b64encode(marshal.dumps(1)).decode(), None, None],
    "Lambda named os.system": {
        "class_name": "function",
        "module": "os",
        "config": "system",
        "registered_name": "system",
    },
    "Lambda named eval": {
        "class_name": "function",
        "module": "builtins",
        "config": "eval",
        "registered_name": "eval",
    },
    "Lambda of text": CODE,
}.items():
    config_attack(name, sequential(layer("Lambda", function=function)))
for module, name in {
    ("os", "system"),
    ("posix", "system"),
    ("builtins", "eval"),
    ("builtins", "exec"),
    ("builtins", "__import__"),
    ("builtins", "open"),
    ("subprocess", "Popen"),
    ("subprocess", "check_output"),
    ("pickle", "loads"),
    ("importlib", "import_module"),
    ("runpy", "run_path"),
    ("shutil", "rmtree"),
    ("numpy", "load"),
    ("h5py", "File"),
    ("toolkit.utils", "get_file"),
    ("toolkit.saving", "load_model"),
    ("toolkit.data.processes", "subprocess"),
    ("toolkit.cli.own", "runpy"),
    ("keras.utils", "get_file"),
    ("keras.saving", "load_model"),
    ("keras.src.utils.file_utils", "os"),
    ("", "os"),
    ("../../x", "y"),
    (None, "os.system"),
    (None, "__import__('os').system('touch ran')"),
}:
    config_attack(
        f"layer {name} of {module}",
        sequential(layer(name, module, command="touch ran", args=["touch ran"])),
    )
    config_attack(
        f"function {name} of {module}",
        sequential(
            layer(
                "Activation",
                activation={
                    "class_name": "function",
                    "module": module,
                    "config": name,
                    "registered_name": name,
                },
            )
        ),
    )
for name in ("__import__('os')", "eval", "os.system", "lambda x: x", "__class__"):
    config_attack(
        f"activation {name}", sequential(layer("Dense", units=1, activation=name))
    )
    config_attack(
        f"initializer {name}",
        sequential(layer("Dense", units=1, kernel_initializer=name)),
    )
for name in ("TFSMLayer", "TorchModuleWrapper", "JaxLayer", "FlaxLayer"):
    config_attack(
        f"{name} that loads a file",
        sequential(layer(name, filepath="secret.txt", module="secret.txt")),
    )
for key in ("vocabulary", "idf_weights"):
    for class_name in ("StringLookup", "TextVectorization", "IntegerLookup"):

        def read_words(folder, class_name=class_name, key=key):
            bad = {"vocabulary": ["a"], "output_mode": "tf_idf"}
            bad[key] = str(folder / "secret.txt")
            return sequential(layer(class_name, **bad))

        config_attack(f"{key} of {class_name} is a path", read_words)
for name, special in {
    "__numpy__ of objects": {"value": [1], "dtype": "object"},
    "__numpy__": {"value": [[1], [2, 3]], "dtype": "float32"},
    "__tensor__": {"value": "x" * 9, "dtype": "float32"},
    "__bytes__": {"value": "é€"},
    "__lambda__": {"value": CODE},
    "__reduce__": {"value": CODE},
    "__typespec__": {"spec_name": "os", "spec": "system"},
    "__slice__": {"start": CODE, "stop": [], "step": {}},
    "__complex__": {"value": CODE},
    "__ellipsis__": {"value": CODE},
}.items():
    config_attack(
        f"special {name}",
        sequential(
            layer(
                "Dense",
                units=1,
                bias_initializer={"class_name": name.split()[0], "config": special},
            )
        ),
    )
config_attack(
    "compiled with os.system",
    {
        **sequential(layer("Dense", units=1)),
        "compile_config": {
            "optimizer": "adam",
            "loss": {
                "class_name": "function",
                "module": "os",
                "config": "system",
                "registered_name": "system",
            },
        },
    },
)
config_attack(
    "control characters in a name",
    sequential({**layer("Dense", units=1), "config": {"name": "\x1b]0;x\x07"}}),
)
config_attack(
    "control characters in a class", sequential(layer("\x1b[2JDense", units=1))
)
config_attack(
    "control characters in an argument", sequential(layer("Dense", **{"\x1b[31m": 1}))
)
config_attack(
    "a shape that is not finite", b'{"class_name": "Dense", "config": {"units": NaN}}'
)
config_attack("an extent of text", sequential(layer("Dense", units="__import__('os')")))


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
    place = [(str(folder / "secret.txt"), 0, 48)]
    file.create_dataset(PLACE, (3, 4), "f4", external=place)


def virtual(file, folder):
    layout = h5py.VirtualLayout((3, 4), "f4")
    layout[:] = h5py.VirtualSource(str(folder / "other.h5"), "x", (3, 4))
    file.create_virtual_dataset(PLACE, layout)


def zeros(file, folder):
    file.create_dataset(
        PLACE, (2**28,), "f4", chunks=(2**20,), compression="gzip", fillvalue=0
    )[: 2**24] = 0


def huge_chunk(file, folder):
    file.create_dataset(PLACE, (2**29,), "f4", chunks=(2**29 - 1,), compression="gzip")[
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
        change in (large_attribute, loop, texts, records, many_axes, zeros),
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


# --- folders and shards ---------------------------------------------------------------


def link_in_folder(name, target):
    def make(folder):
        path = folder / "model"
        model_with_words().save(path, zipped=False)
        (folder / "outside").mkdir()
        (folder / "outside" / "vocabulary.txt").write_text(SECRET)
        place = path / name
        if place.is_dir():
            place.rename(folder / "was")
        elif place.exists():
            place.rename(folder / "was.file")
        target(folder, place)
        return lambda: read_model(path)

    return make


attack(
    "folder: words are a link",
    link_in_folder(
        "assets/layers/string_lookup/vocabulary.txt",
        lambda folder, place: place.symlink_to(folder / "secret.txt"),
    ),
)
attack(
    "folder: assets are a link",
    link_in_folder(
        "assets/layers/string_lookup",
        lambda folder, place: place.symlink_to(folder / "outside"),
    ),
)
attack(
    "folder: the config is a link",
    link_in_folder(
        "config.json",
        lambda folder, place: place.symlink_to(folder / "was.file"),
    ),
)
attack(
    "folder: the weights are a link",
    link_in_folder(
        "model.weights.h5",
        lambda folder, place: place.symlink_to(folder / "was.file"),
    ),
)
attack(
    "folder: the weights are a pipe",
    link_in_folder("model.weights.h5", lambda folder, place: os.mkfifo(place)),
)
attack(
    "folder: the config is a device",
    link_in_folder("config.json", lambda folder, place: place.symlink_to("/dev/zero")),
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


# --- archives of data -----------------------------------------------------------------


def fetched(folder, path):
    def read():
        found = tk.utils.get_file(
            "data", f"file://{path}", extract=True, cache_dir=folder / "cache"
        )
        return sorted(os.listdir(found))

    return read


def member(name, content=b"x", **fields):
    made = tarfile.TarInfo(name)
    made.size = len(content)
    for key, value in fields.items():
        setattr(made, key, value)
    return made, io.BytesIO(content)


TARS = {
    "leaves by ..": [member("../evil")],
    "leaves by /": [member("/tmp/evil")],
    "leaves later": [member("a/b/../../../evil")],
    "a link outside": [member("a", b"", type=tarfile.SYMTYPE, linkname="/etc")],
    "writes through a link": [
        member("a", b"", type=tarfile.SYMTYPE, linkname=".."),
        member("a/evil"),
    ],
    "a hard link": [member("a", b"", type=tarfile.LNKTYPE, linkname="/etc/passwd")],
    "a device": [member("a", b"", type=tarfile.CHRTYPE, devmajor=1, devminor=5)],
    "a pipe": [member("a", b"", type=tarfile.FIFOTYPE)],
    "a file over a folder": [member("a/b"), member("a")],
    "control characters": [member("../\x1b]0;x\x07")],
}
for words, content in TARS.items():

    def tarred(folder, content=content):
        with tarfile.open(folder / "a.tar", "w") as archive:
            for made, file in content:
                file.seek(0)
                archive.addfile(made, file)
        return fetched(folder, folder / "a.tar")

    attack(f"tar: {words}", tarred)


@attack("tar: a file that any user may run as its owner", harmless=True)
def _(folder):
    with tarfile.open(folder / "a.tar", "w") as archive:
        archive.addfile(*member("a", mode=0o6777))

    def read():
        fetched(folder, folder / "a.tar")()
        mode = (folder / "cache/datasets/data/a").stat().st_mode
        assert not mode & 0o6000, oct(mode)

    return read


def long_stream(folder, head, pack):
    """A tar whose first member goes on for a gigabyte of zeros."""
    packed = folder / "a.tar.packed"
    if pack is gzip:
        with gzip.open(packed, "wb", 1) as file:
            file.write(head)
            for _ in range(1024):
                file.write(ZEROS)
    else:
        packed.write_bytes(bz2.compress(head) + bz2.compress(ZEROS * 16) * 64)
    return fetched(folder, packed)


for pack in (gzip, bz2):
    words = pack.__name__

    @attack(f"tar: a gigabyte of zeros in {words}")
    def _(folder, pack=pack):
        head = member("a")[0]
        head.size = 1 << 30
        return long_stream(folder, head.tobuf(), pack)

    @attack(f"tar: a header of a gigabyte in {words}")
    def _(folder, pack=pack):
        head = member("a", type=tarfile.XHDTYPE)[0]
        head.size = 1 << 30
        return long_stream(folder, head.tobuf(), pack)

    @attack(f"tar: a name of a gigabyte in {words}")
    def _(folder, pack=pack):
        head = member("a", type=tarfile.GNUTYPE_LONGNAME)[0]
        head.size = 1 << 30
        return long_stream(folder, head.tobuf(), pack)


@attack("tar: a file of holes of a terabyte")
def _(folder):
    fields = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0"}
    fields |= {"GNU.sparse.realsize": str(2**40), "GNU.sparse.name": "a"}
    made, file = member("a", b"0\n".ljust(512, b"\0"), pax_headers=fields)
    with tarfile.open(folder / "a.tar", "w", format=tarfile.PAX_FORMAT) as archive:
        archive.addfile(made, file)
    return fetched(folder, folder / "a.tar")


ZIPS = {
    "leaves by ..": "../evil",
    "leaves by /": "/tmp/evil",
    "leaves by \\": "..\\evil",
    "leaves later": "a/b/../../../evil",
}
for words, name in ZIPS.items():

    def data_zip(folder, name=name):
        with zipfile.ZipFile(folder / "a.zip", "w") as archive:
            archive.writestr(name, "x")
        return fetched(folder, folder / "a.zip")

    attack(f"zip of data: {words}", data_zip)


@attack("zip of data: a gigabyte of zeros")
def _(folder):
    with zipfile.ZipFile(folder / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        with archive.open("a", "w", force_zip64=True) as file:
            for _ in range(1024):
                file.write(ZEROS)
    return fetched(folder, folder / "a.zip")


@attack("zip of data: a link", harmless=True)
def _(folder):
    with zipfile.ZipFile(folder / "a.zip", "w") as archive:
        archive.writestr(info("a", external_attr=0o120777 << 16), "/etc/passwd")

    def read():
        fetched(folder, folder / "a.zip")()
        assert not (folder / "cache/datasets/data/a").is_symlink()

    return read


# --- arrays and records ---------------------------------------------------------------


class Evil:
    def __reduce__(self):
        return os.system, ("touch ran",)


def evil_npy():
    file = io.BytesIO()
    np.lib.format.write_array(file, np.array([Evil()], object), allow_pickle=True)
    return file.getvalue()


def npy(header, version=b"\x01\x00", body=b""):
    text = header.encode("latin1") if isinstance(header, str) else header
    size = struct.pack("<H" if version[0] == 1 else "<I", len(text))
    return b"\x93NUMPY" + version + size + text + body


def numbers(shape, kind="<f4", order="False"):
    return f"{{'descr': {kind!r}, 'fortran_order': {order}, 'shape': {shape}, }}\n"


NPY = {
    "objects": evil_npy(),
    "code in the header": npy("__import__('os').system('touch ran')\n"),
    "code for a shape": npy(numbers("__import__('os').system('touch ran')")),
    "brackets without end": npy("(" * 9000 + "\n"),
    "a huge shape": npy(numbers(f"({2**62},)")),
    "a shape that overflows": npy(numbers(f"({2**33}, {2**33})")),
    "a negative shape": npy(numbers("(-4,)")),
    "elements of no bytes": npy(numbers(f"({2**40},)", "|V0")),
    "text of no bytes": npy(numbers(f"({2**40},)", "<U0")),
    "elements of a gigabyte": npy(numbers("(1,)", f"|V{2**30}")),
    "a header of 4 GB": b"\x93NUMPY\x02\x00\xff\xff\xff\xff" + b" " * 99,
    "another version": npy(numbers("(1,)"), b"\x09\x00"),
    "a number that never ends": npy("1" * 9000 + "\n"),
    "many axes": npy(numbers(str((1,) * 500)), body=b"1234"),
}
for words, content in NPY.items():

    def from_npy(folder, content=content):
        (folder / "a.npy").write_bytes(content)
        return lambda: list(Dataset.from_npy(folder / "a.npy"))

    def from_npz(folder, content=content):
        with zipfile.ZipFile(folder / "a.npz", "w") as archive:
            archive.writestr("x.npy", content)
        return lambda: rows(Dataset.from_npz(folder / "a.npz"))

    def looked_at(folder, content=content):
        (folder / "a.npy").write_bytes(content)
        return lambda: inspect(folder / "a.npy")

    attack(f"npy: {words}", from_npy)
    attack(f"npz: {words}", from_npz)
    attack(f"inspect npy: {words}", looked_at, harmless=True)


@attack("npz: a gigabyte of zeros")
def _(folder):
    with zipfile.ZipFile(folder / "a.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        with archive.open("x.npy", "w", force_zip64=True) as file:
            file.write(npy(numbers(f"({2**30},)", "|u1")))
            for _ in range(1024):
                file.write(ZEROS)
    return lambda: rows(Dataset.from_npz(folder / "a.npz"))


def record_head(length):
    head = struct.pack("<Q", length)
    return head + struct.pack("<I", masked_crc32c(head))


for length in (2**31, 2**40, 2**63 - 5, 2**63, 2**64 - 5, 2**64 - 1):

    def long_record(folder, length=length):
        (folder / "a").write_bytes(record_head(length) + b"x" * 99)
        return lambda: list(TFRecordDataset(folder / "a"))

    attack(f"a record of {length} bytes", long_record)


def zipped_record(folder, pack, kind):
    (folder / "a").write_bytes(pack(record_head(2**30) + ZEROS * 300))
    return lambda: list(TFRecordDataset(folder / "a", kind))


attack("a record of zeros in gzip", lambda f: zipped_record(f, gzip.compress, "GZIP"))
attack("a record of zeros in zlib", lambda f: zipped_record(f, zlib.compress, "ZLIB"))


@attack("a line of zeros in gzip")
def _(folder):
    (folder / "a").write_bytes(gzip.compress(ZEROS * 300))
    return lambda: list(TextLineDataset(folder / "a", "GZIP"))


@attack("an Example with a number without end")
def _(folder):
    with open(folder / "a", "wb") as file:
        write_record(file, b"\xff" * 500_000)
    read = tf.io.parse_single_example
    return lambda: [
        read(r, {"x": tf.io.FixedLenFeature((), "int64")})
        for r in TFRecordDataset(folder / "a")
    ]


@attack("an Example with control characters")
def _(folder):
    with open(folder / "a", "wb") as file:
        write_record(file, make_example({"\x1b]0;x\x07": [1]}))
    return lambda: inspect(folder / "a")


HARMLESS.add("an Example with control characters")


def elements(tree, buffers=(), packed=False, label='"x"'):
    data = FIRST_LINE.encode() + label.encode() + b"\n"
    place = len(data)
    header = json.dumps([tree, [len(b) for b in buffers], packed]).encode()
    checksum = zlib.crc32(header)
    body = b""
    for buffer in buffers:
        checksum = zlib.crc32(buffer, checksum)
        at = place + HEAD.size + len(header) + len(body)
        body += b"\0" * (-at % 64) + buffer
    data += HEAD.pack(len(header), len(buffers), checksum) + header + body
    return data + struct.pack("<Q", place) + TAIL.pack(len(data), 1, MARK)


ELEMENTS = {
    "objects without end": elements({"array": "object", "of": [[2**40], []]}),
    "an unknown kind": elements({"kind": "os.system", "of": "touch ran"}),
    "a dtype of objects": elements({"array": "O", "of": [[1], 0]}, [b"12345678"]),
    "a negative shape": elements({"array": "int8", "of": [[-5], 0]}, [b"1234"]),
    "zeros": elements(
        {"array": "uint8", "of": [[2**28], 0]}, [zlib.compress(ZEROS * 256)], True
    ),
    "lists in lists": elements(0).replace(b"0", b"0"),
}
for words, content in ELEMENTS.items():

    def stored(folder, content=content):
        (folder / "elements.data").write_bytes(content)
        return lambda: list(Dataset.load(folder))

    attack(f"elements: {words}", stored, words == "lists in lists")


def evil_pickle(folder):
    (folder / "a").write_bytes(pickle.dumps(Evil()))
    return folder / "a"


def evil_lists(folder):
    with zipfile.ZipFile(folder / "a.npz", "w") as archive:
        archive.writestr("x.npy", evil_npy())
    return lambda: load_lists(str(folder / "a.npz"))


def refused_pickle(read):
    def make(folder):
        path = evil_pickle(folder)
        return lambda: read(path)

    return make


attack("pickle as a batch of CIFAR", refused_pickle(load_batch))
attack("pickle of lists", evil_lists)
attack("pickle to inspect", refused_pickle(inspect), harmless=True)
attack(
    "pickle as .h5", refused_pickle(lambda p: read_model(p.rename(p.parent / "m.h5")))
)
attack(
    "pickle as .keras",
    refused_pickle(lambda p: read_model(p.rename(p.parent / "m.keras"))),
)
attack(
    "weights as .npz in .keras",
    lambda folder: zipped(
        folder,
        [
            *((n, c) for n, c in members_of(folder).items() if n != "model.weights.h5"),
            ("model.weights.npz", evil_npy()),
        ],
    ),
)


# --- images ---------------------------------------------------------------------------

EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n(ran) (w) file\nshowpage\n"


def png_of(width, height):
    def chunk(name, data):
        sum_ = struct.pack(">I", zlib.crc32(name + data))
        return struct.pack(">I", len(data)) + name + data + sum_

    head = struct.pack(">2I5B", width, height, 8, 2, 0, 0, 0)
    data = zlib.compress(ZEROS * 4)
    body = chunk(b"IHDR", head) + chunk(b"IDAT", data) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body


IMAGES = {
    "PostScript": EPS,
    "SVG": b"<svg xmlns='http://www.w3.org/2000/svg'><script>x</script></svg>",
    "a PDF": b"%PDF-1.4\n1 0 obj<</Type/Catalog>>endobj\n",
    "a Photoshop file": b"8BPS\0\1" + bytes(100),
    "a Windows metafile": b"\xd7\xcd\xc6\x9a\0\0" + bytes(100),
    "a BMP of 2 GB": b"BM"
    + struct.pack("<IHHI", 9, 0, 0, 54)
    + struct.pack("<IiiHHIIiiII", 40, 30000, 30000, 1, 24, 0, 0, 0, 0, 0, 0),
    "a PNG of 10 gigapixels": png_of(100_000, 100_000),
    "a GIF of 4 gigapixels": b"GIF89a\xff\xff\xff\xff\0\0\0,\0\0\0\0\xff\xff\xff\xff\0\2\2D\1\0;",
    "a PPM of 10 gigapixels": b"P6 100000 100000 255\n" + b"x" * 99,
}
for words, content in IMAGES.items():

    def of_file(folder, content=content):
        (folder / "a.png").write_bytes(content)
        return lambda: read_image(folder / "a.png")

    def of_folder(folder, content=content):
        (folder / "a.png").write_bytes(content)
        return lambda: read_image_folder(folder / "a.png")

    def of_bytes(folder, content=content):
        return lambda: tf.io.decode_image(content)

    def of_source(folder, content=content):
        (folder / "images/a").mkdir(parents=True)
        (folder / "images/a/a.jpg").write_bytes(content)
        return lambda: list(Dataset.from_image_folder(folder / "images"))

    attack(f"{words} to load_img", of_file)
    attack(f"{words} in a folder", of_folder)
    attack(f"{words} to decode_image", of_bytes)
    attack(f"{words} in from_image_folder", of_source)
