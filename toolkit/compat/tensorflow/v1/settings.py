"""Settings of TensorFlow 1's runtime in scripts, and its logging."""

from __future__ import annotations

import logging as python_logging
import sys
from types import SimpleNamespace
from typing import Any

from toolkit.errors import ArgumentError

_logger = python_logging.getLogger("toolkit")


class _Settings:
    """Fields without effect that scripts set; an unknown field raises an error."""

    _fields: dict[str, Any] = {}

    def __init__(self, **settings: Any) -> None:
        for name, value in {**self._fields, **settings}.items():
            setattr(self, name, value)

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self._fields:
            raise ArgumentError(
                f"{type(self).__name__}: expected one of {', '.join(self._fields)}; "
                f"received {name!r}"
            )
        self.__dict__[name] = value


class GPUOptions(_Settings):
    """Memory settings of a GPU: stored, without effect."""

    _fields = {
        "allow_growth": False,
        "per_process_gpu_memory_fraction": 0.0,
        "visible_device_list": "",
    }


class ConfigProto(_Settings):
    """Settings of a Session: hints for TensorFlow's runtime, stored without effect.

    Only `operation_timeout_in_ms` has an effect, in sessions on a cluster: a longer run
    raises an error. 0 means no limit while the tasks are alive.

    Example:
        >>> import toolkit.compat.tensorflow.v1 as tf
        >>> config = tf.ConfigProto(allow_soft_placement=True)
        >>> config.gpu_options.allow_growth = True
        >>> session = tf.Session(config=config)
    """

    _fields = {
        "allow_soft_placement": False,
        "device_count": None,
        "gpu_options": None,
        "inter_op_parallelism_threads": 0,
        "intra_op_parallelism_threads": 0,
        "log_device_placement": False,
        "operation_timeout_in_ms": 0,
    }

    def __init__(self, **settings: Any) -> None:
        super().__init__(**{"gpu_options": GPUOptions(), **settings})


def set_verbosity(v: Any) -> None:
    """Show messages of this level and above."""
    _logger.setLevel(v)


def get_verbosity() -> int:
    """Return the minimum level of shown messages."""
    return _logger.getEffectiveLevel()


logging: SimpleNamespace = SimpleNamespace(
    DEBUG=python_logging.DEBUG,
    INFO=python_logging.INFO,
    WARN=python_logging.WARNING,
    WARNING=python_logging.WARNING,
    ERROR=python_logging.ERROR,
    FATAL=python_logging.FATAL,
    set_verbosity=set_verbosity,
    get_verbosity=get_verbosity,
    debug=_logger.debug,
    info=_logger.info,
    warning=_logger.warning,
    warn=_logger.warning,
    error=_logger.error,
    fatal=_logger.critical,
)


def run(main: Any = None, argv: Any = None) -> None:
    """Call `main`, by default of the script, with the arguments, and exit.

    Args:
        main: takes a list of arguments, the script's name first.
        argv: the arguments; None for the arguments of the process.
    """
    main = main or sys.modules["__main__"].main
    sys.exit(main(sys.argv if argv is None else argv))


app: SimpleNamespace = SimpleNamespace(run=run)
