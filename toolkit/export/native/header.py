"""C header of a native library."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Sequence
from textwrap import indent

from toolkit.backends.library import ABI, DTYPES, Library, LibraryTensor, Status
from toolkit.definitions.records import record

# Identifies an older header from this package.
MARK = "/* A model as a native library: written by toolkit "

_FILES_PATTERN = re.compile(
    re.escape(MARK) + r'\S+ for ((?:(?:, )?"(?:[^"\\]|\\.)*")+), '
)

# C types of tensor elements. float16 and bfloat16 are passed as their bits.
_C_TYPES = {
    "bool": "uint8_t",
    "float16": "uint16_t",
    "bfloat16": "uint16_t",
    "float32": "float",
    "float64": "double",
}

_STATUS_TEXTS = {
    Status.OK: "",
    Status.BAD_ARGUMENT: "a null pointer or a negative number",
    Status.NOT_INITIALIZED: "init has not initialized this workspace",
    Status.BAD_BATCH: "the workspace does not support this number of rows",
    Status.OUT_OF_RANGE: "an index of the inputs; the message names it",
    Status.NO_WEIGHTS: "no weights were passed, and the library embeds none",
    Status.NO_THREADS: "built without threads, or too few are available",
    Status.UNSUPPORTED_PROCESSOR: "the processor lacks instructions of the library",
}


@record
class HeaderData:
    """Header data that is not in the library.

    Attributes:
        version: the version of this package.
        files: the names of the libraries with this header, of different kinds.
        target: the name of the processor.
        weights_file: the name of the file of weights, if they are not embedded.
    """

    version: str
    files: Sequence[str]
    target: str
    weights_file: str | None = None


def libraries_of_header(text: str) -> list[str]:
    """Return the libraries in the first line of a header from this package."""
    match = _FILES_PATTERN.match(text)
    return [] if match is None else json.loads(f"[{match[1]}]")


def header_text(library: Library, header_data: HeaderData) -> str:
    """Return the header, deterministic for the same library and names."""
    prefix, macro = library.prefix, library.prefix.upper()
    sections = [
        f"{MARK}{header_data.version} for "
        f"{', '.join(map(json.dumps, header_data.files))}, "
        f"{library.triple}. Do not edit. */",
        f"#ifndef {macro}_H\n#define {macro}_H",
        _guide(library, header_data),
        "#include <stddef.h>\n#include <stdint.h>",
        '#ifdef __cplusplus\nextern "C" {\n#endif',
        _macros(library, header_data),
        _types(prefix),
        _functions(prefix),
        "#ifdef __cplusplus\n}\n#endif",
        f"#endif /* {macro}_H */",
    ]
    return "\n\n".join(sections) + "\n"


# --- guide comment --------------------------------------------------------------------


def _guide(library: Library, header_data: HeaderData) -> str:
    """Return a comment about the usage, with code that compiles."""
    lines = [
        *_tensor_lines("Inputs", library.inputs),
        *_tensor_lines("Outputs", library.outputs),
        "",
        f"Computes {_describe_batches(library)}.",
        f"For {header_data.target}, {library.triple}.",
        "Functions can run on different workspaces at the same time, on any",
        f"threads; {library.prefix}_threads and {library.prefix}_stop wait for the "
        "parallel run.",
        "",
        "Use:",
        "",
        *indent(_example(library, header_data), "    ").splitlines(),
    ]
    return "/*\n" + "\n".join(f" * {line}".rstrip() for line in lines) + "\n */"


def _describe_batches(library: Library) -> str:
    sizes = ", ".join(map(str, library.batches))
    if library.takes_whole_batches:
        return f"batches of n rows, where n is one of {sizes}; other n are an error"
    return f"any number of rows, in batches of {sizes}"


def _tensor_lines(title: str, tensors: Sequence[LibraryTensor]) -> Iterator[str]:
    yield f"{title}, in row-major order:"
    for tensor in tensors:
        yield f"    {_comment_text(tensor.name)}: {tensor.dtype} {_shape(tensor)}"


def _shape(tensor: LibraryTensor) -> str:
    extents = ["n" if size < 0 else str(size) for size in tensor.shape]
    return f"({', '.join(extents)})"


def _comment_text(text: str) -> str:
    """Return a name that is safe in a comment."""
    printable = "".join(c if c.isprintable() and c.isascii() else "?" for c in text)
    return printable.replace("*/", "* /").replace("/*", "/ *").replace("\\", "/")


_MAP_CODE = """\
/* {file} is mapped. Its data follow the length of the JSON header, and this header. */
int file = open("{file}", O_RDONLY);
size_t size = (size_t)lseek(file, 0, SEEK_END);
const char *map = mmap(NULL, size, PROT_READ, MAP_PRIVATE, file, 0);
if (map == MAP_FAILED) return 1;
uint64_t header;
memcpy(&header, map, 8);
const void *weights = map + 8 + header;
"""


def _example(library: Library, header_data: HeaderData) -> str:
    """Return a complete program that computes the smallest batch."""
    p, file, rows = library.prefix, header_data.weights_file, library.batches[0]
    body = [
        *_array_declarations("input", library.inputs, rows),
        *_array_declarations("output", library.outputs, rows),
        f"const void *inputs[] = {{{_array_names('input', library.inputs)}}};",
        f"void *outputs[] = {{{_array_names('output', library.outputs)}}};",
        f"void *workspace = malloc({p}_workspace_size({rows}));",
        f"{p}_status status = {p}_init(workspace, {'weights' if file else 'NULL'}, "
        f"{rows});",
        f"if (status == {p.upper()}_OK)",
        f"    status = {p}_run(workspace, {rows}, inputs, outputs);",
        "free(workspace);",
        "return (int)status;",
    ]
    extra = ["<fcntl.h>", "<string.h>", "<sys/mman.h>", "<unistd.h>"] if file else []
    includes = [f'"{p}.h"', "<stdlib.h>", *extra]
    map_code = _MAP_CODE.format(file=file).replace("/* ", "// ").replace(" */", "")
    lines = (map_code if file else "") + "\n".join(body)
    head = "\n".join(f"#include {name}" for name in includes)
    return f"{head}\n\nint main(void) {{\n{indent(lines, '    ')}\n}}"


def _array_declarations(
    kind: str, tensors: Sequence[LibraryTensor], rows: int
) -> Iterator[str]:
    for i, tensor in enumerate(tensors):
        size = math.prod(rows if n < 0 else n for n in tensor.shape)
        yield f"static {_c_type(tensor)} {kind}_{i}[{max(1, size)}];"


def _array_names(kind: str, tensors: Sequence[LibraryTensor]) -> str:
    return ", ".join(f"{kind}_{i}" for i in range(len(tensors)))


def _c_type(tensor: LibraryTensor) -> str:
    return _C_TYPES.get(tensor.dtype, f"{tensor.dtype}_t")


# --- macros ---------------------------------------------------------------------------


def _macros(library: Library, header_data: HeaderData) -> str:
    definitions: list[tuple[str, object]] = [
        ("ABI", ABI),
        ("TOOLKIT_VERSION", _string(header_data.version)),
        ("TARGET", _string(header_data.target)),
        ("TRIPLE", _string(library.triple)),
        ("BATCHES", _braces(library.batches)),
        ("BATCH_COUNT", len(library.batches)),
        ("MAX_BATCH", library.batches[-1]),
        *(
            (f"WORKSPACE_SIZE_{size}", nbytes)
            for size, nbytes in library.workspace_bytes.items()
        ),
        ("WORKSPACE_SIZE", max(library.workspace_bytes.values())),
        ("WEIGHTS_SIZE", library.weights_bytes),
        ("WEIGHTS_SHA256", _string(library.weights_sha256.hex())),
        ("EMBEDS_WEIGHTS", int(library.embeds)),
        ("TAKES_WHOLE_BATCHES", int(library.takes_whole_batches)),
        ("HAS_THREADS", int(library.has_threads)),
        ("HAS_STATES", int(library.has_states)),
        *_tensor_macros("INPUT", library.inputs),
        *_tensor_macros("OUTPUT", library.outputs),
    ]
    return "\n".join(
        f"#define {library.prefix.upper()}_{k} {v}" for k, v in definitions
    )


def _tensor_macros(
    kind: str, tensors: Sequence[LibraryTensor]
) -> Iterator[tuple[str, object]]:
    """Return macros; with a batch axis, `SIZE` is the elements of one row."""
    yield f"{kind}_COUNT", len(tensors)
    for i, tensor in enumerate(tensors):
        yield f"{kind}_{i}_NAME", _string(tensor.name)
        yield f"{kind}_{i}_DTYPE", DTYPES.index(tensor.dtype)
        yield f"{kind}_{i}_RANK", len(tensor.shape)
        yield f"{kind}_{i}_SHAPE", _braces(tensor.shape or (1,))
        yield f"{kind}_{i}_SIZE", math.prod(n for n in tensor.shape if n >= 0)


def _braces(numbers: Sequence[int]) -> str:
    return f"{{{', '.join(map(str, numbers))}}}"


def _string(text: str) -> str:
    """Return a C string literal; non-ASCII bytes are octal with three digits."""
    unescaped = set(map(ord, " !#$%&'()*+,-./:;<=>@[]^_`{|}~")) | set(range(48, 58))
    unescaped |= set(range(65, 91)) | set(range(97, 123))
    return (
        '"'
        + "".join(chr(b) if b in unescaped else f"\\{b:03o}" for b in text.encode())
        + '"'
    )


# --- declarations ---------------------------------------------------------------------


def _types(prefix: str) -> str:
    statuses = "\n".join(
        f"    {prefix.upper()}_{s.name} = {int(s)},"
        + (f" /* {_STATUS_TEXTS[s]} */" if _STATUS_TEXTS[s] else "")
        for s in Status
    )
    dtypes = ",\n".join(
        f"    {prefix.upper()}_{name.upper()} = {i}" for i, name in enumerate(DTYPES)
    )
    return _TYPES.format(
        p=prefix, statuses=_without_last_comma(statuses), dtypes=dtypes
    )


def _without_last_comma(lines: str) -> str:
    head, _, tail = lines.rpartition(",")
    return head + tail


def _functions(prefix: str) -> str:
    return _FUNCTIONS.format(p=prefix, P=prefix.upper())


_TYPES = """\
typedef int32_t {p}_status;
enum {{
{statuses}
}};

enum {{
{dtypes}
}};

/* An input or output. In the shape, -1 is the batch. */
typedef struct {{
    const char *name;
    int32_t dtype;
    int32_t rank;
    const int64_t *shape;
}} {p}_tensor;"""

_FUNCTIONS = """\
/* The number of this interface: {P}_ABI, if the header and the library match. */
uint32_t {p}_abi(void);

/* The inputs and outputs of run, and their number; count can be NULL. */
const {p}_tensor *{p}_inputs(int32_t *count);
const {p}_tensor *{p}_outputs(int32_t *count);

/* The supported batch sizes, ascending. */
const int64_t *{p}_batches(int32_t *count);

/* The number of states that runs change; 0: a run depends only on its inputs. */
int32_t {p}_state_count(void);

/* Bytes of a workspace for batches up to this size; 0: for all batches. */
size_t {p}_workspace_size(int64_t max_batch);

/* Bytes of the weights, and their digest of 32 bytes. */
size_t {p}_weights_size(void);
const uint8_t *{p}_weights_sha256(void);

/* Initialize a workspace in memory of at least this size, which must not move. Each
   run reads the weights. NULL: the embedded weights of the library. */
{p}_status {p}_init(void *workspace, const void *weights, int64_t max_batch);

/* Compute n rows. Arrays are in row-major order, without gaps. */
{p}_status {p}_run(void *workspace, int64_t n, const void *const *inputs,
    void *const *outputs);

/* Reset the states to their values after init. */
{p}_status {p}_reset(void *workspace);

/* Set the number of threads for runs, including the calling thread. A waiting thread
   checks for work `spins` times before it sleeps; spins < 0: the default. If this
   number of threads is unavailable, no thread is started. */
{p}_status {p}_threads(int32_t count, int32_t spins);

/* End the threads. A workspace has no other resources: free its memory after use. */
void {p}_stop(void);

/* The meaning of a status; the workspace can be NULL. */
const char *{p}_message(const void *workspace, {p}_status status);"""
