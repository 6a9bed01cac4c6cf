"""Static libraries: an archive of an object file, with a symbol index."""

from __future__ import annotations

from collections.abc import Sequence

_MAGIC = b"!<arch>\n"
_MAX_SHORT_NAME = 15  # maximum length of a name in a member header, before a slash


def static_archive(name: str, code: bytes, symbols: Sequence[str]) -> bytes:
    """Return an archive of one object file, without dates or owners.

    Args:
        name: the name of the object file.
        code: its bytes.
        symbols: the functions that it defines, for the index.

    The result equals `ar rcsD`: GNU's format, which ELF and WebAssembly linkers read.
    """
    encoded = name.encode()
    names = b"" if len(encoded) <= _MAX_SHORT_NAME else encoded + b"/\n"
    strings = b"".join(symbol.encode() + b"\0" for symbol in symbols)
    index_size = 4 + 4 * len(symbols) + len(strings)
    start = (
        len(_MAGIC)
        + _member_size(index_size)
        + (_member_size(len(names)) if names else 0)
    )
    offsets = start.to_bytes(4, "big") * len(symbols)
    index = len(symbols).to_bytes(4, "big") + offsets + strings
    members = [_member(b"/", index)]
    if names:
        members.append(_member(b"//", names))
    members.append(_member(b"/0" if names else encoded + b"/", code))
    return _MAGIC + b"".join(members)


def _member_size(size: int) -> int:
    """Return the size of a member with its header, padded to an even number."""
    return 60 + size + size % 2


def _member(name: bytes, content: bytes) -> bytes:
    """Return a member; date, owner and group are 0, and all users can read it."""
    head = b"%-16s%-12d%-6d%-6d%-8s%-10d`\n" % (name, 0, 0, 0, b"644", len(content))
    return head + content + b"\n" * (len(content) % 2)
