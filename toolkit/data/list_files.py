"""Dataset of the paths that match patterns."""

from __future__ import annotations

import os
from collections.abc import Iterable
from glob import glob
from typing import Any

from toolkit.data.dataset import Dataset, source
from toolkit.data.sources import from_elements
from toolkit.data.streams import PassContext, Stream
from toolkit.errors import DatasetError


@source("list_files")
class ListFiles(Dataset):
    """The paths that match patterns, as strings.

    Args:
        file_pattern: one or several glob patterns, such as "data/*.csv".
        shuffle: whether to shuffle the paths again in each pass.
        seed: the shuffle seed; None draws one.

    Raises:
        DatasetError: no file matches.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from toolkit.data import Dataset
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     Path(folder, "a.txt").touch()
        ...     [Path(path).name for path in Dataset.list_files(f"{folder}/*.txt")]
        ['a.txt']
    """

    def __init__(
        self,
        file_pattern: str | Iterable[str],
        shuffle: bool | None = None,
        seed: int | None = None,
    ) -> None:
        is_single = isinstance(file_pattern, (str, os.PathLike))
        patterns = [file_pattern] if is_single else list(file_pattern)
        matches = sorted(
            path
            for pattern in patterns
            for path in glob(str(pattern), include_hidden=True)
        )
        if not matches:
            raise DatasetError(f"list_files: no file matches {patterns}")
        files = from_elements(matches)
        if shuffle is not False:
            files = files.shuffle(len(matches), seed)
        super().__init__(files)

    def _cardinality(self) -> int:
        return self._parents[0]._cardinality()

    def _rows(self, context: PassContext) -> Any:
        return context.rows(self._parents[0])

    def _stream(self, context: PassContext) -> Stream:
        return context.open(self._parents[0])
