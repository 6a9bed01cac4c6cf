"""Corrupt files: any bytes, and packed content with valid checksums."""

import contextlib
import gzip
import io
import json
import random
import zipfile
import zlib

from toolkit.data.records import write_record

EXTREMES = (0, 1, 2, 0x7F, 0x80, 0xFF, 2**16, 2**31 - 1, 2**31, 2**32 - 1)
EXTREMES += (2**40, 2**62, 2**63 - 1, 2**63, 2**64 - 1)
WORDS = (None, True, -1, 0, 1, 3, 2**31, 2**40, 2**70, 1e308, -1.5, "", "x", "../x")
WORDS += ([], {}, [[]], [None], {"a": 1}, "\x1b]0;x\x07", "__import__('os')", "N" * 9)


# --- bytes ----------------------------------------------------------------------------


def flip(data, chance):
    offset = chance.randrange(len(data))
    data[offset] ^= 1 << chance.randrange(8)


def replace_bytes(data, chance):
    """Replace bytes several times."""
    for _ in range(chance.randint(1, 8)):
        data[chance.randrange(len(data))] = chance.choice((0, 1, 0x7F, 0x80, 0xFF))


def number(data, chance):
    """Write a number of 2, 4 or 8 bytes that is far from the old value."""
    size = chance.choice((2, 4, 8))
    value = chance.choice(EXTREMES) % 2 ** (8 * size)
    offset = chance.randrange(max(1, len(data) - size)) & -chance.choice((1, 4, 8))
    data[offset : offset + size] = value.to_bytes(
        size, chance.choice(("little", "big"))
    )


def near(data, chance):
    """Write a number of 4 bytes that is a little larger or smaller."""
    offset = chance.randrange(max(1, len(data) - 4)) & -4
    value = int.from_bytes(data[offset : offset + 4], "little")
    data[offset : offset + 4] = ((value + chance.randint(-9, 9)) % 2**32).to_bytes(
        4, "little"
    )


def cut(data, chance):
    del data[chance.randrange(len(data)) :]


def drop(data, chance):
    start = chance.randrange(len(data))
    del data[start : start + chance.randint(1, 64)]


def blank(data, chance):
    start = chance.randrange(len(data))
    stretch = data[start : start + chance.randint(1, 256)]
    data[start : start + len(stretch)] = bytes([chance.choice((0, 255))]) * len(stretch)


def repeat(data, chance):
    start = chance.randrange(len(data))
    piece = data[start : start + chance.randint(1, 128)]
    data[start:start] = piece * chance.randint(1, 3)


def move(data, chance):
    """Copy bytes over other bytes, for example an address over another address."""
    size = chance.choice((4, 8, 8, 8, 32))
    start, end = (chance.randrange(max(1, len(data) - size)) & -4 for _ in range(2))
    data[end : end + size] = data[start : start + size]


def append(data, chance):
    data += chance.randbytes(chance.randint(1, 64))


BYTES = (
    flip,
    flip,
    replace_bytes,
    number,
    number,
    near,
    cut,
    drop,
    blank,
    repeat,
    move,
    append,
)


def damaged(data, chance):
    """Return the bytes of a file after one to three mutations."""
    data = bytearray(data)
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        if data:
            chance.choice(BYTES)(data, chance)
    return bytes(data)


# --- packed content -------------------------------------------------------------------


def items_of(value):
    """Yield (container, key) of all values in lists and dicts."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in list(pairs):
        yield value, key
        if isinstance(item, (dict, list)):
            yield from items_of(item)


def mutate_json(data, chance):
    """Replace one or several values of a config."""
    value = json.loads(data)
    for _ in range(chance.choice((1, 1, 2))):
        items = list(items_of(value))
        if not items:
            break
        container, key = chance.choice(items)
        other, other_key = chance.choice(items)
        action = chance.randrange(4)
        if action == 0:
            del container[key]
        elif action == 1:
            container[key] = json.loads(json.dumps(other[other_key]))
        elif action == 2 and isinstance(container, dict):
            container[str(chance.choice(WORDS))] = container.pop(key)
        else:
            container[key] = chance.choice(WORDS)
    return json.dumps(value).encode()


def mutate_zip(data, chance, kinds=None):
    """Return a ZIP with one corrupt member that has a valid checksum."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    name = chance.choice(list(members))
    change = mutate_json if name.endswith(".json") else damaged
    if chance.random() < 0.1:
        change = damaged
    members[name] = change(members[name], chance)
    if chance.random() < 0.05:
        members[chance.choice(("a", "../a", "/a", "a/../b", "C:a"))] = b"a"
    if chance.random() < 0.05:
        members.pop(chance.choice(list(members)))
    packed = io.BytesIO()
    method = chance.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))
    with zipfile.ZipFile(packed, "w", method) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return packed.getvalue()


def damaged_safetensors(data, chance):
    """Return a file with a different header of the correct length."""
    size = int.from_bytes(data[:8], "little")
    header, values = data[8 : 8 + size], data[8 + size :]
    change = chance.choice((mutate_json, mutate_json, moved, moved, damaged))
    header = change(header, chance)
    return len(header).to_bytes(8, "little") + header + values


def moved(header, chance):
    """Change offsets, extents or dtypes of a header to plausible values."""
    rows = json.loads(header)
    for _ in range(chance.choice((1, 1, 2))):
        row = chance.choice(list(rows.values()))
        key = chance.choice(list(row))
        if key == "dtype":
            row[key] = chance.choice(("F64", "I8", "BOOL", "BF16", "C64", "F8_E4M3"))
        elif row[key]:
            offset = chance.randrange(len(row[key]))
            near = row[key][offset] + chance.choice((-8, -4, -1, 1, 4, 8))
            row[key][offset] = chance.choice((near, near, *EXTREMES, -1))
        if chance.random() < 0.2:
            row["shape"] = row["shape"][::-1] + [1] * chance.choice((0, 1, 40))
    return json.dumps(rows).encode()


def damaged_gzip(data, chance):
    return gzip.compress(damaged(gzip.decompress(data), chance), 1)


def damaged_record(data, chance):
    """Return a corrupt record with valid checksums."""
    file = io.BytesIO()
    length = int.from_bytes(data[:8], "little")
    write_record(file, damaged(data[12 : 12 + length], chance))
    return file.getvalue() + data[16 + length :]


def mutate_png(data, chance):
    """Return a PNG with a corrupt chunk that has a valid checksum."""
    out, offset = bytearray(data[:8]), 8
    chunks = []
    while offset < len(data):
        size = int.from_bytes(data[offset : offset + 4], "big")
        chunks.append(
            (data[offset + 4 : offset + 8], data[offset + 8 : offset + 8 + size])
        )
        offset += size + 12
    hit = chance.randrange(len(chunks))
    for i, (name, content) in enumerate(chunks):
        if i == hit:
            content = damaged(content, chance) if content else chance.randbytes(9)
        out += len(content).to_bytes(4, "big") + name + content
        out += zlib.crc32(name + content).to_bytes(4, "big")
    return bytes(out)


def messages_in(message):
    """Return a message of Protocol Buffers and all nested messages."""
    yield message
    for field, value in message.ListFields():
        if field.message_type is not None:
            repeated = hasattr(value, "add")
            for inner in value if repeated else [value]:
                yield from messages_in(inner)


def damaged_field(message, chance):
    """Replace the value of one field of a message."""
    fields = [(f, v) for f, v in message.ListFields() if f.message_type is None]
    if not fields:
        return
    field, value = chance.choice(fields)
    repeated = hasattr(value, "append")
    if field.name in ("raw_data", "float_data", "int64_data") and chance.random() < 0.8:
        return
    if repeated and chance.random() < 0.4:
        items = list(value)
        chance.shuffle(items)
        del value[:]
        value.extend(items[: chance.randint(0, len(items))] + items[:1])
        return
    old = value[0] if repeated and len(value) else value
    if isinstance(old, str):
        new = chance.choice((*OPERATORS, "", "x", "../x", old + "_"))
    elif isinstance(old, bytes):
        new = damaged(old, chance) if old else b"x"
    elif isinstance(old, float):
        new = chance.choice((0.0, -1.0, 1e30, float("inf"), float("nan")))
    else:
        new = chance.choice((0, 1, -1, 2, 3, 7, 16, 2**20, 2**40, -(2**63), old + 1))
        new = min(max(new, -(2**31)), 2**31 - 1) if field.name in SMALL else new
    with contextlib.suppress(ValueError, TypeError):
        if repeated:
            value[chance.randrange(len(value))] = new
        else:
            setattr(message, field.name, new)


SMALL = ("data_type", "elem_type", "data_location", "type")
OPERATORS = ("Add", "MatMul", "Conv", "Reshape", "Expand", "Tile", "Gather", "Concat")
OPERATORS += ("LSTM", "Transpose", "Slice", "Pad", "Range", "ConstantOfShape", "Resize")
OPERATORS += ("ReduceSum", "Softmax", "Shape", "Squeeze", "OneHot", "Where", "Cast")
OPERATORS += ("ScatterND", "GatherND", "Einsum", "TopK", "Split", "MaxPool", "Trilu")


def mutate_onnx(data, chance):
    """Return an ONNX file with wrong fields in valid messages."""
    import onnx

    model = onnx.ModelProto.FromString(data)
    messages = list(messages_in(model))
    for _ in range(chance.choice((1, 1, 2, 4))):
        damaged_field(chance.choice(messages), chance)
    nodes = model.graph.node
    if chance.random() < 0.2 and len(nodes) > 1:
        a, b = chance.sample(range(len(nodes)), 2)
        nodes[a].input.extend(nodes[b].output[:1])
    if chance.random() < 0.1:
        chance.choice(nodes).op_type = chance.choice(OPERATORS)
    return model.SerializeToString()


def seeded(*words):
    """Return a separate source of random numbers for each case."""
    return random.Random(repr(words))
