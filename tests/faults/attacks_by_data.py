"""Attacks by arrays, records, pickles and images."""

import gzip
import io
import json
import os
import pickle
import struct
import zipfile
import zlib

import numpy as np

from tests.faults.attack_list import HARMLESS, ZEROS, attack
from tests.faults.attacks_on_zips import members_of, zipped
from tests.faults.formats import (
    inspect,
    read_image,
    read_image_folder,
    read_model,
    rows,
)
from toolkit.compat import tensorflow as tf
from toolkit.data import Dataset, TextLineDataset, TFRecordDataset, make_example
from toolkit.data.element_files import FIRST_LINE, HEAD, MARK, TAIL
from toolkit.data.records import masked_crc32c, write_record
from toolkit.datasets.cifar import load_batch
from toolkit.datasets.pickles import load_lists

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
            file.write(npy(numbers(f"({300 << 20},)", "|u1")))
            for _ in range(300):
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


def elements(tree, buffers=(), packed=False, label='"x"', nested=0):
    data = FIRST_LINE.encode() + label.encode() + b"\n"
    offset = len(data)
    header = json.dumps([tree, [len(b) for b in buffers], packed]).encode()
    header = header.replace(b"[0", b"[" * (1 + nested) + b"0" + b"]" * nested, 1)
    checksum = zlib.crc32(header)
    body = b""
    for buffer in buffers:
        checksum = zlib.crc32(buffer, checksum)
        at = offset + HEAD.size + len(header) + len(body)
        body += b"\0" * (-at % 64) + buffer
    data += HEAD.pack(len(header), len(buffers), checksum) + header + body
    return data + struct.pack("<Q", offset) + TAIL.pack(len(data), 1, MARK)


ELEMENTS = {
    "objects without end": lambda: elements({"array": "object", "of": [[2**40], []]}),
    "an unknown kind": lambda: elements({"kind": "os.system", "of": "touch ran"}),
    "a dtype of objects": lambda: elements(
        {"array": "O", "of": [[1], 0]}, [b"12345678"]
    ),
    "a negative shape": lambda: elements({"array": "int8", "of": [[-5], 0]}, [b"1234"]),
    "zeros": lambda: elements(
        {"array": "uint8", "of": [[2**28], 0]}, [zlib.compress(ZEROS * 256)], True
    ),
    "lists in lists": lambda: elements(0, nested=100_000),
}
for words, content in ELEMENTS.items():

    def stored(folder, content=content):
        (folder / "elements.data").write_bytes(content())
        return lambda: list(Dataset.load(folder))

    attack(f"elements: {words}", stored)


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
    "a GIF of 4 gigapixels": b"GIF89a\xff\xff\xff\xff\0\0\0"
    b",\0\0\0\0\xff\xff\xff\xff\0\2\2D\1\0;",
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
