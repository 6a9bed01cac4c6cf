"""Text generation with models that compile only for backends in their list."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import toolkit


def compile_generation(make_function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a method `make_generate_function` whose function is one program.

    KerasHub compiles `generate_step` for TensorFlow and JAX by their names. For another
    backend it uses the bound method, which then runs operation by operation.

    Args:
        make_function: the method of the model, which sets `generate_function`.
    """

    @wraps(make_function)
    def make_generate_function(self: Any) -> Any:
        function = make_function(self)
        is_method = getattr(function, "__self__", None) is self
        if is_method and not self.run_eagerly:
            self.generate_function = toolkit.function(function)
        return self.generate_function

    return make_generate_function
