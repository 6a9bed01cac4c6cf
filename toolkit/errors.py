"""Exceptions of toolkit for errors of the user.

The hierarchy, with base classes of Python in parentheses::

    ToolkitError
    ├── InputError                      an invalid input
    │   ├── ShapeError (ValueError)     shapes or ranks that do not match
    │   │   ├── WrongExtentError        an extent with a wrong value
    │   │   └── SignatureError (TypeError)  a call that no signature accepts
    │   ├── DTypeError (TypeError, ValueError)  a dtype that an operation rejects
    │   └── ArgumentError (ValueError)  an unknown or contradictory argument
    │       ├── ArgumentTypeError (TypeError)  an argument of a wrong type
    │       ├── MissingKeyError (KeyError)  a name that does not exist
    │       └── OutOfRangeError (IndexError)  an index out of range
    ├── UnsupportedError (NotImplementedError)  a missing feature of Keras
    │   ├── UnsupportedOnBackend        an operation without a kernel
    │   └── MissingLinkerError          no linker for native libraries
    ├── DeviceError (RuntimeError)      a device that does not exist
    │   ├── BackendUnavailable          no library, driver or device for a backend
    │   └── OutOfDeviceMemory (MemoryError)  a device has too little memory
    ├── TraceError (RuntimeError)       an operation invalid in a trace
    │   ├── VariableCreationError (ValueError)  a Variable in each call of a function
    │   └── UnknownTruthError (TypeError)  `if` of a tensor without a value
    ├── GradientError (RuntimeError)    a gradient that cannot be taken
    ├── NotBuiltError (ValueError, AttributeError)  a read before the build
    ├── NotCompiledError (ValueError)   `fit` or `evaluate` before `compile`
    ├── ModelFileError (ValueError)     a file that is corrupt or does not fit
    │   ├── MissingFileError (FileNotFoundError)  a file that does not exist
    │   ├── UnwritableFileError (OSError)  a file that cannot be written
    │   └── LoadBudgetError             a file that needs too much memory
    ├── CommunicationError (RuntimeError)  ranks that cannot communicate
    │   ├── RankLostError (ConnectionError)  another rank ended
    │   ├── StalledError (TimeoutError)  a collective that some ranks do not enter
    │   ├── ProgramMismatchError        ranks that run different programs
    │   └── LaunchError                 a job that was started incorrectly
    │       └── JoinError               a rank that cannot connect to its job
    └── DatasetError (RuntimeError)     data that cannot be fetched or read
        ├── DamagedFileError (ValueError)  a corrupt file
        ├── MissingDataError (FileNotFoundError)  a data file that does not exist
        ├── MalformedDataError (InputError)  bytes in an unknown format
        ├── ImageFileError (InputError, OSError)  an image that cannot be read
        └── LoadBudgetError             as above, for data

Each is also the built-in error that a Keras user would catch. Every message contains
the operation or layer, the expected value, and the actual value.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from toolkit.definitions import foreign_names, hints
from toolkit.definitions.namespaces import module_dir


class ToolkitError(Exception):
    """Base of all errors that toolkit raises intentionally.

    Names in its message may come from a file, so control characters are escaped.

    Attributes:
        from_rank: the rank of the job that raised the error, if it is another one.
    """

    from_rank: int | None = None

    def __str__(self) -> str:
        if len(self.args) == 3:  # as in TensorFlow: a node, an operation, the message
            return printable(str(self.args[2]))
        return printable(super().__str__())

    @property
    def message(self) -> str:
        """Return the text of the error."""
        return str(self)


class InputError(ToolkitError):
    """Error raised for an input whose shape, dtype or value is invalid."""


class ShapeError(InputError, ValueError):
    """Error raised when shapes or ranks do not match."""


class WrongExtentError(ShapeError):
    """Error raised when an extent has the wrong value (not when it is unknown)."""


class SignatureError(ShapeError, TypeError):
    """Error raised when no signature of a traced function accepts a call."""


class DTypeError(InputError, TypeError, ValueError):
    """Error raised when an operation does not accept a dtype."""


class ArgumentError(InputError, ValueError):
    """Error raised for an unknown, out-of-range or contradictory argument."""


class ArgumentTypeError(ArgumentError, TypeError):
    """Error raised when an argument has the wrong type."""


class MissingKeyError(ArgumentError, KeyError):
    """Error raised when a name does not exist."""

    def __str__(self) -> str:  # KeyError would return a repr
        return printable(Exception.__str__(self))


class OutOfRangeError(ArgumentError, IndexError):
    """Error raised when an index or a label is out of range."""


class UnsupportedError(ToolkitError, NotImplementedError):
    """Error raised when a feature of Keras is not implemented in this package."""


class UnsupportedOnBackend(UnsupportedError):
    """Error raised at compile time when a backend cannot compute an operation."""

    def __init__(self, op: str, dtype: str, layout: str, reason: str) -> None:
        super().__init__(f"{op} of {dtype} ({layout}): {reason}")
        self.op: str = op
        self.dtype: str = dtype
        self.layout: str = layout
        self.reason: str = reason

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.op, self.dtype, self.layout, self.reason)


class MissingLinkerError(UnsupportedError):
    """Error raised when no linker for a native library of a processor is installed."""


class DeviceError(ToolkitError, RuntimeError):
    """Error raised when a device is unknown or cannot be used."""


class BackendUnavailable(DeviceError):
    """Error raised when a backend lacks a library, a driver or a device."""


class OutOfDeviceMemory(DeviceError, MemoryError):
    """Error raised when a device has too little memory for a program."""


class TraceError(ToolkitError, RuntimeError):
    """Error raised when a graph cannot represent a part of a traced function."""


class VariableCreationError(TraceError, ValueError):
    """Error raised when a traced function creates a Variable in each call."""


class HostCallError(TraceError, DTypeError):
    """Error raised when a part of a traced function can run only in Python."""


class UnknownTruthError(TraceError, TypeError):
    """Error raised when Python code reads the truth value of a traced tensor."""


class GradientError(ToolkitError, RuntimeError):
    """Error raised when a gradient cannot be computed."""


class NotBuiltError(ToolkitError, ValueError, AttributeError):
    """Error raised when weights or symbols do not exist yet.

    It is an AttributeError, so that `hasattr(layer, "output")` returns False.
    """


class NotCompiledError(ToolkitError, ValueError):
    """Error raised when a model is trained or evaluated before `compile`."""


class ModelFileError(ToolkitError, ValueError):
    """Error raised when a file is corrupt, foreign or does not fit the model."""


class MissingFileError(ModelFileError, FileNotFoundError):
    """Error raised when a file does not exist."""


class UnwritableFileError(ModelFileError, OSError):
    """Error raised when a file cannot be written."""


class CommunicationError(ToolkitError, RuntimeError):
    """Error raised when ranks of a job cannot communicate."""


class RankLostError(CommunicationError, ConnectionError):
    """Error raised when another rank ended, or when the group was revoked for it."""


class StalledError(CommunicationError, TimeoutError):
    """Error raised when a collective waits for ranks that do not enter it."""


class ProgramMismatchError(CommunicationError):
    """Error raised when the programs of ranks have different collectives."""


class LaunchError(CommunicationError):
    """Error raised when a job was started incorrectly, or MPI is missing."""


class JoinError(LaunchError):
    """Error raised when this rank cannot connect to its job."""


class DatasetError(ToolkitError, RuntimeError):
    """Error raised when data cannot be fetched, verified or read."""


class DamagedFileError(DatasetError, ValueError):
    """Error raised when a file is corrupt, or does not have the expected hash."""


class MissingDataError(DatasetError, FileNotFoundError):
    """Error raised when a data file does not exist."""


class MalformedDataError(DatasetError, InputError):
    """Error raised when bytes do not have the expected format."""


class ImageFileError(DatasetError, InputError, OSError, ValueError):
    """Error raised when an image file is corrupt, too large or of unknown format."""


class LoadBudgetError(ModelFileError, DatasetError):
    """Error raised when loading a file would take more memory than the budget."""


def printable(text: str) -> str:
    """Return text with escapes for non-printable characters, except line breaks.

    Example:
        >>> from toolkit.errors import printable
        >>> print(printable("red: \\x1b[31m"))
        red: \\x1b[31m
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\n" else _escape(c) for c in text)


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def unknown_choice(label: str, value: object, choices: Iterable[Any]) -> ArgumentError:
    """Return the error for a string that is not a valid choice.

    A suggestion precedes a long list of choices.
    """
    choices = list(choices)
    valid = ", ".join(repr(choice) for choice in sorted(_distinct(choices), key=str))
    hint = suggest_choice(value, choices)
    if not hint or len(valid) <= _SHORT_LIST:
        return ArgumentError(
            f"{label}: expected one of {valid}; received {value!r}{hint}"
        )
    return ArgumentError(f"{label}: received {value!r}{hint} Expected one of {valid}")


_SHORT_LIST = 100  # characters of a list that can precede the suggestion


def _distinct(choices: list[object]) -> list[object]:
    """Return the choices, without class names that also have a name in snake case."""
    lower = {str(choice) for choice in choices if str(choice).islower()}
    plain = {name.replace("_", "") for name in lower}
    return [
        choice
        for choice in choices
        if str(choice) in lower or str(choice).lower() not in plain
    ]


def unknown_arguments(
    label: str, names: Iterable[Any], accepted: Iterable[Any]
) -> ArgumentTypeError:
    """Return the error for argument names that a function or class does not accept."""
    accepted = list(map(str, accepted))
    unknown = sorted(map(str, names))
    plural = "s" if len(unknown) > 1 else ""
    quoted = ", ".join(map(repr, unknown))
    hint = "".join(dict.fromkeys(_argument_hint(name, accepted) for name in unknown))
    return ArgumentTypeError(f"{label}: unknown argument{plural} {quoted}{hint}")


def _argument_hint(name: str, accepted: list[str]) -> str:
    """Return the suggestion for an unknown name of an argument, or ""."""
    match = hints.first_accepted(foreign_names.ARGUMENTS, name, accepted)
    if match is not None:
        return f"; did you mean {match!r}?"
    if name in foreign_names.ARGUMENT_NOTES:
        return f" ({name}: {foreign_names.ARGUMENT_NOTES[name]})"
    return suggest_choice(name, accepted)


def suggest_choice(value: object, choices: Iterable[Any]) -> str:
    """Return `; did you mean 'relu'?` for a message, or "" if no choice is close."""
    by_name = {str(choice): choice for choice in choices}
    match = hints.first_accepted(foreign_names.CHOICES, str(value), by_name)
    matches = [match] if match else hints.closest(str(value), by_name)
    quoted = [repr(by_name[name]) for name in matches]
    return f"; did you mean {' or '.join(quoted)}?" if quoted else ""


def describe_value(value: object) -> str:
    """Return a wrong value and its type for a message; for a class, an instance."""
    if isinstance(value, type):
        name = value.__name__
        return f"the class {name}; did you mean an instance, {name}(...)?"
    return f"{value!r:.80} of type {type(value).__name__}"


def leaked(name: str, x: Any) -> TraceError:
    """Return the error for a tensor that `name` receives after the end of its trace."""
    return TraceError(
        f"{name}: a tensor of shape {x.shape} and dtype {x.dtype} belongs to a trace "
        "that has ended; return it from the traced function, or assign it to a Variable"
    )


__dir__ = module_dir(__name__)
