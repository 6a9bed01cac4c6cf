"""Attacks by ZIP files with bad members, as `.keras` files."""

import zipfile

from tests.faults.attack_list import ZEROS, attack
from tests.faults.formats import (
    read_model,
    small_model,
)

# --- .keras: the ZIP ------------------------------------------------------------------


def members_of(folder, make=small_model):
    make().save(folder / "good.keras")
    with zipfile.ZipFile(folder / "good.keras") as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def zipped(folder, members, method=zipfile.ZIP_DEFLATED, change=None):
    """Write a `.keras` file of (name or ZipInfo, content) pairs."""
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
    info = zipfile.ZipInfo(name)
    for key, value in fields.items():
        setattr(info, key, value)
    return info


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
    extra = [(f"assets/{i}", b"") for i in range(20_000)]
    return zipped(folder, [*members.items(), *extra])


@attack("zip member that is encrypted")
def _(folder):
    def change(data):
        offset = data.rindex(b"PK\x01\x02")
        return data[: offset + 8] + b"\x01" + data[offset + 9 :]

    return zipped(folder, members_of(folder).items(), change=change)


@attack("zip member that declares 4 GB")
def _(folder):
    def change(data):
        offset = data.rindex(b"PK\x01\x02")
        return data[: offset + 24] + b"\xfe\xff\xff\xff" + data[offset + 28 :]

    return zipped(folder, members_of(folder).items(), change=change)


@attack("zip with a file where a folder is")
def _(folder):
    extra = [("assets/a", b"x"), ("assets/a/b", b"y")]
    return zipped(folder, [*members_of(folder).items(), *extra])
