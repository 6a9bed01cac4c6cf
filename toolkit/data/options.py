"""Options of a data set."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from toolkit.arguments import is_int
from toolkit.errors import ArgumentError, UnsupportedError
from toolkit.machine import available_cores

UNSUPPORTED_OPTIONS = {  # TensorFlow options without an effect in this package
    "autotune_algorithm": "only one tuning algorithm exists",
    "dataset_name": "stages have names, map(..., name=...)",
    "experimental_distribute": "data sets are divided by Dataset.shard",
    "experimental_external_state_policy": "positions always contain the full state",
    "experimental_optimization": "stages are always fused if possible",
    "experimental_service": "a data service is unsupported",
    "experimental_slack": "buffers are sized by AUTOTUNE or prefetch(n)",
    "experimental_symbolic_checkpoint": "positions are always small",
    "experimental_warm_start": "threads start with the first element",
    "framework_type": "only one framework exists",
    "max_intra_op_parallelism": "a function always runs in one thread",
}

# type of an attribute -> (its name in messages, validator)
_KINDS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "bool | None": (
        "True, False or None",
        lambda value: value is None or isinstance(value, bool),
    ),
    "int | None": (
        "an integer >= 1 or None",
        lambda value: value is None or (is_int(value) and value > 0),
    ),
    "ThreadingOptions": (
        "ThreadingOptions",
        lambda value: isinstance(value, ThreadingOptions),
    ),
    "AutotuneOptions": (
        "AutotuneOptions",
        lambda value: isinstance(value, AutotuneOptions),
    ),
}


class _CheckedOptions:
    """Base class of options that rejects unknown attributes and invalid values."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name in UNSUPPORTED_OPTIONS:
            raise self._unsupported(name)
        if name not in self.__annotations__:
            raise AttributeError(
                f"{type(self).__name__}: expected one of "
                f"{', '.join(self.__annotations__)}; received {name!r}"
            )
        expected, is_right = _KINDS[self.__annotations__[name]]
        if not is_right(value):
            raise ArgumentError(
                f"Options: expected {name} to be {expected}; received {value!r}"
            )
        super().__setattr__(name, value)

    def __getattr__(self, name: str) -> Any:
        if name in UNSUPPORTED_OPTIONS:
            raise self._unsupported(name)
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")

    @staticmethod
    def _unsupported(name: str) -> UnsupportedError:
        return UnsupportedError(
            f"Options: {name} is not supported: {UNSUPPORTED_OPTIONS[name]}"
        )

    def updated(self: Any, other: Any) -> Any:
        """Return these options, updated with the other's values that are not None.

        Args:
            other: options of the same class.
        """
        values = {k: v for k, v in vars(other).items() if v is not None}
        for name, value in values.items():
            if isinstance(value, _CheckedOptions):
                values[name] = getattr(self, name).updated(value)
        return replace(self, **values)


@dataclass
class ThreadingOptions(_CheckedOptions):
    """Options for the number of threads.

    Args:
        private_threadpool_size: the maximum number of threads for each parallel stage.

    Example:
        >>> from toolkit.data import Options, ThreadingOptions
        >>> Options(threading=ThreadingOptions(private_threadpool_size=4)).threads
        4
    """

    private_threadpool_size: int | None = None


@dataclass
class AutotuneOptions(_CheckedOptions):
    """Options for AUTOTUNE.

    Args:
        enabled: whether AUTOTUNE changes the initial values; True by default.
        cpu_budget: the number of CPUs to plan for; all by default.
        ram_budget: the maximum total size of the buffers in bytes; a quarter of the
            free memory by default.
        initial_parallelism: the initial number of threads of a stage; 16 by default.
        min_parallelism: the minimum number of threads of a stage; 1 by default.

    Example:
        >>> from toolkit.data import AutotuneOptions, Dataset, Options
        >>> options = Options(autotune=AutotuneOptions(cpu_budget=2))
        >>> Dataset.range(3).with_options(options).options().cpu_budget
        2
    """

    enabled: bool | None = None
    cpu_budget: int | None = None
    ram_budget: int | None = None
    initial_parallelism: int | None = None
    min_parallelism: int | None = None


@dataclass
class _Options(_CheckedOptions):
    deterministic: bool | None
    threading: ThreadingOptions
    autotune: AutotuneOptions


class Options(_Options):
    """Options of a whole data set; None keeps the default.

    Each option can also be set as an attribute. `threads` is an alias of
    `threading.private_threadpool_size`; the budgets are aliases of those in `autotune`.

    Args:
        deterministic: whether parallel stages keep the order of their input; True by
            default. Otherwise elements arrive as they become ready.
        threads: the maximum number of threads for each parallel stage; 64 by default.
        cpu_budget: the number of CPUs that AUTOTUNE plans for; all by default.
        ram_budget: the maximum total size of the buffers that AUTOTUNE sizes, in bytes;
            a quarter of the free memory by default.
        autotune: whether AUTOTUNE changes the initial values; True by default. Or
            AutotuneOptions.
        threading: ThreadingOptions, instead of `threads`.

    Raises:
        UnsupportedError: a TensorFlow option without an effect in this package is set.

    Example:
        >>> from toolkit.data import Dataset, Options
        >>> dataset = Dataset.range(3).with_options(Options(deterministic=False))
        >>> dataset.options().deterministic
        False
        >>> options = Options()
        >>> options.threading.private_threadpool_size = 4
        >>> options.threads
        4
    """

    def __init__(
        self,
        deterministic: bool | None = None,
        threads: int | None = None,
        cpu_budget: int | None = None,
        ram_budget: int | None = None,
        autotune: bool | AutotuneOptions | None = None,
        threading: ThreadingOptions | None = None,
    ) -> None:
        super().__init__(
            deterministic, threading or ThreadingOptions(), AutotuneOptions()
        )
        self.autotune = autotune  # type: ignore[assignment]
        for name, value in (
            ("threads", threads),
            ("cpu_budget", cpu_budget),
            ("ram_budget", ram_budget),
        ):
            if value is not None:
                setattr(self, name, value)

    def __setattr__(self, name: str, value: Any) -> None:
        name = name.removeprefix("experimental_") if name in ALIASES else name
        if name == "threads":
            self.threading.private_threadpool_size = value
        elif name in ("cpu_budget", "ram_budget"):
            setattr(self.autotune, name, value)
        elif name == "autotune" and not isinstance(value, AutotuneOptions):
            super().__setattr__(name, AutotuneOptions(enabled=value))
        else:
            super().__setattr__(name, value)

    def __getattr__(self, name: str) -> Any:
        if name == "threads":
            return self.threading.private_threadpool_size
        if name in ("cpu_budget", "ram_budget"):
            return getattr(self.autotune, name)
        if name in ALIASES:
            return getattr(self, name.removeprefix("experimental_"))
        return super().__getattr__(name)

    def merge(self, options: Options) -> Options:
        """Return these options, updated with the other's values that are not None.

        Args:
            options: options of a later stage.
        """
        return self.updated(options)

    @property
    def is_ordered(self) -> bool:
        """Return `deterministic` or its default."""
        return self.deterministic is not False

    @property
    def max_threads(self) -> int:
        """Return `threads` or its default."""
        return self.threading.private_threadpool_size or 64

    @property
    def processors(self) -> int:
        """Return `cpu_budget` or its default."""
        return self.autotune.cpu_budget or available_cores()

    @property
    def memory(self) -> int:
        """Return `ram_budget` or its default."""
        return self.autotune.ram_budget or free_memory() // 4


ALIASES = ("experimental_deterministic", "experimental_threading")


def free_memory() -> int:
    """Return the free memory in bytes; 4 GB if the system does not report it."""
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError):
        return 4 << 30
