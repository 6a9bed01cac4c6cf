"""Functions to generate: what names one, its text, and where it is once loaded.

Every generated function has one signature, `f(table, low, high, slot)`: it computes the
rows [low, high) of a call, whose operands' addresses and numbers stand in the table.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable
from functools import cached_property, lru_cache
from pathlib import Path
from threading import RLock
from typing import Any

from toolkit import dtypes, ir
from toolkit.backends import base, loops, operands
from toolkit.backends.array import special
from toolkit.backends.loops.formulas import source_digest
from toolkit.backends.numpy.jit import engine
from toolkit.backends.numpy.jit.builder import Builder
from toolkit.backends.numpy.jit.processor import current
from toolkit.backends.target import rules
from toolkit.ir import scalars

_PACKAGE = "toolkit."
PARAMETERS = ("ptr noalias %table", "i64 %lo", "i64 %hi", "i64 %slot")
ATTRIBUTES = 'attributes #0 = { nounwind "prefer-vector-width"="512" }'


class Code:
    """A function to generate.

    What decides its text is in its key: the generator's source, the processor, and the
    arguments, which also tell what the scalar rules say that it is made from.

    Args:
        emit: `emit(*args)` writes the function's body and returns its Builder.
        args: hashable values whose `repr` tells apart what is to be generated.
    """

    def __init__(self, emit: Callable[..., Builder], *args: Any) -> None:
        self.emit = emit
        self.args = args
        self.processor = current()

    @cached_property
    def key(self) -> str:
        """A name that only equal functions share, in this process and in others."""
        what = f"{self.emit.__module__}.{self.emit.__qualname__}{self.args!r}"
        digest = generator_digest()
        if not self.emit.__module__.startswith(_PACKAGE):
            digest += source_digest(self.emit)
        facts = (what, digest, engine.digest(self.processor))
        return "f" + hashlib.sha256("\0".join(facts).encode()).hexdigest()[:40]

    def text(self) -> str:
        """The LLVM IR of a module that holds the function."""
        with rules.inside(processor=self.processor):
            builder = self.emit(*self.args)
        function = builder.function(self.key, PARAMETERS)
        return "\n".join([*sorted(builder.declarations), function, ATTRIBUTES])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Code) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)


def generator_sources() -> list[Path]:
    """The files that a generated text depends on, in order."""
    own, planned = Path(__file__).parent, Path(loops.__file__).parent
    others = base, operands, special, dtypes, ir, scalars
    found = [p for folder in (own, planned) for p in sorted(folder.rglob("*.[pl][yl]"))]
    return [
        *(path for path in found if path.parent != own / "native"),  # no kernels
        *(Path(str(module.__file__)) for module in others),
    ]


@lru_cache(maxsize=1)
def generator_digest() -> str:
    """A hash of the generator's own source: another generator, other functions."""
    digest = hashlib.sha256()
    for path in generator_sources():
        digest.update(path.read_bytes())
    return digest.hexdigest()


_addresses: dict[str, int] = {}
# A signal's handler may call what interrupts it; and a process that forks waits until
# nothing is half loaded, which no thread of its child would finish.
_loading = RLock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_loading.acquire,
        after_in_parent=_loading.release,
        after_in_child=_loading.release,
    )


def load(codes: Iterable[Code]) -> list[int]:
    """Where functions start, after generating and loading those that are new."""
    codes = list(codes)
    with _loading:
        new = {c.key: c for c in codes if c.key not in _addresses}
        for processor in dict.fromkeys(c.processor for c in new.values()):
            texts = {k: c.text for k, c in new.items() if c.processor == processor}
            objects = engine.machine_codes(texts, processor)
            _addresses.update(engine.link(objects, texts))
    return [_addresses[code.key] for code in codes]
