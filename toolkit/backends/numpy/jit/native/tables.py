"""The constants of a library as LLVM IR."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from toolkit.backends.library import DTYPES, LibraryTensor, Status

MESSAGES = {
    Status.OK: "no error",
    Status.BAD_ARGUMENT: "an argument is a null pointer, or negative",
    Status.NOT_INITIALIZED: "the workspace was not initialized by init of this library",
    Status.BAD_BATCH: "no program supports batches of this size",
    Status.OUT_OF_RANGE: "an index is out of range",
    Status.NO_WEIGHTS: "init received no weights, and the library embeds none",
    Status.NO_THREADS: (
        "this number of threads is unavailable: the system allows fewer, or the "
        "library is built without threads"
    ),
    Status.UNSUPPORTED_PROCESSOR: "the processor lacks instructions of the library",
}
UNKNOWN = "an unknown status"


def table(name: str, kind: str, rows: Iterable[str]) -> str:
    """Return a constant array of elements in the syntax of LLVM."""
    rows = list(rows)
    content = f"[ {', '.join(f'{kind} {row}' for row in rows)} ]"
    return f"@{name} = internal constant [{len(rows)} x {kind}] {content}, align 8"


def record(fields: Iterable[int | str]) -> str:
    """Return a structure of 64-bit integers and of nested structures."""
    typed_fields = (f"i64 {x}" if isinstance(x, int) else x for x in fields)
    return f"{{ {', '.join(typed_fields)} }}"


def data(name: str, content: bytes, align: int = 1) -> str:
    """Return constant bytes."""
    return (
        f"@{name} = internal constant [{len(content)} x i8] "
        f'c"{_escaped(content)}", align {align}'
    )


def replaced_at_link(name: str, marker: bytes, nbytes: int) -> str:
    """Return constant bytes that start with a marker and are replaced at link time."""
    padding = max(0, nbytes - len(marker))
    return (
        f"@{name} = internal constant <{{ [{len(marker)} x i8], [{padding} x i8] }}> "
        f'<{{ [{len(marker)} x i8] c"{_escaped(marker)}", '
        f"[{padding} x i8] zeroinitializer }}>, align 64"
    )


def text(name: str, content: str) -> str:
    """Return a C string."""
    return data(name, content.encode() + b"\0")


def tensors(name: str, specs: Sequence[LibraryTensor]) -> list[str]:
    """Return an array of C structures and the constants that they point to."""
    lines, rows = [], []
    for k, x in enumerate(specs):
        lines.append(text(f"{name}.name{k}", x.name))
        lines.append(table(f"{name}.shape{k}", "i64", map(str, x.shape)))
        rows.append(
            f"{{ ptr @{name}.name{k}, i32 {DTYPES.index(x.dtype)}, "
            f"i32 {len(x.shape)}, ptr @{name}.shape{k} }}"
        )
    return [*lines, table(f"{name}.tensors", "%Tensor", rows)]


def messages() -> list[str]:
    """Return the messages of all statuses."""
    texts = [*(MESSAGES[status] for status in Status), UNKNOWN]
    lines = [text(f"status{k}", message) for k, message in enumerate(texts)]
    rows = (f"@status{k}" for k in range(len(texts)))
    return [*lines, table("statuses", "ptr", rows)]


def _escaped(content: bytes) -> str:
    return "".join(f"\\{byte:02X}" for byte in content)
