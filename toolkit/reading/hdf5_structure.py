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
from toolkit.reading.hdf5_types import UnverifiableFile, parse_datatype, parse_extents

SIGNATURE = b"\x89HDF\r\n\x1a\n"
_UNDEFINED_ADDRESS = 2**64 - 1
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
        self._blocks: dict[int, int] = {}
        self._heaps: dict[int, dict[int, int]] = {}

    def check(self) -> None:
        """Check the whole structure.

        Raises:
            CorruptFile: the file is certainly corrupt.
            UnverifiableFile: the file has an unsupported structure.
        """
        superblock = self._read_block(0, 96, "superblock")
        if superblock[:8] != SIGNATURE:
            raise CorruptFile("it does not start with the signature of HDF5")
        if superblock[8] != 0:
            raise UnverifiableFile(f"unsupported superblock version {superblock[8]}")
        if any(superblock[i] for i in (9, 10, 12)) or superblock[13:15] != b"\x08\x08":
            raise UnverifiableFile("unsupported sizes in the superblock")
        leaf_k, internal_k = struct.unpack_from("<HH", superblock, 16)
        base, free, end, driver = struct.unpack_from("<4Q", superblock, 24)
        if (base, free, driver) != (0, _UNDEFINED_ADDRESS, _UNDEFINED_ADDRESS):
            raise UnverifiableFile("the superblock refers to other blocks")
        if not 0 < leaf_k <= 1024 or not 0 < internal_k <= 1024:
            raise CorruptFile("groups are too large")
        if end > self._size:
            raise CorruptFile(
                f"it is truncated: of {end:,} bytes, {self._size:,} are there"
            )
        self._size = end
        self._leaf_k, self._internal_k = leaf_k, internal_k
        self._claim_block(0, 96)
        self._check_objects(superblock[56:96])
        self._check_overlaps()

    # --- blocks -----------------------------------------------------------------------

    def _read_block(self, address: int, size: int, kind: str) -> bytes:
        if address + size > self._size:
            raise CorruptFile(f"a {kind} at byte {address:,} is not in the file")
        data = self._read(address, size)
        if len(data) != size:
            raise CorruptFile(f"a {kind} at byte {address:,} is not in the file")
        return data

    def _claim_block(self, address: int, size: int) -> None:
        if address in self._blocks:
            raise CorruptFile(f"two blocks start at byte {address:,}")
        if address + size > self._size:
            raise CorruptFile(f"a block at byte {address:,} is not in the file")
        self._blocks[address] = size

    def _check_overlaps(self) -> None:
        end = 0
        for address, size in sorted(self._blocks.items()):
            if address < end:
                raise CorruptFile(f"two blocks overlap at byte {address:,}")
            end = address + size

    # --- objects ----------------------------------------------------------------------

    def _check_objects(self, root: bytes) -> None:
        """Check all objects, from the root on."""
        if struct.unpack_from("<I", root, 16)[0] > 1:
            raise CorruptFile("the root is a link")
        pending = [(struct.unpack_from("<Q", root, 8)[0], root, 0)]
        visited = set[int]()
        while pending:
            address, entry, depth = pending.pop()
            if address in visited:  # another name of an object
                continue
            visited.add(address)
            if depth > _MAX_GROUPS:
                raise UnverifiableFile("too many nested groups")
            table = self._check_object(address)
            cached, trees = struct.unpack_from("<I4xQQ", entry, 16)[0], entry[24:40]
            if cached == 1 and table != trees:
                raise CorruptFile("a group has two descriptions")
            if table is not None:
                for child in self._read_group(*struct.unpack("<QQ", table)):
                    pending.append((*child, depth + 1))

    def _check_object(self, address: int) -> bytes | None:
        """Check an object; return the locations of its names if it is a group."""
        version, count, _, size = struct.unpack(
            "<BxHII4x", self._read_block(address, 16, "object")
        )
        if version != 1:
            raise UnverifiableFile(f"unsupported object version {version}")
        messages: dict[int, bytes] = {}
        for kind, flags, data in self._read_messages(address, size, count):
            if flags & ~0b101:  # allows constant and not shared
                raise UnverifiableFile(f"flags {flags} of a message")
            if kind == 0x0C:
                self._check_attribute(data)
            elif kind not in _MESSAGES:
                raise UnverifiableFile(f"a message of kind {kind}")
            elif kind not in (0, 0x10):
                if kind in messages:
                    raise CorruptFile(f"two messages of kind {kind}")
                messages[kind] = data
        if 0x11 in messages:
            if len(messages[0x11]) < 16 or {1, 3, 8} & messages.keys():
                raise CorruptFile("an object is a group and also another type")
            return messages[0x11][:16]
        self._check_array(messages)
        return None

    def _read_messages(
        self, address: int, size: int, count: int
    ) -> Iterator[tuple[int, int, bytes]]:
        """Yield the type, flags and data of each message of an object."""
        self._claim_block(address, 16 + size)
        blocks, num_messages = [self._read_block(address + 16, size, "object")], 0
        while blocks:
            block, offset = blocks.pop(0), 0
            while offset < len(block):
                if offset + 8 > len(block):
                    raise CorruptFile("a message is truncated")
                kind, length, flags = struct.unpack_from("<HHB", block, offset)
                offset += 8 + length
                if offset > len(block) or length % 8:
                    raise CorruptFile("a message is longer than its object")
                data = block[offset - length : offset]
                num_messages += 1
                if kind == 0x10:
                    start, nbytes = struct.unpack_from("<QQ", data.ljust(16, b"\xff"))
                    self._claim_block(start, nbytes)
                    blocks.append(self._read_block(start, nbytes, "continuation"))
                yield kind, flags, data
        if num_messages != count:
            raise CorruptFile(f"an object has {num_messages} messages, not {count}")

    # --- groups -----------------------------------------------------------------------

    def _read_group(self, tree: int, heap: int) -> Iterator[tuple[int, bytes]]:
        """Yield the address and the entry of each object in a group."""
        names = self._read_local_heap(heap)
        previous = b""
        for leaf in self._find_leaves(tree):
            header = self._read_block(leaf, 8, "list of names")
            signature, version, count = struct.unpack("<4sBxH", header)
            if signature != b"SNOD" or version != 1 or count > 2 * self._leaf_k:
                raise CorruptFile(f"missing list of names at byte {leaf:,}")
            self._claim_block(leaf, 8 + 80 * self._leaf_k)
            entries = self._read_block(leaf + 8, 40 * count, "list of names")
            for start in range(0, len(entries), 40):
                entry = entries[start : start + 40]
                name = _read_name(names, struct.unpack_from("<Q", entry)[0])
                if name <= previous:
                    raise CorruptFile("names are out of order")
                previous = name
                kind = struct.unpack_from("<I", entry, 16)[0]
                if kind == 2:
                    _read_name(names, struct.unpack_from("<I", entry, 24)[0])
                elif kind < 2:
                    yield struct.unpack_from("<Q", entry, 8)[0], entry
                else:
                    raise CorruptFile(f"a name of kind {kind}")

    def _read_local_heap(self, address: int) -> bytes:
        """Return the text of a local heap with a finite free list."""
        header = self._read_block(address, 32, "heap")
        signature, size, free, start = struct.unpack("<4s4xQQQ", header)
        if signature != b"HEAP" or header[4]:
            raise CorruptFile(f"missing heap at byte {address:,}")
        self._claim_block(address, 32)
        self._claim_block(start, size)
        data, previous = self._read_block(start, size, "heap"), -1
        while free != 1:
            if free <= previous or free % 8 or free + 16 > size:
                raise CorruptFile("the gaps in a heap")
            previous = free
            free, length = struct.unpack_from("<QQ", data, free)
            if length < 16 or previous + length > size:
                raise CorruptFile("the gaps in a heap")
        return data

    def _find_leaves(self, root: int) -> list[int]:
        """Yield the symbol table nodes of a tree, in order."""
        size = 24 + 2 * self._internal_k * 16 + 8
        return [
            child
            for _, child in self._walk_tree(root, 0, 8, size, 2 * self._internal_k)
        ]

    def _walk_tree(
        self, root: int, kind: int, key_size: int, size: int, max_count: int
    ) -> Iterator[tuple[bytes, int]]:
        """Yield the key and address of each leaf entry of a tree.

        Nodes of a level are linked to their siblings; the chain must match.
        """
        level, addresses = None, [root]
        while addresses:
            children: list[int] = []
            for i, address in enumerate(addresses):
                node = self._read_block(address, size, "tree")
                header = struct.unpack_from("<4sBBHQQ", node)
                signature, node_kind, depth, count, left_sibling, right_sibling = header
                siblings = [_UNDEFINED_ADDRESS, *addresses, _UNDEFINED_ADDRESS][
                    i : i + 3
                ]
                if signature != b"TREE" or node_kind != kind or count > max_count:
                    raise CorruptFile(f"missing tree at byte {address:,}")
                if depth > _MAX_DEPTH or level not in (None, depth):
                    raise CorruptFile(f"a tree at byte {address:,} of a wrong depth")
                if [left_sibling, right_sibling] != [siblings[0], siblings[2]]:
                    raise CorruptFile(
                        f"a tree at byte {address:,} with other neighbours"
                    )
                level = depth if level is None else level
                self._claim_block(address, size)
                for j in range(count):
                    offset = 24 + j * (key_size + 8)
                    child = struct.unpack_from("<Q", node, offset + key_size)[0]
                    if depth:
                        children.append(child)
                    else:
                        yield node[offset : offset + key_size], child
            level = None if level is None else level - 1
            addresses = children

    # --- arrays and attributes --------------------------------------------------------

    def _check_attribute(self, data: bytes) -> None:
        version, flags, name, kind, space = struct.unpack_from(
            "<BBHHH", data.ljust(8, b"\0")
        )
        if version not in (1, 2, 3) or flags:
            raise UnverifiableFile(f"unsupported attribute version {version}")
        offset = 9 if version == 3 else 8
        fields = []
        for size in (name, kind, space):
            fields.append(data[offset : offset + size])
            offset += -(-size // 8) * 8 if version == 1 else size
        if offset > len(data) or not name or b"\0" not in fields[0]:
            raise CorruptFile("an attribute is truncated")
        element_type, count = parse_datatype(fields[1]), 1
        for extent in parse_extents(fields[2]):
            count *= extent
        values = data[offset : offset + count * element_type.size]
        if len(values) != count * element_type.size:
            raise CorruptFile("an attribute is truncated")
        if element_type.is_variable:
            for start in range(0, len(values), 16):
                self._check_string(*struct.unpack_from("<IQI", values, start))

    def _check_string(self, length: int, heap: int, index: int) -> None:
        """Check a variable-length value, which is stored in a global heap."""
        if heap in (0, _UNDEFINED_ADDRESS):
            if length:
                raise CorruptFile("a string is missing")
            return
        if heap not in self._heaps:
            self._heaps[heap] = self._read_global_heap(heap)
        # The library allocates this length before it checks the heap.
        if length > self._heaps[heap].get(index, -1):
            raise CorruptFile("a string is missing or is longer than its data")

    def _read_global_heap(self, address: int) -> dict[int, int]:
        """Return the size of each object in a global heap, by its index."""
        signature, version, size = struct.unpack(
            "<4sB3xQ", self._read_block(address, 16, "heap")
        )
        if signature != b"GCOL" or version != 1 or size < 4096:
            raise CorruptFile(f"missing heap at byte {address:,}")
        self._claim_block(address, size)
        data, offset = self._read_block(address, size, "heap"), 16
        sizes: dict[int, int] = {}
        while offset + 16 <= size:
            index, length = struct.unpack_from("<H6xQ", data, offset)
            if index == 0:  # free space
                if length != size - offset:
                    raise CorruptFile(f"the gap in a heap at byte {address:,}")
                return sizes
            offset += 16 + -(-length // 8) * 8
            if index in sizes or offset > size or not length:
                raise CorruptFile(f"the content of a heap at byte {address:,}")
            sizes[index] = length
        return sizes

    def _check_array(self, messages: dict[int, bytes]) -> None:
        if not {1, 3, 8} <= messages.keys():
            raise UnverifiableFile("an object is neither a group nor an array")
        shape, kind = parse_extents(messages[1]), parse_datatype(messages[3])
        if kind.is_variable:
            raise UnverifiableFile("an array has elements of different lengths")
        count = 1
        for extent in shape:
            count *= extent
        if 0x0B in messages:
            _check_filters(messages[0x0B])
        if 0x05 in messages:
            _check_fill_value(messages[0x05], kind.size)
        layout = messages[8]
        if layout[0] != 3 or layout[1] > 2:
            raise UnverifiableFile(f"unsupported array layout version {layout[0]}")
        if layout[1] == 0:
            size = struct.unpack_from("<H", layout, 2)[0]
            if size != count * kind.size or size + 4 > len(layout):
                raise CorruptFile("a compact array has a wrong size")
        elif layout[1] == 1:
            start, size = struct.unpack_from("<QQ", layout.ljust(18, b"\0"), 2)
            if start != _UNDEFINED_ADDRESS and (
                start + size > self._size or size != count * kind.size
            ):
                raise CorruptFile("an array is not in the file")
        else:
            self._check_chunks(layout, shape, kind.size)

    def _check_chunks(self, layout: bytes, shape: list[int], item: int) -> None:
        rank = layout[2]
        if rank != len(shape) + 1 or len(layout) < 11 + 4 * rank:
            raise CorruptFile("chunks have a wrong number of axes")
        (tree,) = struct.unpack_from("<Q", layout, 3)
        sizes = struct.unpack_from(f"<{rank}I", layout, 11)
        if sizes[-1] != item or 0 in sizes:
            raise CorruptFile("chunks have a wrong size")
        if tree == _UNDEFINED_ADDRESS:
            return
        key_size, max_count = 8 + 8 * rank, 64
        size, visited = 24 + max_count * 8 + (max_count + 1) * key_size, set[bytes]()
        for key, address in self._walk_tree(tree, 1, key_size, size, max_count):
            length = struct.unpack_from("<I", key)[0]
            offsets = struct.unpack_from(f"<{rank}Q", key, 8)
            if any(c % s for c, s in zip(offsets[:-1], sizes, strict=False)):
                raise CorruptFile("a chunk overlaps other chunks")
            if key[8:] in visited or address + length > self._size:
                raise CorruptFile("a chunk is not in the file")
            visited.add(key[8:])


# NIL; dataspace; datatype; fill value, old and new; layout; filters; attribute;
# comment; continuation; symbol table; modification time.
_MESSAGES = {0, 1, 3, 4, 5, 8, 0x0B, 0x0C, 0x0D, 0x10, 0x11, 0x12}
_FILTERS = {1, 2, 3, 32_000}  # deflate, shuffle, a checksum, LZF


def _read_name(names: bytes, offset: int) -> bytes:
    end = names.find(b"\0", offset)
    if end < 0 or offset >= len(names):
        raise CorruptFile("a name is missing")
    return names[offset:end]


def _check_filters(data: bytes) -> None:
    version, count = struct.unpack_from("<BB", data)
    if version != 1 or not 0 < count <= 32:
        raise UnverifiableFile("unsupported filter version")
    offset = 8
    for _ in range(count):
        kind, name, _, values = struct.unpack_from(
            "<4H", data.ljust(offset + 8), offset
        )
        if kind not in _FILTERS:
            raise UnverifiableFile(f"a filter of kind {kind}")
        offset += 8 + -(-name // 8) * 8 + 4 * values + 4 * (values % 2)
        if offset > len(data):
            raise CorruptFile("the list of filters is truncated")


def _check_fill_value(data: bytes, item: int) -> None:
    """Check a fill value."""
    if data[0] not in (1, 2):
        raise UnverifiableFile("unsupported fill value version")
    if data[0] == 2 and not data[3]:
        return
    (size,) = struct.unpack_from("<I", data.ljust(8, b"\xff"), 4)
    if size not in (0, item) or size + 8 > len(data):
        raise CorruptFile("a fill value has a wrong size")
