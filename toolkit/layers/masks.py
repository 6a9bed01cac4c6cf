"""Masks of tensors, and the masks of the outputs of a layer."""

from __future__ import annotations

from typing import Any

from toolkit import tree
from toolkit.console.frames import warn_once
from toolkit.core.masks import mask_of, set_mask
from toolkit.core.tensor import Tensor, bind
from toolkit.layers.input_spec import describe
from toolkit.ops.shape import reshape_p
from toolkit.ops.symbolic import KerasTensor, is_symbolic


def masks_of(structure: Any) -> Any:
    """Return the masks of the tensors in a structure, in the same structure."""
    if not tree.is_nested(structure):
        return mask_of(structure)
    return tree.map_structure(mask_of, structure)


def unmasked(x: Tensor) -> Tensor:
    """Return a new tensor of the same value, without a mask."""
    return bind(reshape_p, x, shape=x.shape)


def without_input_masks(inputs: Any, outputs: Any) -> Any:
    """Return the outputs; copy a tensor that is also an input, without its mask.

    If a layer returns an input unchanged, the output is a new tensor. Its mask can
    differ, and other layers still see the mask of the input.
    """
    input_ids = {id(x) for x in tree.flatten(inputs) if isinstance(x, Tensor)}
    return tree.map_structure(
        lambda x: unmasked(x) if id(x) in input_ids else x, outputs
    )


def any_mask(masks: object) -> bool:
    """Return whether a structure of masks and Nones contains a mask."""
    return masks is not None and any(m is not None for m in tree.flatten(masks))


def attach_masks(layer: Any, inputs: dict[str, Any], outputs: Any, mask: Any) -> Any:
    """Return the outputs of a call with their mask, which the layer computes.

    Args:
        layer: the layer.
        inputs: the arguments of the call, by name.
        outputs: its outputs.
        mask: the mask of the first argument.
    """
    is_masked = any_mask(mask)
    if not (is_masked or layer._computes_mask):
        return outputs
    outputs = without_input_masks(inputs, outputs)
    if not layer.supports_masking:
        if is_masked:
            warn_of_mask(layer)
        return outputs
    tensors = [x for x in tree.flatten(outputs) if isinstance(x, (Tensor, KerasTensor))]
    if all(mask_of(x) is not None for x in tensors):
        return outputs
    masks = layer.compute_mask(next(iter(inputs.values()), None), mask)
    if masks is None:
        return outputs
    for tensor, its_mask in zip(tensors, tree.flatten(masks), strict=False):
        if its_mask is not None and mask_of(tensor) is None:
            set_mask(tensor, its_mask)
    return outputs


def warn_of_mask(layer: Any) -> None:
    """Warn once that a layer drops the mask of its inputs."""
    warn_once(
        layer,
        f"{describe(layer)}: does not support masking; the next layers do not "
        "receive the mask of its inputs",
        topic="mask",
    )


def masks_in_graph(layer: Any, args: Any, kwargs: Any, mask: Any) -> list[KerasTensor]:
    """Return the mask symbols that Keras records as inputs of a call.

    Keras exchanges weights by position, so layers must have the same order. In Keras a
    mask that was not an argument, but was attached to the input, is an input of the
    recorded call if no argument was converted: one tensor of the layer's dtype, no
    keywords.
    """
    if "mask" in kwargs or mask is None:
        return []
    if layer._convert_input_args:
        is_single = len(args) == 1 and not kwargs and is_symbolic(args[0])
        if not is_single or args[0].dtype != layer.compute_dtype:
            return []
    return [x for x in tree.flatten(mask) if is_symbolic(x)]
