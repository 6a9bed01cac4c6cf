"""Functions to generate: their keys, texts, and addresses after loading.

Every generated function has the signature `f(table, low, high, slot)`. It computes the
rows [low, high) of a call. The table contains the addresses of the operands and the
numbers of the call.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable
from functools import cached_property, lru_cache
from pathlib import Path
from threading import RLock
from typing import Any

from toolkit import dtypes, ir, plans
from toolkit.backends.array import special
from toolkit.backends.numpy.jit import engine
from toolkit.backends.numpy.jit.builder import Builder
from toolkit.backends.numpy.jit.processor import current
from toolkit.ir import scalars
from toolkit.ir.extents import fixed_texts
from toolkit.plans.loops.rule_digests import source_digest
from toolkit.plans.rules import rules

_PACKAGE = "toolkit."
PARAMETERS = ("ptr noalias %table", "i64 %lo", "i64 %hi", "i64 %slot")
ATTRIBUTES = 'attributes #0 = { nounwind "prefer-vector-width"="512" }'


class Code:
    """A function to generate.

    The key covers everything that determines the text: the source of the generator, the
    processor, and the arguments, which include digests of scalar rules.

    Args:
        emit: `emit(*args)` writes the function's body and returns its Builder.
        args: hashable values whose `repr` identifies the function.
    """

    def __init__(self, emit: Callable[..., Builder], *args: Any) -> None:
        self.emit = emit
        self.args = args
        self.processor = current()

    @cached_property
    def key(self) -> str:
        """The name, unique for the generated text across processes."""
        with fixed_texts():  # an extent in an argument is a constant in the text
            arguments = repr(self.args)
        description = f"{self.emit.__module__}.{self.emit.__qualname__}{arguments}"
        digest = generator_digest()
        if not self.emit.__module__.startswith(_PACKAGE):
            digest += source_digest(self.emit)
        facts = (description, digest, engine.digest(self.processor))
        return "f" + hashlib.sha256("\0".join(facts).encode()).hexdigest()[:40]

    def text(self) -> str:
        """Return the LLVM IR of a module that contains the function."""
        with rules.override(processor=self.processor), fixed_texts():
            builder = self.emit(*self.args)
        function = builder.function(self.key, PARAMETERS)
        return "\n".join([*sorted(builder.declarations), function, ATTRIBUTES])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Code) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)


def generator_sources() -> list[Path]:
    """Return the files that a generated text depends on, in order."""
    package, plans_package = Path(__file__).parent, Path(plans.__file__).parent
    modules = special, dtypes, ir, scalars
    paths = [
        p
        for folder in (package, plans_package)
        for p in sorted(folder.rglob("*.[pl][yl]"))
    ]
    return [
        *(
            path for path in paths if path.parent != package / "native"
        ),  # without kernels
        *(Path(str(module.__file__)) for module in modules),
    ]


@lru_cache(maxsize=1)
def generator_digest() -> str:
    """Return a hash of the generator's source, which invalidates stale code."""
    digest = hashlib.sha256()
    for path in generator_sources():
        digest.update(path.read_bytes())
    return digest.hexdigest()


_addresses: dict[str, int] = {}
# Reentrant, because a signal handler can call the function that it interrupts. A fork
# waits until loading is complete: no thread of the child would finish it.
_loading = RLock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_loading.acquire,
        after_in_parent=_loading.release,
        after_in_child=_loading.release,
    )


def load(codes: Iterable[Code]) -> list[int]:
    """Return the addresses of functions; generate and load new functions."""
    codes = list(codes)
    with _loading:
        new = {c.key: c for c in codes if c.key not in _addresses}
        for processor in dict.fromkeys(c.processor for c in new.values()):
            texts = {k: c.text for k, c in new.items() if c.processor == processor}
            objects = engine.machine_codes(texts, processor)
            _addresses.update(engine.link(objects, texts))
    return [_addresses[code.key] for code in codes]
