"""What a native library is made from, and what it is: plain data.

`backend.library(source)` turns programs into one relocatable object whose functions C
calls. Programs are compiled for a processor, `compile_program(graph, Target(backend,
processor=processor, updates=...))` for each of `backend.processors("x86-64")`, and are
generated code alone: `program.code is not None`.

The functions of the object, for a prefix `m`; all else in it is internal:

```c
uint32_t        m_abi(void);                               /* ABI */
const m_tensor *m_inputs(int32_t *count);                  /* shapes: -1 is the batch */
const m_tensor *m_outputs(int32_t *count);
const int64_t  *m_batches(int32_t *count);                 /* sizes, ascending */
int32_t         m_state_count(void);                       /* 0: runs change nothing */
size_t          m_workspace_size(int64_t max_batch);       /* 0: all sizes */
size_t          m_weights_size(void);
const uint8_t  *m_weights_sha256(void);                    /* 32 bytes */
m_status        m_init(void *workspace, const void *weights, int64_t max_batch);
m_status        m_run(void *workspace, int64_t n,
                      const void *const *inputs, void *const *outputs);
m_status        m_reset(void *workspace);                  /* states as after init */
m_status        m_threads(int32_t count, int32_t spins);   /* spins < 0: the default */
void            m_stop(void);
const char     *m_message(const void *workspace, m_status);
```

with `typedef struct { const char *name; int32_t dtype; int32_t rank; const int64_t
*shape; } m_tensor;` and `m_status` an int32_t, a `Status`. A dtype is its place in
`DTYPES`. A workspace is any memory of at least that size, whose address must not change
after `init`; calls on different workspaces may run at the same time. `m_threads` and
`m_stop` wait for the run that shares its work. `weights` NULL: those in the object, if
it embeds them; they are read until the last run.

`m_init` chooses the programs that a workspace is for: those of the last of the source's
processors whose code this machine can run.

`m_run` of n rows takes the largest size that is not larger, again and again; what is
less than the smallest size is padded in the workspace. Where an input or output has no
batch, or the library has states, or the source says so, n must be one of the sizes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Any

from toolkit.definitions.records import record

# Of the functions above.
ABI = 1

# Bytes of weights in it. Beyond, code and what it refers to are too far apart for
# linkers.
MOST_EMBEDDED = 1 << 30

# The number of a dtype in the library is its place here.
DTYPES = (
    *("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64"),
    *("uint64", "float16", "bfloat16", "float32", "float64"),
)


class Status(IntEnum):
    """What the functions of a library return."""

    OK = 0
    BAD_ARGUMENT = 1  # a null pointer, or a negative number
    NOT_INITIALIZED = 2  # not a workspace that this library's `init` has made
    BAD_BATCH = 3  # a batch that no program of the workspace can compute
    OUT_OF_RANGE = 4  # an index among the inputs; `message` says which
    NO_WEIGHTS = 5  # none were given, and the library embeds none
    NO_THREADS = 6  # built without threads, or the system gives no more
    UNSUPPORTED_PROCESSOR = 7  # the processor lacks what the code is written for


@record
class LibraryTensor:
    """An input or output: -1 stands for the batch, which only the first axis may be."""

    name: str
    dtype: str
    shape: tuple[int, ...]


@record
class LibraryWeight:
    """An input of programs that does not come with a call.

    Attributes:
        name: as it is stored under.
        array: its value; that of a state, the first one.
        is_state: whether runs change it: it is in the workspace then, and the array is
            what `init` and `reset` copy there.
    """

    name: str
    array: Any
    is_state: bool = False


@record
class LibraryProgram:
    """A program for one batch size.

    Attributes:
        batch: how many rows it computes.
        bodies: what computes it on each of the source's processors, in their order.
            Inputs are those of a call, followed by weights; outputs those of a call,
            followed by new values of states.
        weights: of each input behind those of a call, its number among the weights.
        updates: of each output behind those of a call, the number of its state.
    """

    batch: int
    bodies: Sequence[Any]
    weights: Sequence[int] = ()
    updates: Sequence[int] = ()


@record
class LibrarySource:
    """What a library is made from.

    Attributes:
        prefix: of its functions, a name in C.
        programs: for each batch size.
        inputs, outputs: of a call.
        weights: of all programs.
        processors: what `Backend.processors` returned, and the programs are for.
        embed: whether the object holds the weights.
        takes_whole_batches: whether `run` takes no other n than the sizes, as rows are
            not known to be computed each by itself.
    """

    prefix: str
    programs: Sequence[LibraryProgram]
    inputs: Sequence[LibraryTensor]
    outputs: Sequence[LibraryTensor]
    weights: Sequence[LibraryWeight]
    processors: Sequence[Any]
    embed: bool = False
    takes_whole_batches: bool = False


@record
class StoredWeight:
    """Where a weight is in the memory that `init` is given.

    Those whose size is a multiple of 64 bytes come first, so there are no gaps.
    """

    weight: LibraryWeight
    offset: int
    nbytes: int


@record
class Library:
    """A relocatable object, and what a header and a file of weights say of it.

    Attributes:
        prefix, inputs, outputs: as in the source.
        code: the bytes of the object file.
        triple: of the processors, as LLVM and linkers know it.
        weights: in the order in which they are stored.
        weights_bytes: of all of them.
        weights_sha256: the digest of these bytes.
        batches: the sizes, ascending.
        workspace_bytes: for each of them as the largest, on any of the processors.
        embeds: whether the object holds the weights.
        has_threads: whether it needs `pthread_create`.
        has_states: whether runs change something in the workspace.
        takes_whole_batches: whether `run` takes no other n than the sizes.
    """

    prefix: str
    inputs: Sequence[LibraryTensor]
    outputs: Sequence[LibraryTensor]
    code: bytes
    triple: str
    weights: Sequence[StoredWeight]
    weights_bytes: int
    weights_sha256: bytes
    batches: Sequence[int]
    workspace_bytes: Mapping[int, int]
    embeds: bool
    has_threads: bool
    has_states: bool
    takes_whole_batches: bool = False
