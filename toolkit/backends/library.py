"""Sources and results of native libraries, as plain data.

`generator.build_library(source)` compiles programs to an object with C functions.
Compile a program for each processor of `generator.processors("x86-64")` with
`compile_program(graph, Target(backend, processor=processor, updates=...))`. It must be
generated code only: `program.code is not None`.

The functions of the object, for a prefix `m` (all other symbols are internal):

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
*shape; } m_tensor;` and `m_status` an int32_t, a `Status`. A dtype is its index in
`DTYPES`. A workspace is any memory of at least that size. Its address must not change
after `init`. Calls on different workspaces can run concurrently. `m_threads` and
`m_stop` wait for the run that uses the threads. `weights` NULL means the embedded
weights. Weights are read until the last run.

`m_init` selects the programs of a workspace: the programs of the last of the source's
processors that is compatible with this machine.

`m_run` of n rows repeatedly runs the largest size that is at most the remaining number
of rows. It pads a remainder smaller than the smallest size in the workspace. n must be
one of the sizes if an input or output has no batch, if the library has states, or if
the source requires it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Any

from toolkit.definitions.records import record

# The version of the functions above.
ABI = 1

# Limit of embedded weights in bytes. Above it, references exceed the range of linkers.
MAX_EMBEDDED_BYTES = 1 << 30

# The number of a dtype in the library is its index in this tuple.
DTYPES = (
    *("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64"),
    *("uint64", "float16", "bfloat16", "float32", "float64"),
)


class Status(IntEnum):
    """Return codes of a library's functions."""

    OK = 0
    BAD_ARGUMENT = 1  # a null pointer, or a negative number
    NOT_INITIALIZED = 2  # not a workspace from this library's `init`
    BAD_BATCH = 3  # a batch that no program of the workspace can compute
    OUT_OF_RANGE = 4  # an index among the inputs; `message` has the details
    NO_WEIGHTS = 5  # no weights were passed, and the library embeds none
    NO_THREADS = 6  # built without threads, or the system has no more threads
    UNSUPPORTED_PROCESSOR = 7  # the processor lacks required features


@record
class LibraryTensor:
    """An input or output: -1 is the batch, only allowed as the first axis."""

    name: str
    dtype: str
    shape: tuple[int, ...]


@record
class LibraryWeight:
    """Weight: an input of programs that is not an argument of a call.

    Attributes:
        name: the key in storage.
        array: its value; for a state, the initial value.
        is_state: whether runs change it: then it is in the workspace, and `init` and
            `reset` copy the array to it.
    """

    name: str
    array: Any
    is_state: bool = False


@record
class LibraryProgram:
    """Program for one batch size.

    Attributes:
        batch: its number of rows.
        bodies: its code for each of the source's processors, in their order. The inputs
            are the inputs of a call, then weights; the outputs are the outputs of a
            call, then new values of states.
        weights: for each input after the inputs of a call, the number of its weight.
        updates: for each output after the outputs of a call, the number of its state.
    """

    batch: int
    bodies: Sequence[Any]
    weights: Sequence[int] = ()
    updates: Sequence[int] = ()


@record
class LibrarySource:
    """Source of a library.

    Attributes:
        prefix: of its functions, a name in C.
        programs: for each batch size.
        inputs, outputs: of a call.
        weights: of all programs.
        processors: the targets of the programs, from `CodeGenerator.processors`.
        embed: whether the object contains the weights.
        takes_whole_batches: whether `run` accepts only the sizes as n, because rows may
            depend on the batch.
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
    """Location of a weight in the memory that `init` receives.

    Weights whose size is a multiple of 64 bytes are stored first, so there are no gaps.
    """

    weight: LibraryWeight
    offset: int
    nbytes: int


@record
class Library:
    """Relocatable object, with the data for its header and its file of weights.

    Attributes:
        prefix, inputs, outputs: as in the source.
        code: the bytes of the object file.
        triple: of the processors, in the notation of LLVM and linkers.
        weights: in storage order.
        weights_bytes: their total size.
        weights_sha256: the digest of these bytes.
        batches: the sizes, ascending.
        workspace_bytes: for each size as the largest, the maximum over the processors.
        embeds: whether the object contains the weights.
        has_threads: whether it needs `pthread_create`.
        has_states: whether runs change the workspace's states.
        takes_whole_batches: whether `run` accepts only the sizes as n.
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
