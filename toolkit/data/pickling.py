"""Serialization of functions, elements and errors for other processes."""

from __future__ import annotations

import pickle
import traceback
from collections.abc import Callable
from typing import Any

from toolkit.data.errors import name_of
from toolkit.errors import UnsupportedError
from toolkit.release import install_command

MAIN = b"__main__"  # in a pickle: `__main__` differs in a worker process


def dumps(value: Any, buffers: list[pickle.PickleBuffer] | None = None) -> bytes:
    """Pickle a value, with cloudpickle for objects that no module defines.

    Args:
        buffers: a list that receives the bytes of arrays. None puts them into the
            pickle.

    Raises:
        UnsupportedError: the value needs cloudpickle, which is not installed.
    """
    call = None if buffers is None else buffers.append
    try:
        data = pickle.dumps(value, 5, buffer_callback=call)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        data, reason = b"", f"{error}"
    if data and MAIN not in data:
        return data
    if data:
        reason = "it is defined in the main module, which workers do not import"
    try:
        import cloudpickle
    except ImportError as error:
        if data and not callable(value):  # possibly only text
            return data
        name = name_of(value) if callable(value) else f"a {type(value).__name__}"
        raise UnsupportedError(
            f"{name} cannot be sent to a worker process without cloudpickle "
            f"({install_command('workers')}): {reason}"
        ) from error
    if buffers is not None:
        buffers.clear()
    return bytes(cloudpickle.dumps(value, 5, buffer_callback=call))


def pickle_function(function: Callable[..., Any], stage: str) -> bytes:
    """Serialize a function of a stage for another process.

    Raises:
        UnsupportedError: neither pickle nor cloudpickle can serialize it.
    """
    try:
        return dumps(function)
    except UnsupportedError as error:
        raise UnsupportedError(f"{stage}: {error}") from error
    except Exception as error:
        raise UnsupportedError(
            f"{stage}: {name_of(function)} cannot be sent to a worker process: {error}"
        ) from error


def picklable_error(error: Exception) -> Any:
    """Return an error that another process can load, with its traceback as a note."""
    note = "".join(traceback.format_exception(error)).rstrip()
    error.add_note(note)
    for candidate in (error, _RebuiltError(error)):
        try:
            if type(pickle.loads(dumps(candidate))) is type(error):
                return candidate
        except Exception:
            continue
    fallback = RuntimeError(f"{type(error).__name__}: {error}")
    fallback.add_note(note)
    return fallback


class _RebuiltError:
    """Proxy for an error whose class needs more arguments than it stores."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def __reduce__(self) -> Any:
        error = self._error
        return rebuild_error, (type(error), error.args, error.__dict__)


def rebuild_error(
    kind: type[Exception], args: tuple[Any, ...], attributes: Any
) -> Exception:
    """Reconstruct an error without a call of its constructor."""
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(attributes)
    return error
