"""Traces with free extents: one compilation for many lengths or batch sizes.

The first signature of a function is compiled for its extents. If a later signature
differs from it only in extents, the function is traced again, with an `Extent` for each
extent that varies. The program of that trace is valid for all extents for which the
conditions of its domain hold; see `toolkit/ir/extents`. If the caller declares which
extents vary, such as the lengths of padded batches, the first trace has free extents.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

from toolkit import settings
from toolkit.console.frames import warn_once
from toolkit.core.tensor import backend, state
from toolkit.definitions.records import record
from toolkit.errors import HostCallError
from toolkit.functions.concrete_function import ConcreteFunction
from toolkit.ir import Spec
from toolkit.ir.extents import Domain
from toolkit.ir.extents.domain import is_prime
from toolkit.thread_state import restore_on_error

# The key of a trace: the structure, the static leaves and specs, the location, and the
# specs of the results of host calls.
Key: TypeAlias = tuple[Any, ...]
T = TypeVar("T")
# The extents of all specs of a signature, in order.
Extents: TypeAlias = tuple[int, ...]

# The extents of a declared shape.
Shape: TypeAlias = tuple[int | None, ...]
# The index of a free extent, and the number that is added to it.
Symbol: TypeAlias = tuple[int, int]
Symbols: TypeAlias = tuple[Symbol | None, ...]

# A leading extent is usually a batch size, of which most loops have two. So it is free
# from its third value on, and any other extent from its second value on.
_LEADING_VALUES = 3
# Each compilation permits extents up to a power of two, so a longer one is rare.
_MAX_TRACES = 12
# The lowest limits of a batch size and of a length. Lengths up to the second one need
# little memory, so one compilation is enough for them.
_MIN_LIMIT, _MIN_LENGTH_LIMIT = 16, 128
_MAX_FAILURES = 2
# Traces for one signature, with smaller limits from the second one on.
_MAX_ATTEMPTS = 2
_MAX_FAMILIES = 64
# More values of one extent do not change the decision.
_MAX_SIGNATURES = 16
_LOG = logging.getLogger("toolkit")


@record
class FreeTrace:
    """A trace with free extents.

    Attributes:
        domain: its free extents.
        symbols: for each position of the signature's extents, its symbol, or None.
        extents: the fixed extents, in all positions.
        concrete: the trace.
    """

    domain: Domain
    symbols: Symbols
    extents: Extents
    concrete: ConcreteFunction

    def values(self, extents: Extents) -> Extents | None:
        """Return the values of the free extents, or None if it is not valid there."""
        values = self._match(extents)
        return values if values and self.domain.holds(values) else None

    def covers(self, extents: Extents) -> bool:
        """Return whether extents are in its limits, where it may be invalid."""
        values = self._match(extents)
        return values is not None and self.domain.includes(values)

    def _match(self, extents: Extents) -> Extents | None:
        """Return the values of the free extents; None: other extents differ."""
        values: dict[int, int] = {}
        for symbol, fixed, n in zip(self.symbols, self.extents, extents, strict=True):
            if symbol is None:
                expected = fixed
            else:
                index, offset = symbol
                expected = values.setdefault(index, n - offset) + offset
            if n != expected:
                return None
        return tuple([values[i] for i in range(len(values))])


@dataclass
class _Family:
    """The signatures of a function that differ only in extents."""

    signatures: list[Extents] = field(default_factory=list)
    traces: list[FreeTrace] = field(default_factory=list)
    is_refused: bool = False
    # The number of traces that are not valid for the extents that caused them.
    failures: int = 0


class UntraceableError(Exception):
    """Error raised if the Python code of a function has no trace with free extents.

    The code may need an integer, or reject the example, which is longer than the data.
    """


def permits_free_extents(
    distribution: object, dialect: object, jit_compile: bool | str
) -> bool:
    """Return whether traces of a function may have free extents.

    A job shares programs by their extents. Tapes watch the values of one signature.

    Args:
        distribution, dialect, jit_compile: the attributes of a `Function`.
    """
    return (
        settings.free_extents()
        and distribution is None
        and dialect is None
        and jit_compile is not False
        and not state.tapes
        and not backend().is_accelerator
    )


class FreeTraces:
    """The traces with free extents of one function.

    Args:
        name: the name of the function.

    Attributes:
        shapes: the declared shapes of the tensors, with None for extents that vary.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.shapes: Sequence[Shape] = ()
        # Domains of this call, and the values of their free extents.
        self._sealed: list[tuple[Domain, list[int]]] = []
        self._families: dict[Hashable, _Family] = {}

    @staticmethod
    def guard(record: Callable[..., T]) -> Callable[..., T]:
        """Return a function that raises UntraceableError for any error.

        Args:
            record: runs the Python code of a user in a trace.
        """

        def wrapper(*args: object) -> T:
            try:
                return record(*args)
            except Exception as error:
                raise UntraceableError from error

        return wrapper

    def find(
        self,
        key: Key,
        trace: Callable[[Key], ConcreteFunction],
        run: Callable[[], object],
    ) -> ConcreteFunction | None:
        """Return a compiled function for a new signature, from a trace of a family.

        Args:
            key: the key of the signature.
            trace: traces the function for a key with free extents.
            run: runs the Python code for the key itself.

        Returns:
            None if the signature needs a separate trace.
        """
        signature = _without_extents(key)
        if signature not in self._families and len(self._families) >= _MAX_FAMILIES:
            del self._families[next(iter(self._families))]
        family = self._families.setdefault(signature, _Family())
        extents = tuple(_extents_of(key))
        concrete = _from_traces(family, extents)
        if concrete is None and not family.is_refused:
            family.signatures.append(extents)
            declared = _declared_positions(key, self.shapes)
            if declared and len(family.signatures) == 1:
                with restore_on_error():
                    run()  # code that stores an extent the first time stores an integer
            if self._add_trace(family, key, declared, trace):
                concrete = _from_traces(family, extents)
            while self._sealed:
                domain, values = self._sealed.pop()
                domain.release(values)
        return concrete

    def _report(self, error: Exception) -> None:
        warn_once(
            self,
            f"{self.name}: the compiler failed for many lengths, so it compiles each "
            f"length; please report this: {error!r}",
        )

    def _add_trace(
        self,
        family: _Family,
        key: Key,
        declared: set[int],
        trace: Callable[[Key], ConcreteFunction],
    ) -> bool:
        """Trace with the extents that vary as free ones; return whether it succeeds."""
        if (
            len(family.signatures) > _MAX_SIGNATURES
            or len(family.traces) >= _MAX_TRACES
        ):
            return False
        extents = family.signatures[-1]
        leading = _leading_positions(key)
        symbols = _symbols_of(family.signatures, leading, declared)
        if symbols is None:
            return False
        # Decisions of speed are made for the upper limit.
        positions = _first_positions(symbols)
        limits = [
            _limits_of(
                [e[i] for e in family.signatures],
                _least_offset(symbols, index),
                _MIN_LIMIT if i in leading else _MIN_LENGTH_LIMIT,
            )
            for index, i in enumerate(positions)
        ]
        values = [extents[i] for i in positions]
        for earlier in family.traces:
            if earlier.symbols == symbols and earlier.covers(extents):
                # Its conditions exclude these values; they may hold for smaller limits.
                limits = earlier.domain.restrict(values) or _shorten(limits, values)
        if any(
            n < 2
            for n, symbol in zip(extents, symbols, strict=True)
            if symbol is not None
        ):
            return False
        free: FreeTrace | None = None
        for _ in range(_MAX_ATTEMPTS):
            try:
                free = self._trace(key, extents, symbols, limits, trace)
            except (UntraceableError, MemoryError) as error:
                _LOG.debug("no trace with free extents: %r", error.__cause__ or error)
                # The example can be too long, for example for a table of positions.
                longest = [max(e[i] for e in family.signatures) for i in positions]
                limits = _shorten(limits, longest)
                continue
            if free is None or free.values(extents) is not None:
                break
            # A condition excludes these values, for example because the compiler
            # selects another kernel for short rows.
            restricted = free.domain.restrict(values)
            if restricted is None or restricted == limits:
                break
            limits = restricted
        if free is None:
            family.is_refused = True
            return False
        if free.values(extents) is None:
            family.failures += 1
            family.is_refused = family.failures >= _MAX_FAILURES
            return False
        family.traces.append(free)
        return True

    def _trace(
        self,
        key: Key,
        extents: Extents,
        symbols: Symbols,
        limits: list[tuple[int, int]],
        trace: Callable[[Key], ConcreteFunction],
    ) -> FreeTrace | None:
        """Return a trace with free extents in some limits, or None if there is none.

        Raises:
            UntraceableError: the code of the user rejects the example.
            MemoryError: the memory for the longest example is too large.
        """
        domain = Domain(limits)
        try:
            concrete = trace(_with_symbols(key, symbols, domain))
            if concrete.program.code is not None:
                concrete.executable.bind()
        except (UntraceableError, MemoryError):
            raise
        except HostCallError as error:
            _LOG.debug("no trace with free extents: %r", error)
            return None
        except Exception as error:
            self._report(error)
            return None
        finally:
            domain.seal()
            values = [extents[i] for i in _first_positions(symbols)]
            self._sealed.append((domain, values))
        program = concrete.program
        if program.domain is not domain or program.code is None:
            names = [
                program.graph.nodes[segment.members[0]].op.name
                for segment in program.segments
                if segment.code is None and not program.is_view(segment.members[0])
            ]
            _LOG.debug("no trace with free extents: no code for %s", names)
            return None
        return FreeTrace(domain, symbols, extents, concrete)


def _from_traces(family: _Family, extents: Extents) -> ConcreteFunction | None:
    for free in reversed(family.traces):
        values = free.values(extents)
        if values is not None:
            free.domain.use(values)
            return free.concrete.at(values)
    return None


def _without_extents(key: Key) -> Hashable:
    """Return a key without the extents of its specs."""
    structure, leaves, *further = key
    kinds = [
        (Spec, x.ndim, x.dtype) if isinstance(x, Spec) else (None, x) for x in leaves
    ]
    return structure, tuple(kinds), tuple(further)


def _extents_of(key: Key) -> Iterator[int]:
    for leaf in key[1]:
        if isinstance(leaf, Spec):
            yield from leaf.shape


def _leading_positions(key: Key) -> set[int]:
    """Return the positions of the first extent of each spec."""
    positions, start = set(), 0
    for leaf in key[1]:
        if isinstance(leaf, Spec):
            if leaf.shape:
                positions.add(start)
            start += leaf.ndim
    return positions


def _declared_positions(key: Key, shapes: Sequence[Shape]) -> set[int]:
    """Return the positions of declared free extents, if the key has these shapes.

    Leading extents are not among them: most loops have two batch sizes. Images, with
    two extents that vary, are not either: their convolutions compile each size.
    """
    specs = [leaf for leaf in key[1] if isinstance(leaf, Spec)]
    if [x.ndim for x in specs] != [len(shape) for shape in shapes]:
        return set()
    positions, start = set(), 0
    for spec, shape in zip(specs, shapes, strict=True):
        pairs = zip(shape, spec.shape, strict=True)
        if any(declared not in (None, n) for declared, n in pairs):
            return set()
        free = [i for i, n in enumerate(shape) if i and n is None]
        # No program has a free extent of 1, which means broadcasting.
        if len(free) == 1 and spec.shape[free[0]] > 1:
            positions.add(start + free[0])
        start += spec.ndim
    return positions


def _symbols_of(
    signatures: list[Extents], leading: set[int], declared: set[int]
) -> Symbols | None:
    """Return the symbol of each position; None: none is free yet.

    Positions whose extents had a constant difference contain the same free extent.

    Args:
        signatures: the extents of the calls.
        leading: the positions of first extents.
        declared: the positions of extents that are free from the first value on. Those
            that had one value contain the same free extent if this value is equal.
    """
    columns = list(zip(*signatures, strict=True))
    is_free = [
        i in declared or len(set(column)) >= (_LEADING_VALUES if i in leading else 2)
        for i, column in enumerate(columns)
    ]
    if not any(is_free):
        return None
    first_values: dict[tuple[int, ...], Symbol] = {}  # by the differences of a column
    symbols: list[Symbol | None] = []
    for column, free in zip(columns, is_free, strict=True):
        if not free:
            symbols.append(None)
            continue
        differences = tuple([n - column[0] for n in column])
        if not any(differences):
            differences = (column[0],)
        new = len(first_values), column[0]
        index, first = first_values.setdefault(differences, new)
        symbols.append((index, column[0] - first))
    return tuple(symbols)


def _first_positions(symbols: Symbols) -> list[int]:
    """Return the first position of each free extent, whose offset is 0."""
    count = len({symbol[0] for symbol in symbols if symbol is not None})
    return [symbols.index((index, 0)) for index in range(count)]


def _least_offset(symbols: Symbols, index: int) -> int:
    """Return the least number that is added to a free extent."""
    return min(symbol[1] for symbol in symbols if symbol and symbol[0] == index)


def _limits_of(values: list[int], offset: int, minimum: int) -> tuple[int, int]:
    """Return the lowest and the highest value that a compilation permits.

    The highest is also the example. It is a prime number, because its divisors would be
    conditions for all values. Powers of two are often limits of kernels, so there is
    none between it and the largest values.

    Args:
        values: the values of a free extent.
        offset: the least number that is added to it: the sum is at least 2.
        minimum: the lowest limit. It does not apply to values up to 16: kernels for few
            rows are other kernels.
    """
    high = max(_MIN_LIMIT, 1 << (max(values) * 3 // 2 - 1).bit_length())
    if max(values) > _MIN_LIMIT:
        high = max(high, minimum)
    prime = next(filter(is_prime, range(high, 0, -1)))
    return max(2 - offset, min(values) // 2), prime


def _shorten(limits: list[tuple[int, int]], values: list[int]) -> list[tuple[int, int]]:
    """Return limits whose examples are the smallest that permit these values."""
    return [
        (low, _next_prime(value))
        for (low, _), value in zip(limits, values, strict=True)
    ]


def _next_prime(number: int) -> int:
    """Return the smallest prime number from a number on."""
    while not is_prime(number):
        number += 1
    return number


def _with_symbols(key: Key, symbols: Symbols, domain: Domain) -> Key:
    """Return a key with free extents in its specs."""
    remaining = iter(symbols)
    leaves = []
    for leaf in key[1]:
        if isinstance(leaf, Spec):
            shape: list[Any] = [
                domain.extents[symbol[0]] + symbol[1] if symbol else n
                for n, symbol in zip(leaf.shape, remaining, strict=False)
            ]
            leaves.append(leaf.with_shape(shape))
        else:
            leaves.append(leaf)
    return key[0], tuple(leaves), *key[2:]
