"""RematScope: which layers compute values again for the gradient."""

from __future__ import annotations

from typing import Any

from toolkit.errors import unknown_choice
from toolkit.thread_state import ThreadState

MODES = ("full", "activations", "larger_than", "list_of_layers", None)


class _Scopes(ThreadState):
    stack: tuple[RematScope, ...] = ()


_scopes = _Scopes()


class RematScope:
    """Layers that are made inside compute values again for the gradient.

    What a layer computes on the way to its outputs is then not kept until the gradient
    is taken, which saves memory and costs time.

    Args:
        mode: which of the layers: "full": all; "activations": only the activation
            function of those that have one; "larger_than": those with more elements in
            their outputs than `output_size_threshold`; "list_of_layers": those named
            in `layer_names`; None: none.
        output_size_threshold: for "larger_than".
        layer_names: for "list_of_layers".

    Example:
        >>> import toolkit
        >>> with toolkit.RematScope("full"):
        ...     layer = toolkit.layers.Dense(2, activation="gelu")
        >>> layer(toolkit.ops.ones((3, 4))).shape
        (3, 2)
    """

    def __init__(
        self,
        mode: str | None = "full",
        output_size_threshold: int = 1024,
        layer_names: Any = None,
    ) -> None:
        if mode not in MODES:
            raise unknown_choice("RematScope: Invalid mode", mode, MODES)
        self.mode = mode
        self.output_size_threshold = output_size_threshold
        self.layer_names: list[Any] = list(layer_names or [])

    def __enter__(self) -> RematScope:
        _scopes.stack = (*_scopes.stack, self)
        return self

    def __exit__(self, *exception: object) -> None:
        _scopes.stack = _scopes.stack[:-1]


def current_scope() -> RematScope | None:
    """The innermost RematScope, or None."""
    return _scopes.stack[-1] if _scopes.stack else None
