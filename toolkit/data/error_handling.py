"""Stages for data set options and for error handling: raise or skip."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from toolkit.console.frames import warn
from toolkit.data.dataset import INFINITE_CARDINALITY, Dataset, transformation
from toolkit.data.options import Options
from toolkit.data.rows import Rows
from toolkit.data.streams import PassContext, Stream
from toolkit.errors import ArgumentError, DatasetError


class _SameStream(Stream):
    """Stream of unchanged elements."""

    def elements(self) -> Iterator[Any]:
        return iter(self.parent)


@transformation("ignore_errors")
class IgnoreErrors(Dataset):
    """The elements without those whose computation in earlier stages raises an error.

    Args:
        log_warning: has no effect, for compatibility with TensorFlow: errors are always
            reported.
        log: a function called with a message for each error, for example `print`,
            `logging.warning` or a list's `append`. None issues a warning, so that no
            error is silent.

    Example:
        >>> from toolkit.data import Dataset
        >>> log = []
        >>> shares = Dataset.range(-1, 2).map(lambda x: 6 // int(x))
        >>> list(shares.ignore_errors(log=log.append)), len(log)
        ([-6, 6], 1)
    """

    def __init__(
        self,
        dataset: Dataset,
        log_warning: bool = False,
        log: Callable[[str], Any] | None = None,
    ) -> None:
        super().__init__(dataset)
        self._log = warn if log is None else log

    def _stream(self, context: PassContext) -> Stream:
        parent = context._replace(on_error=self._note).open(self._parents[0])
        return _SameStream(self, context, parent)

    def _spec(self) -> Any:
        try:
            return self._parents[0]._spec()
        except Exception:  # the element is skipped
            return super()._spec()

    def _note(self, error: Exception, stage: str) -> None:
        where = "; ".join(getattr(error, "__notes__", [])) or f"data set: stage {stage}"
        self._log(f"ignore_errors: {type(error).__name__}: {error} ({where})")


@transformation("assert_cardinality")
class AssertCardinality(Dataset):
    """The same elements with a known cardinality, for example after a generator.

    Args:
        expected_cardinality: the number of elements, or INFINITE_CARDINALITY.

    Raises:
        DatasetError: the number of elements differs.

    Example:
        >>> from toolkit.data import Dataset
        >>> numbers = Dataset.from_generator(lambda: range(3)).assert_cardinality(3)
        >>> len(numbers.batch(2))
        2
    """

    def __init__(self, dataset: Dataset, expected_cardinality: int) -> None:
        super().__init__(dataset)
        if expected_cardinality < INFINITE_CARDINALITY:
            raise ArgumentError(
                "assert_cardinality: expected a number of elements or "
                f"INFINITE_CARDINALITY; received {expected_cardinality}"
            )
        self._count = int(expected_cardinality)

    def _cardinality(self) -> int:
        return self._count

    def _stream(self, context: PassContext) -> Stream:
        return _CountedStream(self, context, context.open(self._parents[0]))

    def _spec(self) -> Any:
        return self._parents[0]._spec()


class _CountedStream(Stream):
    fields = ("position",)

    def __init__(
        self, dataset: AssertCardinality, context: PassContext, parent: Stream
    ) -> None:
        super().__init__(dataset, context, parent)
        self._count = dataset._count
        self.position = 0

    def elements(self) -> Iterator[Any]:
        for element in self.parent:
            if self.position == self._count:
                raise self._error("more")
            self.position += 1
            yield element
        if self.position != self._count:
            raise self._error(f"{self.position:,}")

    def _error(self, received: str) -> DatasetError:
        count = "infinitely many elements" if self._count < 0 else f"{self._count:,}"
        return DatasetError(
            f"assert_cardinality: expected {count}; received {received}"
        )


@transformation("with_options")
class WithOptions(Dataset):
    """The same elements with other options.

    Args:
        options: the new options. Options that are None do not change.

    Example:
        >>> from toolkit.data import Dataset, Options
        >>> Dataset.range(3).with_options(Options(threads=4)).options().threads
        4
    """

    def __init__(self, dataset: Dataset, options: Options) -> None:
        super().__init__(dataset)
        self._options = Options().merge(options)  # a copy, because options are mutable

    _is_passthrough = True

    def _aligned_input(self, context: PassContext) -> Dataset | None:
        return self._parents[0]

    def options(self) -> Options:
        return super().options().updated(self._options)

    def _cardinality(self) -> int:
        return self._parents[0]._cardinality()

    def _rows(self, context: PassContext) -> Rows | None:
        return context.rows(self._parents[0])

    def _stream(self, context: PassContext) -> Stream:
        return _SameStream(self, context, context.open(self._parents[0]))

    def _spec(self) -> Any:
        return self._parents[0]._spec()
