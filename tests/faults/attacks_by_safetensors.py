"""Attacks by safetensors with false headers, and manifests that name other files."""

import json
import os

from tests.faults.attack_list import attack
from tests.faults.formats import inspect, read_weights, save_safetensors
from tests.reading.hostile_safetensors import HOSTILE

for name, (data, _) in HOSTILE.items():
    for kind, read in (("weights", read_weights), ("inspect", inspect)):

        def hostile(folder, data=data, read=read):
            path = folder / "m.safetensors"
            path.write_bytes(data)
            return lambda: read(path)

        # A report of `inspect` about a refused file is accepted, too.
        attack(f"safetensors, {kind}: {name}", hostile, read is inspect)


# --- lists ----------------------------------------------------------------------------

LIST = "m.safetensors.index.json"


def listed(change):
    """Register an attack by a valid manifest with one change."""

    def make(folder):
        save_safetensors(folder / LIST)
        change(folder)
        return lambda: read_weights(folder / LIST)

    return make


def names(name):
    def change(folder):
        index_of_names = json.loads((folder / LIST).read_text())
        index_of_names["weight_map"]["hidden/kernel"] = name
        (folder / LIST).write_text(json.dumps(index_of_names))

    return listed(change)


for name in (
    *("../m.safetensors", "/etc/passwd", "/etc/passwd\0.safetensors", "a/../x", ".."),
    *("a\\b.safetensors", "C:x.safetensors", "", "\0", LIST, "secret.txt", "~", "."),
    *(3, None, [], {}, True, ["m.safetensors"], "x" * 5000 + ".safetensors"),
    "\ud800.safetensors",
):
    attack(f"list of safetensors names {str(name)[:30]!r}", names(name))


def first_is(replace):
    def change(folder):
        path = min(folder.glob("m-00001-*"))
        path.unlink()
        replace(path)

    return listed(change)


REPLACEMENTS = {
    "a link to a secret": lambda path: path.symlink_to(path.with_name("secret.txt")),
    "a link to a file of the system": lambda path: path.symlink_to("/etc/passwd"),
    "a link to a device": lambda path: path.symlink_to("/dev/zero"),
    "a link to itself": lambda path: path.symlink_to(path.name),
    "a pipe": os.mkfifo,
    "a folder": os.mkdir,
    "nothing": lambda path: None,
    "a pickle": lambda path: path.write_bytes(HOSTILE["a pickle"][0]),
}
for name, replace in REPLACEMENTS.items():
    attack(f"a listed file is {name}", first_is(replace))


def list_is(text):
    return listed(lambda folder: (folder / LIST).write_bytes(text))


LISTS = {
    "lists in lists": b"[" * 10**6,
    "many objects": b'{"weight_map": {' + b'"a": {}, ' * 10**6 + b'"b": ""}}',
    "many files": json.dumps(
        {"weight_map": {str(n): f"{n}.safetensors" for n in range(10**5)}}
    ).encode(),
    "longer than any": b" " * (33 << 20),
    "no UTF-8": b'{"weight_map": {"\xff": "m.safetensors"}}',
    "a pickle": HOSTILE["a pickle"][0],
}
for name, text in LISTS.items():
    attack(f"list of safetensors: {name}", list_is(text))


@attack("list of safetensors that is a device")
def _(folder):
    (folder / LIST).symlink_to("/dev/zero")
    return lambda: read_weights(folder / LIST)


@attack("list of safetensors that is a pipe")
def _(folder):
    os.mkfifo(folder / LIST)
    return lambda: read_weights(folder / LIST)
