"""`tf.Module`: an object that tracks its Variables."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any

from toolkit import tree
from toolkit.core.hooks import notify_new_variables
from toolkit.core.naming import name_scope, to_snake_case
from toolkit.core.variable import Variable
from toolkit.layers import Layer
from toolkit.layers.tracking import owned_layers


class _AnyModule(type):
    """Metaclass: layers and models are modules too."""

    def __instancecheck__(cls, instance: Any) -> bool:
        return (
            cls is Module and isinstance(instance, Layer)
        ) or type.__instancecheck__(cls, instance)


class Module(metaclass=_AnyModule):
    """Base of objects that hold Variables, layers and other modules as attributes.

    Args:
        name: of the module; the default is the class name.

    Example:
        >>> import toolkit.compat.tensorflow as tf
        >>> class Scale(tf.Module):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.factor = tf.Variable(2.0)
        ...     def __call__(self, x):
        ...         return self.factor * x
        >>> scale = Scale()
        >>> float(scale(3.0)), len(scale.trainable_variables)
        (6.0, 1)
    """

    def __setattr__(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)
        notify_new_variables()

    def __init__(self, name: str | None = None) -> None:
        self._name = name or to_snake_case(type(self).__name__)

    @property
    def name(self) -> str:
        return self._name

    @property
    def name_scope(self) -> name_scope:
        """Return a scope in which Variable names have the module's name as a prefix."""
        return name_scope(self._name)

    @classmethod
    def with_name_scope(cls, method: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap a method to run in the module's `name_scope`."""

        @wraps(method)
        def wrapper(self: Module, *args: Any, **kwargs: Any) -> Any:
            with self.name_scope:
                return method(self, *args, **kwargs)

        return wrapper

    @property
    def variables(self) -> tuple[Variable, ...]:
        """Return all Variables of the module and its parts, each once."""
        variables: dict[Variable, None] = {}
        for owner in (self, *self.submodules):
            variables |= dict.fromkeys(
                owner.variables if isinstance(owner, Layer) else _variables_of(owner)
            )
        return tuple(variables)

    @property
    def trainable_variables(self) -> tuple[Variable, ...]:
        """Return the Variables that optimizers update."""
        return tuple(v for v in self.variables if v.trainable)

    @property
    def non_trainable_variables(self) -> tuple[Variable, ...]:
        """Return the Variables that optimizers do not update."""
        return tuple(v for v in self.variables if not v.trainable)

    @property
    def submodules(self) -> tuple[Any, ...]:
        """Return the modules and layers in the module, also nested ones, each once."""
        modules: dict[int, Any] = {}
        _add_submodules(self, modules)
        modules.pop(id(self), None)
        return tuple(modules.values())


def _add_submodules(owner: Any, modules: dict[int, Any]) -> None:
    """Add the modules and layers in an owner, by identity."""
    for child in _attribute_values(owner):
        if isinstance(child, (Module, Layer)) and id(child) not in modules:
            modules[id(child)] = child
            _add_submodules(child, modules)


def _attribute_values(owner: Any) -> Iterator[Any]:
    """Return the values of a module's attributes, in the order of their names."""
    if isinstance(owner, Layer):
        yield from owned_layers(owner)
        return
    for _, value in sorted(vars(owner).items()):
        yield from tree.flatten(value)


def _variables_of(owner: Module) -> Iterator[Variable]:
    return (value for value in _attribute_values(owner) if isinstance(value, Variable))
