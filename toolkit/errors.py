"""The tree of errors that toolkit raises for a user's mistake.

    ToolkitError
    ├── InputError                      an input that does not fit
    │   ├── ShapeError (ValueError)     shapes or ranks that do not fit
    │   │   ├── WrongExtentError        an extent that must be what it is not
    │   │   └── SignatureError (TypeError)  a call that no signature accepts
    │   ├── DTypeError (TypeError, ValueError)  a dtype that an operation cannot take
    │   └── ArgumentError (ValueError)  an unknown or contradictory argument
    │       ├── ArgumentTypeError (TypeError)  an argument of a wrong type
    │       ├── MissingKeyError (KeyError)  a name that is not there
    │       └── OutOfRangeError (IndexError)  a position that is not there
    ├── UnsupportedError (NotImplementedError)  what Keras has and toolkit has not
    │   ├── UnsupportedOnBackend        what one backend cannot compute
    │   └── MissingLinkerError          no program that links a native library
    ├── DeviceError (RuntimeError)      a device that is not there
    │   ├── BackendUnavailable          no library, driver or device for a backend
    │   └── OutOfDeviceMemory (MemoryError)  a device has too little memory
    ├── TraceError (RuntimeError)       something a traced function may not do
    │   ├── VariableCreationError (ValueError)  a Variable in each call of a function
    │   └── UnknownTruthError (TypeError)  `if` of a tensor without a value
    ├── GradientError (RuntimeError)    a gradient that cannot be taken
    ├── NotBuiltError (ValueError, AttributeError)  what is made later, asked for now
    ├── NotCompiledError (ValueError)   `fit` and friends before `compile`
    ├── ModelFileError (ValueError)     a file that is damaged or does not fit
    │   ├── MissingFileError (FileNotFoundError)  a file that is not there
    │   ├── UnwritableFileError (OSError)  a file that cannot be written
    │   └── LoadBudgetError             a file that asks for too much memory
    ├── CommunicationError (RuntimeError)  ranks of a job that cannot exchange
    │   ├── RankLostError (ConnectionError)  another rank has ended
    │   ├── StalledError (TimeoutError)  a collective that some ranks do not enter
    │   ├── ProgramMismatchError        ranks that run different programs
    │   └── LaunchError                 a job that was not started as it should be
    └── DatasetError (RuntimeError)     data that cannot be fetched or read
        ├── DamagedFileError (ValueError)  a file that is not what it should be
        ├── MissingDataError (FileNotFoundError)  a file of data that does not exist
        ├── MalformedDataError (InputError)  bytes that have no known format
        ├── ImageFileError (InputError, OSError)  an image that cannot be read
        └── LoadBudgetError             as above, for data

Each is also the built-in error that a Keras user would catch. Every message names
the operation or layer, what was expected, and what was received.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


class ToolkitError(Exception):
    """Base of every error that toolkit raises on purpose.

    Names in its message may come from a file: what a terminal would obey is escaped.
    """

    def __str__(self) -> str:
        if len(self.args) == 3:  # as in TensorFlow: a node, an operation, the message
            return printable(str(self.args[2]))
        return printable(super().__str__())

    @property
    def message(self) -> str:
        """The text of the error."""
        return str(self)


class InputError(ToolkitError):
    """An input has a shape, dtype or value that an operation cannot take."""


class ShapeError(InputError, ValueError):
    """Shapes or ranks do not fit."""


class WrongExtentError(ShapeError):
    """An extent must be another; an unknown one is not taken for it."""


class SignatureError(ShapeError, TypeError):
    """A call has arguments that the signature of a traced function does not accept."""


class DTypeError(InputError, TypeError, ValueError):
    """A dtype that an operation cannot take."""


class ArgumentError(InputError, ValueError):
    """An argument is unknown, out of range or contradicts another."""


class ArgumentTypeError(ArgumentError, TypeError):
    """An argument of a type that it cannot have."""


class MissingKeyError(ArgumentError, KeyError):
    """A name that is asked for and not there."""

    def __str__(self) -> str:  # that of KeyError is a repr
        return printable(Exception.__str__(self))


class OutOfRangeError(ArgumentError, IndexError):
    """A position or a label is not among those that there are."""


class UnsupportedError(ToolkitError, NotImplementedError):
    """Something that Keras offers and this package does not."""


class UnsupportedOnBackend(UnsupportedError):
    """An operation that a backend cannot compute, known when it is compiled."""

    def __init__(self, op: str, dtype: str, layout: str, reason: str) -> None:
        super().__init__(f"{op} of {dtype} ({layout}): {reason}")
        self.op: str = op
        self.dtype: str = dtype
        self.layout: str = layout
        self.reason: str = reason

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.op, self.dtype, self.layout, self.reason)


class MissingLinkerError(UnsupportedError):
    """No program is installed that links a native library for a processor."""


class DeviceError(ToolkitError, RuntimeError):
    """A device is unknown or cannot be used."""


class BackendUnavailable(DeviceError):
    """A backend lacks a library, a driver or a device; it says which."""


class OutOfDeviceMemory(DeviceError, MemoryError):
    """A device has too little memory for a program."""


class TraceError(ToolkitError, RuntimeError):
    """A traced function did something that a graph cannot hold."""


class VariableCreationError(TraceError, ValueError):
    """A traced function creates a Variable that no earlier call has kept."""


class UnknownTruthError(TraceError, TypeError):
    """Python asks for the truth of a tensor that has no value in a trace."""


class GradientError(ToolkitError, RuntimeError):
    """A gradient was asked for that cannot be taken."""


class NotBuiltError(ToolkitError, ValueError, AttributeError):
    """Weights or symbols were asked for before they exist.

    Being an AttributeError, it lets `hasattr(layer, "output")` answer False.
    """


class NotCompiledError(ToolkitError, ValueError):
    """A model was trained or evaluated before `compile`."""


class ModelFileError(ToolkitError, ValueError):
    """A file is damaged, foreign or does not fit the model."""


class MissingFileError(ModelFileError, FileNotFoundError):
    """There is no such file."""


class UnwritableFileError(ModelFileError, OSError):
    """A file that cannot be written."""


class CommunicationError(ToolkitError, RuntimeError):
    """Ranks of a job cannot exchange what they should."""


class RankLostError(CommunicationError, ConnectionError):
    """Another rank has ended, or the group was revoked because of one that has."""


class StalledError(CommunicationError, TimeoutError):
    """A collective waits for ranks that do not enter it."""


class ProgramMismatchError(CommunicationError):
    """Ranks would run programs whose collectives do not fit."""


class LaunchError(CommunicationError):
    """A job was not started as it should be, or MPI is missing; it says which."""


class DatasetError(ToolkitError, RuntimeError):
    """Data could not be fetched, verified or read."""


class DamagedFileError(DatasetError, ValueError):
    """A file is damaged, or does not have the hash that was expected."""


class MissingDataError(DatasetError, FileNotFoundError):
    """A file of data does not exist."""


class MalformedDataError(DatasetError, InputError):
    """Bytes do not have the format that a function expects."""


class ImageFileError(DatasetError, InputError, OSError, ValueError):
    """A file is no image of a known format, is damaged or has too many pixels."""


class LoadBudgetError(ModelFileError, DatasetError):
    """A file asks for more memory than loading it may take."""


def printable(text: str) -> str:
    """Text with escapes in place of what is no character to be seen, but line breaks.

    Example:
        >>> from toolkit.errors import printable
        >>> print(printable("red: \\x1b[31m"))
        red: \\x1b[31m
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\n" else _escaped(c) for c in text)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def unknown_choice(what: str, value: object, choices: Iterable[Any]) -> ArgumentError:
    """The error for a string that is none of the valid ones."""
    valid = ", ".join(repr(choice) for choice in sorted(choices, key=str))
    return ArgumentError(
        f"{what}: expected one of {valid}; received {value!r}{nearest(value, choices)}"
    )


def unknown_arguments(
    what: str, names: Iterable[Any], known: Iterable[Any]
) -> ArgumentTypeError:
    """The error for names of arguments that a function or class does not take."""
    given = sorted(map(str, names))
    plural = "s" if len(given) > 1 else ""
    listed = ", ".join(map(repr, given))
    near = "".join(dict.fromkeys(nearest(name, known) for name in given))
    return ArgumentTypeError(f"{what}: unknown argument{plural} {listed}{near}")


def nearest(value: object, choices: Iterable[Any]) -> str:
    """`; did you mean 'relu'?`, the end of a message; "" where no choice is close."""
    from difflib import get_close_matches  # only mistakes need it

    names = {str(choice).lower(): choice for choice in choices}
    close = get_close_matches(str(value).lower(), names, n=1)
    return f"; did you mean {names[close[0]]!r}?" if close else ""


def leaked(name: str, x: Any) -> TraceError:
    """The error of `name` meeting a tensor after the trace where it was made."""
    return TraceError(
        f"{name}: a tensor of shape {x.shape} and dtype {x.dtype} belongs to a trace "
        "that has ended; return it from the traced function, or assign it to a Variable"
    )
