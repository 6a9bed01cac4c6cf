"""NCCL bindings by ctypes: functions, errors and configuration.

The library is loaded from NVIDIA's wheel or from the system path. Only the creation of
a communicator needs a GPU.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from toolkit.errors import BackendUnavailable, CommunicationError, RankLostError
from toolkit.processes import find_package_folders, load_library
from toolkit.release import install_command

SONAME = "libnccl.so.2"
ID_BYTES = 128
SUCCESS, REMOTE_ERROR, IN_PROGRESS = 0, 6, 7
# ncclUint8: all transfers other than sums are bytes.
BYTE = 1

# ncclSum, and the codes of the dtypes that it adds.
SUM = 0
SUM_DTYPES = {"float16": 6, "float32": 7, "float64": 8, "bfloat16": 9}

# NCCL_API_MAGIC, and the value of an unset option.
MAGIC, UNSET = 0xCAFEBEEF, -(2**31)
# The fields of ncclConfig_t by the first version whose header has them, after the
# fields of older versions. A name that ends in * is a string pointer.
_FIELDS: tuple[tuple[tuple[int, int, int], str], ...] = (
    (
        (2, 18, 1),
        "blocking cgaClusterSize minCTAs maxCTAs netName* splitShare",
    ),
    ((2, 26, 2), "trafficClass"),
    ((2, 27, 3), "commName* collnetEnable CTAPolicy shrinkShare nvlsCTAs"),
    ((2, 28, 3), "nChannelsPerNetPeer nvlinkCentricSched"),
    ((2, 29, 2), "graphUsageMode numRmaCtx"),
    ((2, 30, 3), "maxP2pPeers"),
    ((2, 30, 5), "graphStreamOrdering"),
    ((2, 31, 2), "launchOrderImplicit numRmaSig rmaEagerInit hostCftMode"),
    ((2, 32, 3), "nvlsHostMode"),
)
OLDEST, NEWEST = _FIELDS[0][0], (2, 32)


class UniqueId(ctypes.Structure):
    """NCCL unique id; the library takes it by value."""

    _fields_ = [("content", ctypes.c_ubyte * ID_BYTES)]


_POINTER, _INT, _SIZE = ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t
_TRANSFER = (_POINTER, _SIZE, _INT, _INT, _POINTER, _POINTER)
_SUM = (_POINTER, _POINTER, _SIZE, _INT, _INT, _POINTER, _POINTER)
# The argument types of nccl<name>.
FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "GetVersion": (_POINTER,),
    "GetUniqueId": (_POINTER,),
    "CommInitRankConfig": (_POINTER, _INT, UniqueId, _INT, _POINTER),
    "CommGetAsyncError": (_POINTER, _POINTER),
    "CommCount": (_POINTER, _POINTER),
    "CommUserRank": (_POINTER, _POINTER),
    "CommSplit": (_POINTER, _INT, _INT, _POINTER, _POINTER),
    "CommFinalize": (_POINTER,),
    "CommDestroy": (_POINTER,),
    "CommAbort": (_POINTER,),
    "GroupStart": (),
    "GroupEnd": (),
    "AllGather": (_POINTER, _POINTER, _SIZE, _INT, _POINTER, _POINTER),
    "AllReduce": _SUM,
    "ReduceScatter": _SUM,
    "Broadcast": (_POINTER, _POINTER, _SIZE, _INT, _INT, _POINTER, _POINTER),
    "Send": _TRANSFER,
    "Recv": _TRANSFER,
}


def config_fields(version: tuple[int, int, int]) -> list[tuple[str, Any]]:
    """Return the fields of a version's ncclConfig_t, in order.

    Raises:
        BackendUnavailable: the header of that version is unknown.
    """
    if version < OLDEST or version[:2] > NEWEST:
        raise BackendUnavailable(
            f"NCCL {'.'.join(map(str, version))}: the layout of its settings is "
            f"unknown; expected a version from {'.'.join(map(str, OLDEST))} to "
            f"{'.'.join(map(str, NEWEST))}"
        )
    groups = [
        name
        for first_version, names in _FIELDS
        if first_version <= version
        for name in [names]
    ]
    return [
        (name.rstrip("*"), ctypes.c_char_p if name.endswith("*") else ctypes.c_int)
        for name in " ".join(groups).split()
    ]


def configuration(version: tuple[int, int, int], **values: int) -> ctypes.Structure:
    """Return an ncclConfig_t for a version; options without a value are unset.

    Args:
        version: for example (2, 27, 7).
        values: options by NCCL's names.
    """
    layout = config_fields(version)
    header = [("size", ctypes.c_size_t), ("magic", ctypes.c_uint)]
    header.append(("version", ctypes.c_uint))
    members = {"_fields_": [*header, *layout]}
    config: Any = type("Configuration", (ctypes.Structure,), members)()
    config.size, config.magic = ctypes.sizeof(config), MAGIC
    config.version = version_code(version)
    for name, kind in layout:
        if kind is ctypes.c_int:
            setattr(config, name, values.pop(name, UNSET))
    assert not values, f"NCCL {version} has no {', '.join(values)}"
    assert isinstance(config, ctypes.Structure)
    return config


def version_code(version: tuple[int, int, int]) -> int:
    """Return the version code of NCCL: 22707 for 2.27.7."""
    major, minor, patch = version
    return major * 10000 + minor * 100 + patch


class Library:
    """Loaded libnccl.

    Args:
        path: the path of the file; None searches for it.

    Attributes:
        path: the file that was loaded.
        version: for example (2, 27, 7).

    Raises:
        BackendUnavailable: the library is missing, lacks a function, or has an unknown
            version.
    """

    def __init__(self, path: str | Path | None = None) -> None:
        self.path, self._library = _load([str(path)] if path else list(_candidates()))
        for name, arguments in FUNCTIONS.items():
            function = getattr(self._library, f"nccl{name}", None)
            if function is None:
                raise BackendUnavailable(f"{self.path} has no function nccl{name}")
            function.argtypes, function.restype = arguments, ctypes.c_int
        self._library.ncclGetErrorString.argtypes = (_INT,)
        self._library.ncclGetErrorString.restype = ctypes.c_char_p
        self._library.ncclGetLastError.argtypes = (_POINTER,)
        self._library.ncclGetLastError.restype = ctypes.c_char_p
        code = ctypes.c_int()
        self.call("GetVersion", ctypes.byref(code))
        major, remainder = divmod(code.value, 10000)
        self.version: tuple[int, int, int] = (major, *divmod(remainder, 100))
        config_fields(self.version)

    def call(self, name: str, *arguments: Any) -> int:
        """Call nccl<name>; return `SUCCESS` or `IN_PROGRESS`, or raise an error.

        Raises:
            RankLostError: a connection to another rank ended.
            CommunicationError: another error, with the library's message and last
                error.
        """
        return self.check(int(getattr(self._library, f"nccl{name}")(*arguments)), name)

    def check(self, status: int, name: str) -> int:
        """Return the status if it is `SUCCESS` or `IN_PROGRESS`, else raise."""
        if status in (SUCCESS, IN_PROGRESS):
            return status
        kind = RankLostError if status == REMOTE_ERROR else CommunicationError
        raise kind(f"nccl{name}: {self.describe(status)}")

    def describe(self, status: int) -> str:
        """Return the text of a status, with the last error."""
        text = self._library.ncclGetErrorString(status).decode(errors="replace")
        # The last error belongs to the process, so no communicator is necessary.
        last = (self._library.ncclGetLastError(None) or b"").decode(errors="replace")
        return f"{text}{': ' if last.strip() else ''}{last.strip()} ({status})"

    def unique_id(self) -> bytes:
        """Return a new unique id for a group of ranks."""
        identifier = UniqueId()
        self.call("GetUniqueId", ctypes.byref(identifier))
        return bytes(identifier.content)


def _load(candidates: list[str]) -> tuple[str, ctypes.CDLL]:
    problems = []
    for path in candidates:
        try:
            return path, load_library(path)
        except OSError as error:
            problems.append(str(error))
    raise BackendUnavailable(
        f"{SONAME} was not found ({'; '.join(problems)}): "
        f"{install_command('nccl')}, or nvidia-nccl-cu12 for CUDA 12"
    )


def _candidates() -> Iterator[str]:
    """Yield the library files in NVIDIA's wheels, then the system library."""
    for root in find_package_folders("nvidia"):
        yield from map(str, sorted(root.glob(f"nccl/lib/{SONAME}")))
    yield SONAME


@cache
def library() -> Library:
    """Return the library of this process.

    Raises:
        BackendUnavailable: as for `Library`.
    """
    return Library()
