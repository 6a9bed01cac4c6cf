"""How a data set is run: under which options, and what errors do to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from toolkit.data.dataset import Dataset, transformation
from toolkit.data.options import Options
from toolkit.data.rows import Rows
from toolkit.data.streams import Pass, Stream


class _SameStream(Stream):
    """The elements as they are."""

    def elements(self) -> Iterator[Any]:
        return iter(self.parent)


@transformation("ignore_errors")
class IgnoreErrors(Dataset):
    """The elements without those whose functions, in the stages before, raise.

    Args:
        log_warning: accepted as TensorFlow does; errors are told in any case.
        log: called with a sentence for each error: `print`, `logging.warning`, a
            list's `append`. Nothing is passed over silently: None warns.

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
        self._log = _warn if log is None else log

    def _stream(self, here: Pass) -> Stream:
        parent = here._replace(on_error=self._note).open(self._parents[0])
        return _SameStream(self, here, parent)

    def _note(self, error: Exception, stage: str) -> None:
        where = "; ".join(getattr(error, "__notes__", [])) or f"data set: stage {stage}"
        self._log(f"ignore_errors: {type(error).__name__}: {error} ({where})")


def _warn(sentence: str) -> None:
    import warnings

    warnings.warn(sentence, stacklevel=2)


@transformation("with_options")
class WithOptions(Dataset):
    """The same elements, under other options.

    Args:
        options: those that are None stay as they are.

    Example:
        >>> from toolkit.data import Dataset, Options
        >>> Dataset.range(3).with_options(Options(threads=4)).options().threads
        4
    """

    def __init__(self, dataset: Dataset, options: Options) -> None:
        super().__init__(dataset)
        self._options = Options().merge(options)  # a copy: they can be set

    def options(self) -> Options:
        return super().options().updated(self._options)

    def _cardinality(self) -> int:
        return self._parents[0]._cardinality()

    def _rows(self, here: Pass) -> Rows | None:
        return here.rows(self._parents[0])

    def _stream(self, here: Pass) -> Stream:
        return _SameStream(self, here, here.open(self._parents[0]))

    def _spec(self) -> Any:
        return self._parents[0]._spec()
