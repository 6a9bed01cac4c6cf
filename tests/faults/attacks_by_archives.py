"""Attacks by archives of data for `get_file`."""

import bz2
import gzip
import io
import os
import tarfile
import zipfile

import toolkit as tk
from tests.faults.attack_list import ZEROS, attack
from tests.faults.attacks_on_zips import info

# --- archives of data -----------------------------------------------------------------


def fetched(folder, path):
    def read():
        extracted = tk.utils.get_file(
            "data", f"file://{path}", extract=True, cache_dir=folder / "cache"
        )
        return sorted(os.listdir(extracted))

    return read


def member(name, content=b"x", **fields):
    info = tarfile.TarInfo(name)
    info.size = len(content)
    for key, value in fields.items():
        setattr(info, key, value)
    return info, io.BytesIO(content)


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
            for info, file in content:
                file.seek(0)
                archive.addfile(info, file)
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
    """Return a tar whose first member continues with a gigabyte of zeros."""
    packed = folder / "a.tar.packed"
    if pack is gzip:
        with gzip.open(packed, "wb", 1) as file:
            file.write(head)
            for _ in range(300):
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
    info, file = member("a", b"0\n".ljust(512, b"\0"), pax_headers=fields)
    with tarfile.open(folder / "a.tar", "w", format=tarfile.PAX_FORMAT) as archive:
        archive.addfile(info, file)
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
            for _ in range(300):
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
