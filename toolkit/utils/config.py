"""Config: named settings with an optional freeze."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator
from typing import Any

from toolkit.errors import ArgumentError


class Config:
    """Named settings, as attributes and as items; they can be frozen.

    Args:
        **kwargs: the initial settings.

    Example:
        >>> from toolkit.utils import Config
        >>> config = Config(rate=0.1)
        >>> config.units = 3
        >>> config["units"], config.to_json()
        (3, '{"rate": 0.1, "units": 3}')
        >>> config.freeze()
        >>> config.frozen
        True
    """

    _config: dict[str, Any]
    _frozen: bool

    def __init__(self, **kwargs: Any) -> None:
        object.__setattr__(self, "_config", dict(kwargs))
        object.__setattr__(self, "_frozen", False)

    @property
    def frozen(self) -> bool:
        """Return whether settings are read-only."""
        return self._frozen

    def freeze(self) -> None:
        """Make the settings read-only."""
        object.__setattr__(self, "_frozen", True)

    def unfreeze(self) -> None:
        """Make the settings writable."""
        object.__setattr__(self, "_frozen", False)

    def _mutable_config(self) -> dict[str, Any]:
        if self._frozen:
            raise ArgumentError("Cannot mutate attribute(s): the config is frozen")
        return self._config

    def as_dict(self) -> dict[str, Any]:
        """Return a copy of the settings."""
        return dict(self._config)

    def to_json(self) -> str:
        """Return the settings as text."""
        return json.dumps(self._config)

    def keys(self) -> Any:
        """Return the names."""
        return self._config.keys()

    def values(self) -> Any:
        """Return the values."""
        return self._config.values()

    def items(self) -> Any:
        """Return pairs of names and values."""
        return self._config.items()

    def get(self, keyname: str, value: Any = None) -> Any:
        """Return the setting with this name, or `value`.

        Args:
            keyname: the name of a setting.
            value: the result for a missing setting.
        """
        return self._config.get(keyname, value)

    def pop(self, *args: Any) -> Any:
        """Remove a setting and return it.

        Returns:
            The value of the setting.
        """
        return self._mutable_config().pop(*args)

    def update(self, *args: Any, **kwargs: Any) -> None:
        """Change several settings."""
        self._mutable_config().update(*args, **kwargs)

    def __setattr__(self, name: str, value: Any) -> None:
        self._mutable_config()[name] = value

    __setitem__ = __setattr__

    def __getattr__(self, name: str) -> Any:
        settings = self.__dict__.get("_config", {})
        if name in settings:
            return settings[name]
        matches = difflib.get_close_matches(name, settings, n=1, cutoff=0.7)
        hint = f" Did you mean '{matches[0]}'?" if matches else ""
        raise AttributeError(f"Unknown attribute: '{name}'.{hint}")

    def __getitem__(self, key: str) -> Any:
        return self._config[key]

    def __delitem__(self, key: str) -> None:
        del self._mutable_config()[key]

    def __contains__(self, key: object) -> bool:
        return key in self._config

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._config))

    def __len__(self) -> int:
        return len(self._config)

    def __repr__(self) -> str:
        return f"<Config {self._config}>"
