"""CompileLoss: the losses of all outputs of a model as one function."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from toolkit import losses, metrics, ops, tree
from toolkit.errors import ArgumentError
from toolkit.layers.layer import Layer
from toolkit.models.training.compile_checks import (
    add_term_to_shape_errors,
    check_shapes,
    check_values,
    describe_term,
    function_of,
)
from toolkit.models.training.compile_utils import (
    CROSSENTROPY,
    check_names,
    describe,
    get_loss,
    pack_like,
)
from toolkit.models.training.logit_checks import check_logits
from toolkit.models.training.pair_checks import warn_of_pairs

Path = tuple[Any, ...]


class Weighted:
    """Loss of the user with its weight: one leaf of the nest of losses."""

    def __init__(self, loss: Any, weight: Any = None) -> None:
        self.loss = loss
        self.weight = weight


class Term(NamedTuple):
    """One loss, and the path of its output."""

    path: Path
    loss: Any
    weight: Any
    name: str
    output: Any = None  # its name, or None


class CompileLoss:
    """Weighted sum of the losses of `compile`.

    Args:
        loss: a loss for all outputs, or a nest of losses in the structure of the
            outputs: a list in their order, or a dict by their names.
        loss_weights: factors, in the same structure.
        output_names: the names of the outputs, or None.
    """

    def __init__(
        self, loss: Any, loss_weights: Any = None, output_names: Any = None
    ) -> None:
        allowed = (list, tuple, dict, float, int)
        # Metrics as the third positional argument are a common mistake.
        names = [w for w in tree.flatten(loss_weights) if isinstance(w, str)]
        if loss_weights is not None and (
            names or not isinstance(loss_weights, allowed)
        ):
            raise ArgumentError(
                "compile: expected loss_weights to be a number, or a list, tuple or "
                f"dict of numbers; received {loss_weights!r}"
            )
        check_names(losses.get, loss, CROSSENTROPY)
        self.name = "compile_loss"
        self.built: bool = False
        self.output_names: list[str] | None = output_names
        self.metrics: list[Any] = []
        self._loss = loss
        self._loss_weights = loss_weights
        self._terms: list[Term] = []

    @property
    def variables(self) -> list[Any]:
        return [v for metric in self.metrics for v in metric.variables]

    def build(self, y_true: Any, y_pred: Any) -> None:
        """Match losses and outputs, with example tensors or symbols of both."""
        y_true = self._align(y_true, y_pred)
        self._check_weights(len(tree.flatten(y_pred)))
        nest = _with_weights(self._loss, self._loss_weights)
        nest = self._follow_outputs(nest, y_pred)
        names = self._names(y_pred)
        self._terms = list(_terms(nest, y_true, y_pred, names, ()))
        if len(self._terms) > 1:
            self.metrics = [metrics.Mean(name=f"{t.name}_loss") for t in self._terms]
        self.built = True

    def check_targets(self, y_true: Any, y_pred: Any) -> None:
        """Raise or warn if the first batch's targets do not fit losses or outputs.

        Args:
            y_true: tensors.
            y_pred: tensors or symbols.
        """
        y_true = self._align(y_true, y_pred)
        for term in self._terms:
            true, pred = _get_at(y_true, term.path), _get_at(y_pred, term.path)
            check_shapes(term.loss, term.output, true, pred)
            check_values(term.loss, term.output, true, pred)

    def check_heads(self, model: Layer, heads: object) -> None:
        """Warn if the last operation of an output and `from_logits` differ.

        Args:
            model: the model of the outputs.
            heads: Heads or None, in the structure of the outputs.
        """
        for term in self._terms:
            head = _get_at(heads, term.path)
            check_logits(model, term.loss, term.output, head)

    def _check_weights(self, outputs: int) -> None:
        """Check the weights of a loss for all outputs: unnamed, or one per output."""
        count = len(tree.flatten(self._loss_weights))
        has_weights = not tree.is_nested(self._loss) and tree.is_nested(
            self._loss_weights
        )
        shared = count == 1 and not isinstance(self._loss_weights, dict)
        if has_weights and count != outputs and not shared:
            raise ArgumentError(
                f"compile: `loss_weights` must match the number of losses, {outputs}; "
                f"received {count} weights"
            )

    def _follow_outputs(self, nest: Any, y_pred: Any) -> Any:
        """Return the nest of losses in the containers of the outputs."""
        if not tree.is_nested(nest):
            return tree.map_structure(lambda _: nest, y_pred)
        if isinstance(nest, dict) and not isinstance(y_pred, dict):
            names: Any = self.output_names
            if names is None and len(nest) == 1 and not tree.is_nested(y_pred):
                return next(iter(nest.values()))
            if names is None or set(nest) != set(names):
                raise ArgumentError(
                    f"compile: expected a dict of losses with the keys {names}, the "
                    f"names of the outputs; received the keys {list(nest)}"
                )
            return tree.pack_sequence_as(y_pred, [nest[name] for name in names])
        leaves = tree.flatten(y_pred)
        if (
            isinstance(nest, (list, tuple))
            and len(nest) == len(leaves)
            and not any(tree.is_nested(loss) for loss in nest)
        ):
            return tree.pack_sequence_as(y_pred, nest)
        return nest

    def _names(self, y_pred: Any) -> Any:
        names: Any = self.output_names
        leaves = tree.flatten(y_pred)
        if names is None or len(names) != len(leaves):
            names = [None] * len(leaves)
        return tree.pack_sequence_as(y_pred, names)

    def _align(self, y_true: Any, y_pred: Any) -> Any:
        """Return the targets in the containers of the outputs; None if missing."""
        if not tree.is_nested(y_true) and not tree.is_nested(y_pred):
            return y_true
        names = self.output_names
        aligned = pack_like(y_pred, y_true, names)
        if aligned is None:
            aligned = self._align_partly(y_true, y_pred)
        if aligned is None:
            named = f", or a dict by their names {names}" if names else ""
            raise ArgumentError(
                "the structures of targets and outputs differ: expected targets like "
                f"the outputs {describe(y_pred)}{named}; received {describe(y_true)}"
            )
        return aligned

    def _align_partly(self, y_true: Any, y_pred: Any) -> Any:
        """Return the targets for the outputs that have a loss."""
        names = self.output_names
        if isinstance(y_true, dict) and isinstance(y_pred, dict):
            if not set(y_true) <= set(y_pred):
                return None
            return {key: y_true.get(key) for key in y_pred}
        if isinstance(y_true, dict) and names:
            if len(names) != len(tree.flatten(y_pred)) or not set(y_true) <= set(names):
                return None
            return tree.pack_sequence_as(y_pred, [y_true.get(name) for name in names])
        losses, targets = tree.flatten(self._loss), tree.flatten(y_true)
        if isinstance(self._loss, dict) and names:
            losses = [self._loss.get(name) for name in names]
        if len(losses) != len(tree.flatten(y_pred)):
            return None
        if len(targets) != sum(loss is not None for loss in losses):
            return None
        remaining = iter(targets)
        leaves = [None if loss is None else next(remaining) for loss in losses]
        return tree.pack_sequence_as(y_pred, leaves)

    def __call__(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        """Return the total loss, a 0-d tensor; None if no output has a loss."""
        if not self.built:
            self.build(y_true, y_pred)
        y_true = self._align(y_true, y_pred)
        packed = pack_like(y_pred, sample_weight, self.output_names)
        sample_weight = sample_weight if packed is None else packed
        total = None
        for i, (path, loss, weight, _, output) in enumerate(self._terms):
            true, pred = _get_at(y_true, path), _get_at(y_pred, path)
            if true is None:
                raise ArgumentError(
                    f"loss {loss.name!r}: expected targets `y`; received None"
                )
            weights = sample_weight
            if tree.is_nested(sample_weight):
                weights = _get_at(sample_weight, path)
            term = ("loss", loss.name, output, true, pred, function_of(loss))
            label = describe_term("loss", loss.name, output)
            with add_term_to_shape_errors(*term), warn_of_pairs(label, true, pred):
                value = loss(true, pred, weights)
            if self.metrics:
                # Logs show each loss without its weight.
                batch = tree.flatten(pred)[0].shape[0]
                self.metrics[i].update_state(value, sample_weight=batch)
            if weight is not None:
                value = ops.multiply(value, weight)
            total = value if total is None else ops.add(total, value)
        return total


def _with_weights(loss: Any, weights: Any) -> Any:
    """Return the nest of losses with each loss and its weight as one leaf."""

    def leaf(loss: Any, weight: Any = None) -> Any:
        return None if loss is None else Weighted(loss, weight)

    if weights is None:
        return tree.map_structure(leaf, loss)
    if isinstance(weights, dict) and isinstance(loss, dict):
        if not set(weights) <= set(loss):
            raise ArgumentError(
                f"compile: loss_weights has the keys {sorted(weights)}; the losses "
                f"have {sorted(loss)}"
            )
        weights = {key: weights.get(key) for key in loss}
    losses, factors = tree.flatten(loss), tree.flatten(weights)
    if not tree.is_nested(loss) and len(factors) > 1:
        # One loss for all outputs, with one weight per output.
        return tree.map_structure(lambda weight: leaf(loss, weight), weights)
    if len(losses) != len(factors):
        raise ArgumentError(
            f"compile: expected {len(losses)} loss_weights, one for each loss; "
            f"received {len(factors)}"
        )
    return tree.pack_sequence_as(loss, map(leaf, losses, factors))


def _terms(
    nest: Any, y_true: Any, y_pred: Any, names: Any, path: Path
) -> Iterator[Term]:
    """Yield the terms of a nest of losses, in parallel with outputs and targets."""
    if nest is None:
        return
    if not tree.is_nested(nest):
        loss = get_loss(nest.loss, y_true, y_pred)
        in_list = not path or isinstance(path[-1], int)
        output = names if in_list else str(path[-1])
        output = None if tree.is_nested(output) else output
        yield Term(path, loss, nest.weight, _term_name(loss, output, path), output)
    elif isinstance(nest, (list, tuple)) and not isinstance(y_pred, (list, tuple)):
        for item in nest:  # several losses of one output
            yield from _terms(item, y_true, y_pred, names, path)
    else:
        for key, item in _items(nest):
            if item is None:
                continue
            if not _contains_key(
                y_pred, key
            ):  # the targets have the structure of the outputs
                location = "/".join(map(str, (*path, key)))
                raise ArgumentError(
                    f"compile: there is a loss for {location!r}; the outputs are "
                    f"{describe(y_pred)}, the targets {describe(y_true)}"
                )
            yield from _terms(item, y_true[key], y_pred[key], names[key], (*path, key))


def _items(nest: Any) -> Any:
    return nest.items() if isinstance(nest, dict) else enumerate(nest)


def _contains_key(structure: Any, key: Any) -> bool:
    if isinstance(structure, (list, tuple)):
        return key in range(len(structure))
    return isinstance(structure, dict) and key in structure


def _term_name(loss: Any, output: str | None, path: Path) -> str:
    """Return the path of the output; it ends in its name, or else in the loss's name.

    Args:
        loss: the loss of the output.
        output: the name of the output, or None.
        path: the path of the output.
    """
    last = loss.name if output is None else output
    return "/".join(map(str, (*path[:-1], last)))


def _get_at(structure: Any, path: Path) -> Any:
    for key in path:
        structure = structure[key]
    return structure
