"""Worker process that computes elements for `toolkit.data.processes`."""

from __future__ import annotations

import pickle
import signal
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from multiprocessing.connection import Connection
from typing import Any, NoReturn

from toolkit.data.errors import unpack_tuple
from toolkit.data.pickling import picklable_error
from toolkit.data.randomness import pass_draws
from toolkit.data.shared_memory import Exchange
from toolkit.processes import enter_user_code, exit_with_parent


def serve_elements(connection: Connection, exchange: Exchange) -> None:
    """Compute elements until the parent process closes the connection."""
    with suppress(EOFError, OSError):
        enter_user_code()
        function = load_function(connection.recv_bytes())
        elements = pass_draws(connection.recv())
        draws = None if elements is None else elements.draws()
        connection.send((True, None))  # reports the start
        while True:
            number, message = connection.recv()
            with nullcontext() if draws is None else draws.of(number):
                answer = compute_message(function, exchange, message)
            connection.send(answer)


def compute_message(
    function: Callable[[Any], Any], exchange: Exchange, message: Any
) -> tuple[bool, Any]:
    """Return the message for an element: success, and the result or the error."""
    try:
        return True, exchange.put(1, function(exchange.get(0, message)))
    except Exception as error:
        return False, exchange.put(1, picklable_error(error))


def load_function(data: bytes) -> Callable[[Any], Any]:
    """Return the received function; if it cannot be loaded, each element fails."""
    try:
        return unpack_tuple(pickle.loads(data))
    except Exception as error:
        failure = error

    def fail(element: Any) -> NoReturn:
        raise failure

    return fail


def main(arguments: Sequence[str]) -> None:
    """Run the worker with the given file descriptors."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent process handles Ctrl-C
    pipe, life, *fds = map(int, arguments)
    exit_with_parent(life)
    with Connection(pipe) as connection:
        serve_elements(connection, Exchange((fds[0], fds[1])))
