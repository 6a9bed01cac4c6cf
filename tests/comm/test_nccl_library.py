"""Tests of NCCL's library: loader, header, and its errors without a GPU."""

import ctypes
import ctypes.util
import re
from pathlib import Path

import pytest

from tests.backends.conftest import why_no_gpu
from toolkit.comm import local, nccl
from toolkit.comm.nccl_library import (
    BYTE,
    FUNCTIONS,
    ID_BYTES,
    IN_PROGRESS,
    MAGIC,
    NEWEST,
    OLDEST,
    REMOTE_ERROR,
    SUCCESS,
    SUM,
    SUM_DTYPES,
    UNSET,
    Library,
    UniqueId,
    config_fields,
    configuration,
    library,
    version_code,
)
from toolkit.errors import BackendUnavailable, CommunicationError

# C types by the start of their names -> types in calls; all others are addresses.
KINDS = {"int": ctypes.c_int, "size_t": ctypes.c_size_t}
KINDS.update(ncclDataType_t=ctypes.c_int, ncclRedOp_t=ctypes.c_int)


@pytest.fixture(scope="module")
def real():
    try:
        return library()
    except BackendUnavailable as error:
        pytest.skip(f"the extra nccl is not installed: {error}")


@pytest.fixture(scope="module")
def header(real):
    path = Path(real.path).parent.parent / "include" / "nccl.h"
    if not path.is_file():
        pytest.skip(f"{real.path} has no header beside it")
    return path.read_text("utf-8")


def test_settings_layout_matches_the_header(real, header):
    body = re.search(
        r"typedef struct ncclConfig_v\d+ {(.*?)} ncclConfig_t;", header, re.S
    )
    declared = re.findall(r"([\w ]+?[ *]+)(\w+);", body[1])
    settings = configuration(real.version)
    assert [name for _, name in declared] == [name for name, _ in settings._fields_]
    for (text, name), (_, kind) in zip(declared, settings._fields_, strict=True):
        words = {"int": ctypes.c_int, "size_t": ctypes.c_size_t}
        words["unsigned int"] = ctypes.c_uint
        assert kind is words.get(text.strip(), ctypes.c_char_p), name


def test_constants_match_the_header(header):
    facts = {
        "ncclSuccess": SUCCESS,
        "ncclRemoteError": REMOTE_ERROR,
        "ncclInProgress": IN_PROGRESS,
        "ncclUint8": BYTE,
        "ncclSum": SUM,
        **{f"nccl{name.capitalize()}": code for name, code in SUM_DTYPES.items()},
    }
    for name, number in facts.items():
        assert re.search(rf"\b{name}\s*= *{number},", header), name
    assert re.search(rf"#define NCCL_UNIQUE_ID_BYTES {ID_BYTES}\b", header)
    assert re.search(rf"#define NCCL_API_MAGIC {MAGIC:#x}\b", header)
    assert re.search(r"#define NCCL_CONFIG_UNDEF_INT INT_MIN\b", header)
    assert UNSET == -(2**31)


def test_arguments_match_the_header(header):
    for name, arguments in FUNCTIONS.items():
        declared = re.search(rf"^ncclResult_t +nccl{name}\(([^)]*)\);", header, re.M)
        texts = [text.strip() for text in declared[1].split(",") if text.strip()]
        expected = []
        for text in texts:
            kind = None if "*" in text else KINDS.get(text.split()[0])
            is_id = text.startswith("ncclUniqueId ") and "*" not in text
            expected.append(UniqueId if is_id else kind or ctypes.c_void_p)
        assert list(arguments) == expected, name


def test_version_is_supported(real):
    assert OLDEST <= real.version
    assert real.version[:2] <= NEWEST


def test_id_is_created_without_a_gpu(real):
    first, second = real.unique_id(), real.unique_id()
    assert len(first) == len(second) == ID_BYTES
    assert first != second


def test_errors_have_the_librarys_message(real):
    assert real.describe(REMOTE_ERROR).startswith("remote process exited")
    with pytest.raises(CommunicationError, match=r"ncclGetVersion: invalid argument"):
        real.call("GetVersion", None)


def test_error_without_a_gpu_gives_the_reason(real):
    if not why_no_gpu():
        pytest.skip("there is a GPU")
    with pytest.raises(
        CommunicationError, match="ncclCommInitRankConfig: .*cuda.*\\(1\\)"
    ):
        local.run(1, lambda group: nccl.connect(group, "GPU-0"))


@pytest.mark.parametrize(
    "version, last",
    [
        ((2, 18, 1), "splitShare"),
        ((2, 25, 1), "splitShare"),
        ((2, 26, 6), "trafficClass"),
        ((2, 27, 7), "nvlsCTAs"),
        ((2, 28, 9), "nvlinkCentricSched"),
        ((2, 29, 7), "numRmaCtx"),
        ((2, 30, 4), "maxP2pPeers"),
        ((2, 30, 7), "graphStreamOrdering"),
        ((2, 31, 2), "hostCftMode"),
        ((2, 32, 3), "nvlsHostMode"),
    ],
)
def test_each_version_has_its_settings(version, last):
    names = [name for name, _ in config_fields(version)]
    assert names[0] == "blocking"
    assert names[-1] == last
    settings = configuration(version, blocking=0)
    assert settings.size == ctypes.sizeof(settings)
    assert settings.version == version_code(version)
    assert (settings.magic, settings.blocking, settings.splitShare) == (MAGIC, 0, UNSET)
    assert not settings.netName


@pytest.mark.parametrize("version", [(2, 17, 1), (2, 33, 0), (3, 0, 0)])
def test_settings_of_unknown_versions_are_refused(version):
    with pytest.raises(
        BackendUnavailable, match=r"expected a version from 2\.18\.1 to"
    ):
        config_fields(version)


def test_missing_library_error_names_its_package(tmp_path):
    with pytest.raises(BackendUnavailable, match=r"was not found .*\[nccl\]"):
        Library(tmp_path / "libnccl.so.2")


def test_other_library_is_refused(tmp_path):
    math = ctypes.util.find_library("m")
    if not math:
        pytest.skip("there is no other library to load")
    with pytest.raises(BackendUnavailable, match="has no function ncclGetVersion"):
        Library(math)
