"""What a worker process runs: `python -m toolkit.data.worker FD FD FD`."""

from __future__ import annotations

import pickle
import signal
import sys
from multiprocessing.connection import Connection

from toolkit.data.errors import spread
from toolkit.data.shared_memory import Exchange


def work(connection: Connection, exchange: Exchange) -> None:
    """Make elements until the other side has gone."""
    function = spread(pickle.loads(connection.recv_bytes()))
    while True:
        try:
            element = exchange.get(0, connection.recv())
        except (EOFError, OSError):
            return
        try:
            result = True, exchange.put(1, function(element))
        except Exception as error:
            result = False, exchange.put(1, sendable(error))
        try:
            connection.send(result)
        except OSError:
            return


def sendable(error: Exception) -> Exception:
    """An error that pickle can hold, with the place where it was raised."""
    import traceback

    error.add_note("".join(traceback.format_exception(error)).rstrip())
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the other side
    pipe, *fds = map(int, sys.argv[1:])
    work(Connection(pipe), Exchange((fds[0], fds[1])))
