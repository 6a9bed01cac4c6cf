"""Class labels of table rows: one per row, or a list."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from toolkit.definitions.records import record
from toolkit.errors import ArgumentError, ArgumentTypeError


@record
class Labels:
    """The labels in the class column.

    Args:
        rows: a class, or a list of classes, for each row.
        classes: the selected classes; empty: all.

    Example:
        >>> from toolkit.compat.tensorflow.keras.legacy.image_labels import Labels
        >>> labels = Labels(["cat", ["dog", "cat"]], [])
        >>> labels.unique_classes([0, 1])
        ['cat', 'dog']
        >>> labels.indices([1], {"cat": 0, "dog": 1})
        [[1, 0]]
    """

    rows: list[Any]
    classes: list[Any]

    def _selected_classes(self, row: int) -> list[Any]:
        """Return the selected classes of a row."""
        label = self.rows[row]
        row_classes = label if isinstance(label, (list, tuple)) else [label]
        return [one for one in row_classes if not self.classes or one in self.classes]

    def has_class(self, row: int) -> bool:
        """Return whether a row has a selected class."""
        return not self.classes or bool(self._selected_classes(row))

    def unique_classes(self, rows: Iterable[int]) -> list[Any]:
        """Return all classes of some rows, sorted."""
        return sorted({one for row in rows for one in self._selected_classes(row)})

    def indices(self, rows: Iterable[int], numbers: dict[str, int]) -> list[Any]:
        """Return the class index of each row; a list of indices for a list of
        classes."""
        result = []
        for row in rows:
            row_indices = [numbers[one] for one in self._selected_classes(row)]
            is_list = isinstance(self.rows[row], (list, tuple))
            result.append(row_indices if is_list else row_indices[0])
        return result


def validate_labels(
    class_mode: str, column: Any, values: Iterable[Any], classes: Any
) -> Labels:
    """Return the labels in a column, after a check against the mode.

    Args:
        class_mode: "categorical", "binary" or "sparse".
        column: the name of the column.
        values: its values.
        classes: the selected classes; None: all.

    Raises:
        ArgumentTypeError: if a value is not a class.
        ArgumentError: if "binary" does not have two classes.
    """
    rows, selected = list(values), list(dict.fromkeys(classes or ()))
    types = (str, list, tuple) if class_mode == "categorical" else (str,)
    for value in rows:
        if not isinstance(value, types):
            type_names = " or ".join(kind.__name__ for kind in types)
            raise ArgumentTypeError(
                f'DataFrameIterator: for class_mode="{class_mode}" the column '
                f"{column!r} must have values of type {type_names}; received {value!r}"
            )
    names = selected or sorted({row for row in rows if isinstance(row, str)})
    if class_mode == "binary" and len(names) != 2:
        raise ArgumentError(
            'DataFrameIterator: class_mode="binary" needs two classes; received '
            f"{names}"
        )
    return Labels(rows, selected)
