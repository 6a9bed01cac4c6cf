"""Structure check of an HDF5 file, before HDF5's library opens it.

The library trusts the numbers in a file, and some corrupt heaps and trees cause an
infinite loop. The check supports the structures that Keras, h5py and this package
write. These are a superblock of version 0, groups with trees and local heaps,
attributes, global heaps of strings, and contiguous, compact or chunked arrays. Each
address must be inside the file, each block must have the expected type, and blocks must
not overlap. A file with other structures is not corrupt; it is only unverifiable.

Reference: https://support.hdfgroup.org/documentation/hdf5/latest/_f_m_t3.html
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator

from toolkit.definitions.records import record
from toolkit.reading.hdf5_types import UnverifiableFile, datatype, extents

SIGNATURE = b"\x89HDF\r\n\x1a\n"
_NOWHERE = 2**64 - 1
_MAX_DEPTH = 32  # levels of a tree; nested groups have a limit 20 times higher
_MAX_GROUPS = 640


class CorruptFile(ValueError):
    """Error for a structure that no intact file has."""


@record
class Entry:
    """Name in a group, and the address of its object; `is_link`: a symbolic link."""

    name: bytes
    address: int
    is_link: bool


class Structure:
    """File structure; the check visits every block once.

    Args:
        read: a function (address, size) -> bytes, fewer at the end of the file.
        size: the size of the file in bytes.
    """

    def __init__(self, read: Callable[[int, int], bytes], size: int) -> None:
        self._read, self._size = read, size
        self._taken: dict[int, int] = {}
        self._heaps: dict[int, dict[int, int]] = {}

    def check(self) -> None:
        """Check the whole structure.

        Raises:
            CorruptFile: the file is certainly corrupt.
            UnverifiableFile: the file has an unsupported structure.
        """
        head = self._at(0, 96, "superblock")
        if head[:8] != SIGNATURE:
            raise CorruptFile("it does not begin as HDF5 files do")
        if head[8] != 0:
            raise UnverifiableFile(f"a superblock of version {head[8]}")
        if any(head[i] for i in (9, 10, 12)) or head[13:15] != b"\x08\x08":
            raise UnverifiableFile("a superblock of unusual sizes")
        leaves, nodes = struct.unpack_from("<HH", head, 16)
        base, free, end, driver = struct.unpack_from("<4Q", head, 24)
        if (base, free, driver) != (0, _NOWHERE, _NOWHERE):
            raise UnverifiableFile("a superblock that names other blocks")
        if not 0 < leaves <= 1024 or not 0 < nodes <= 1024:
            raise CorruptFile("groups are larger than any")
        if end > self._size:
            raise CorruptFile(
                f"it is truncated: of {end:,} bytes, {self._size:,} are there"
            )
        self._size = end
        self._leaves, self._nodes = leaves, nodes
        self._claim(0, 96)
        self._objects(head[56:96])
        self._overlaps()

    # --- blocks -----------------------------------------------------------------------

    def _at(self, address: int, size: int, what: str) -> bytes:
        if address + size > self._size:
            raise CorruptFile(f"a {what} at byte {address:,} is not in the file")
        data = self._read(address, size)
        if len(data) != size:
            raise CorruptFile(f"a {what} at byte {address:,} is not in the file")
        return data

    def _claim(self, address: int, size: int) -> None:
        if address in self._taken:
            raise CorruptFile(f"two blocks begin at byte {address:,}")
        if address + size > self._size:
            raise CorruptFile(f"a block at byte {address:,} is not in the file")
        self._taken[address] = size

    def _overlaps(self) -> None:
        end = 0
        for address, size in sorted(self._taken.items()):
            if address < end:
                raise CorruptFile(f"two blocks lie over each other at byte {address:,}")
            end = address + size

    # --- objects ----------------------------------------------------------------------

    def _objects(self, root: bytes) -> None:
        """Check all objects, from the root on."""
        if struct.unpack_from("<I", root, 16)[0] > 1:
            raise CorruptFile("the root is a link")
        waiting = [(struct.unpack_from("<Q", root, 8)[0], root, 0)]
        seen = set[int]()
        while waiting:
            address, entry, depth = waiting.pop()
            if address in seen:  # another name of an object
                continue
            seen.add(address)
            if depth > _MAX_GROUPS:
                raise UnverifiableFile("groups in groups in groups")
            table = self._object(address)
            cached, trees = struct.unpack_from("<I4xQQ", entry, 16)[0], entry[24:40]
            if cached == 1 and table != trees:
                raise CorruptFile("a group is described in two ways")
            if table is not None:
                for place in self._group(*struct.unpack("<QQ", table)):
                    waiting.append((*place, depth + 1))

    def _object(self, address: int) -> bytes | None:
        """Check an object; return the locations of its names if it is a group."""
        version, count, _, size = struct.unpack(
            "<BxHII4x", self._at(address, 16, "object")
        )
        if version != 1:
            raise UnverifiableFile(f"an object of version {version}")
        found: dict[int, bytes] = {}
        for kind, flags, data in self._messages(address, size, count):
            if flags & ~0b101:  # allows constant and not shared
                raise UnverifiableFile(f"flags {flags} of a message")
            if kind == 0x0C:
                self._attribute(data)
            elif kind not in _MESSAGES:
                raise UnverifiableFile(f"a message of kind {kind}")
            elif kind not in (0, 0x10):
                if kind in found:
                    raise CorruptFile(f"two messages of kind {kind}")
                found[kind] = data
        if 0x11 in found:
            if len(found[0x11]) < 16 or {1, 3, 8} & found.keys():
                raise CorruptFile("a group that is something else too")
            return found[0x11][:16]
        self._array(found)
        return None

    def _messages(
        self, address: int, size: int, count: int
    ) -> Iterator[tuple[int, int, bytes]]:
        """Yield the type, flags and data of each message of an object."""
        self._claim(address, 16 + size)
        blocks, seen = [self._at(address + 16, size, "object")], 0
        while blocks:
            block, place = blocks.pop(0), 0
            while place < len(block):
                if place + 8 > len(block):
                    raise CorruptFile("a message is cut off")
                kind, length, flags = struct.unpack_from("<HHB", block, place)
                place += 8 + length
                if place > len(block) or length % 8:
                    raise CorruptFile("a message is longer than its object")
                data = block[place - length : place]
                seen += 1
                if kind == 0x10:
                    start, more = struct.unpack_from("<QQ", data.ljust(16, b"\xff"))
                    self._claim(start, more)
                    blocks.append(self._at(start, more, "continuation"))
                yield kind, flags, data
        if seen != count:
            raise CorruptFile(f"an object has {seen} messages, not {count}")

    # --- groups -----------------------------------------------------------------------

    def _group(self, tree: int, heap: int) -> Iterator[tuple[int, bytes]]:
        """Yield the address and the entry of each object in a group."""
        names = self._heap(heap)
        last = b""
        for leaf in self._leaves_of(tree):
            head = self._at(leaf, 8, "list of names")
            signature, version, count = struct.unpack("<4sBxH", head)
            if signature != b"SNOD" or version != 1 or count > 2 * self._leaves:
                raise CorruptFile(f"there is no list of names at byte {leaf:,}")
            self._claim(leaf, 8 + 80 * self._leaves)
            entries = self._at(leaf + 8, 40 * count, "list of names")
            for start in range(0, len(entries), 40):
                entry = entries[start : start + 40]
                name = _name(names, struct.unpack_from("<Q", entry)[0])
                if name <= last:
                    raise CorruptFile("names are out of order")
                last = name
                kind = struct.unpack_from("<I", entry, 16)[0]
                if kind == 2:
                    _name(names, struct.unpack_from("<I", entry, 24)[0])
                elif kind < 2:
                    yield struct.unpack_from("<Q", entry, 8)[0], entry
                else:
                    raise CorruptFile(f"a name of kind {kind}")

    def _heap(self, address: int) -> bytes:
        """Return the text of a local heap with a finite free list."""
        head = self._at(address, 32, "heap")
        signature, size, gap, start = struct.unpack("<4s4xQQQ", head)
        if signature != b"HEAP" or head[4]:
            raise CorruptFile(f"there is no heap at byte {address:,}")
        self._claim(address, 32)
        self._claim(start, size)
        data, last = self._at(start, size, "heap"), -1
        while gap != 1:
            if gap <= last or gap % 8 or gap + 16 > size:
                raise CorruptFile("the gaps in a heap")
            last = gap
            gap, length = struct.unpack_from("<QQ", data, gap)
            if length < 16 or last + length > size:
                raise CorruptFile("the gaps in a heap")
        return data

    def _leaves_of(self, root: int) -> list[int]:
        """Yield the symbol table nodes of a tree, in order."""
        size = 24 + 2 * self._nodes * 16 + 8
        return [child for _, child in self._tree(root, 0, 8, size, 2 * self._nodes)]

    def _tree(
        self, root: int, kind: int, key: int, size: int, most: int
    ) -> Iterator[tuple[bytes, int]]:
        """Yield the key and address of each leaf entry of a tree.

        Nodes of a level are linked to their siblings; the chain must match.
        """
        level, places = None, [root]
        while places:
            below: list[int] = []
            for i, place in enumerate(places):
                node = self._at(place, size, "tree")
                head = struct.unpack_from("<4sBBHQQ", node)
                signature, found, depth, count, left, right = head
                beside = [_NOWHERE, *places, _NOWHERE][i : i + 3]
                if signature != b"TREE" or found != kind or count > most:
                    raise CorruptFile(f"there is no tree at byte {place:,}")
                if depth > _MAX_DEPTH or level not in (None, depth):
                    raise CorruptFile(f"a tree at byte {place:,} of a wrong depth")
                if [left, right] != [beside[0], beside[2]]:
                    raise CorruptFile(f"a tree at byte {place:,} with other neighbours")
                level = depth if level is None else level
                self._claim(place, size)
                for j in range(count):
                    at = 24 + j * (key + 8)
                    child = struct.unpack_from("<Q", node, at + key)[0]
                    if depth:
                        below.append(child)
                    else:
                        yield node[at : at + key], child
            level = None if level is None else level - 1
            places = below

    # --- arrays and attributes --------------------------------------------------------

    def _attribute(self, data: bytes) -> None:
        version, flags, name, kind, space = struct.unpack_from(
            "<BBHHH", data.ljust(8, b"\0")
        )
        if version not in (1, 2, 3) or flags:
            raise UnverifiableFile(f"an attribute of version {version}")
        place = 9 if version == 3 else 8
        parts = []
        for size in (name, kind, space):
            parts.append(data[place : place + size])
            place += -(-size // 8) * 8 if version == 1 else size
        if place > len(data) or not name or b"\0" not in parts[0]:
            raise CorruptFile("an attribute is cut off")
        found, count = datatype(parts[1]), 1
        for extent in extents(parts[2]):
            count *= extent
        values = data[place : place + count * found.size]
        if len(values) != count * found.size:
            raise CorruptFile("an attribute is cut off")
        if found.is_variable:
            for start in range(0, len(values), 16):
                self._string(*struct.unpack_from("<IQI", values, start))

    def _string(self, length: int, heap: int, index: int) -> None:
        """Check a variable-length value, which is stored in a global heap."""
        if heap in (0, _NOWHERE):
            if length:
                raise CorruptFile("a string that is nowhere")
            return
        if heap not in self._heaps:
            self._heaps[heap] = self._collection(heap)
        # The library allocates this length before it checks the heap.
        if length > self._heaps[heap].get(index, -1):
            raise CorruptFile("a string that is nowhere, or longer than what is there")

    def _collection(self, address: int) -> dict[int, int]:
        """Return the size of each object in a global heap, by its index."""
        signature, version, size = struct.unpack(
            "<4sB3xQ", self._at(address, 16, "heap")
        )
        if signature != b"GCOL" or version != 1 or size < 4096:
            raise CorruptFile(f"there is no heap at byte {address:,}")
        self._claim(address, size)
        data, place = self._at(address, size, "heap"), 16
        found: dict[int, int] = {}
        while place + 16 <= size:
            index, length = struct.unpack_from("<H6xQ", data, place)
            if index == 0:  # free space
                if length != size - place:
                    raise CorruptFile(f"the gap in a heap at byte {address:,}")
                return found
            place += 16 + -(-length // 8) * 8
            if index in found or place > size or not length:
                raise CorruptFile(f"what is in a heap at byte {address:,}")
            found[index] = length
        return found

    def _array(self, found: dict[int, bytes]) -> None:
        if not {1, 3, 8} <= found.keys():
            raise UnverifiableFile("an object that is neither group nor array")
        shape, kind = extents(found[1]), datatype(found[3])
        if kind.is_variable:
            raise UnverifiableFile("an array of elements of different lengths")
        count = 1
        for extent in shape:
            count *= extent
        if 0x0B in found:
            _filters(found[0x0B])
        if 0x05 in found:
            _fill(found[0x05], kind.size)
        layout = found[8]
        if layout[0] != 3 or layout[1] > 2:
            raise UnverifiableFile(f"an array laid out by version {layout[0]}")
        if layout[1] == 0:
            size = struct.unpack_from("<H", layout, 2)[0]
            if size != count * kind.size or size + 4 > len(layout):
                raise CorruptFile("a compact array of another size")
        elif layout[1] == 1:
            start, size = struct.unpack_from("<QQ", layout.ljust(18, b"\0"), 2)
            if start != _NOWHERE and (
                start + size > self._size or size != count * kind.size
            ):
                raise CorruptFile("an array that is not in the file")
        else:
            self._chunks(layout, shape, kind.size)

    def _chunks(self, layout: bytes, shape: list[int], item: int) -> None:
        rank = layout[2]
        if rank != len(shape) + 1 or len(layout) < 11 + 4 * rank:
            raise CorruptFile("chunks of another number of axes")
        (tree,) = struct.unpack_from("<Q", layout, 3)
        sizes = struct.unpack_from(f"<{rank}I", layout, 11)
        if sizes[-1] != item or 0 in sizes:
            raise CorruptFile("chunks of another size")
        if tree == _NOWHERE:
            return
        key, most = 8 + 8 * rank, 64
        size, seen = 24 + most * 8 + (most + 1) * key, set[bytes]()
        for place, address in self._tree(tree, 1, key, size, most):
            length = struct.unpack_from("<I", place)[0]
            corner = struct.unpack_from(f"<{rank}Q", place, 8)
            if any(c % s for c, s in zip(corner[:-1], sizes, strict=False)):
                raise CorruptFile("a chunk between others")
            if place[8:] in seen or address + length > self._size:
                raise CorruptFile("a chunk that is not in the file")
            seen.add(place[8:])


# NIL; dataspace; datatype; fill value, old and new; layout; filters; attribute;
# comment; continuation; symbol table; modification time.
_MESSAGES = {0, 1, 3, 4, 5, 8, 0x0B, 0x0C, 0x0D, 0x10, 0x11, 0x12}
_FILTERS = {1, 2, 3, 32_000}  # deflate, shuffle, a checksum, LZF


def _name(names: bytes, place: int) -> bytes:
    end = names.find(b"\0", place)
    if end < 0 or place >= len(names):
        raise CorruptFile("a name that is nowhere")
    return names[place:end]


def _filters(data: bytes) -> None:
    version, count = struct.unpack_from("<BB", data)
    if version != 1 or not 0 < count <= 32:
        raise UnverifiableFile("filters of another version")
    place = 8
    for _ in range(count):
        kind, name, _, values = struct.unpack_from("<4H", data.ljust(place + 8), place)
        if kind not in _FILTERS:
            raise UnverifiableFile(f"a filter of kind {kind}")
        place += 8 + -(-name // 8) * 8 + 4 * values + 4 * (values % 2)
        if place > len(data):
            raise CorruptFile("filters are cut off")


def _fill(data: bytes, item: int) -> None:
    """Check a fill value."""
    if data[0] not in (1, 2):
        raise UnverifiableFile("a fill value of another version")
    if data[0] == 2 and not data[3]:
        return
    (size,) = struct.unpack_from("<I", data.ljust(8, b"\xff"), 4)
    if size not in (0, item) or size + 8 > len(data):
        raise CorruptFile("a fill value of another size")
