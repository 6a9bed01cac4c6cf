"""Recurrent layers: one compiled loop over the steps of the sequences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from keras.src import tree

from toolkit import ops
from toolkit.core.trace import Trace


def rnn(
    step_function: Callable[..., Any],
    inputs: Any,
    initial_states: Any,
    go_backwards: bool = False,
    mask: Any = None,
    constants: Any = None,
    unroll: bool = False,
    input_length: Any = None,
    time_major: bool = False,
    zero_output_for_mask: bool = False,
    return_all_outputs: bool = True,
) -> tuple[Any, Any, Any]:
    """Run a step function over the time axis.

    Args:
        step_function: `(inputs, states) -> (output, new states)` of one step.
        inputs: a structure of tensors (batch, steps, ...).
        initial_states: the states before the first step.
        go_backwards: whether to start at the last step; outputs are in that order.
        mask: (batch, steps), or (batch, steps, 1); a step where it is False leaves the
            states unchanged.
        constants: tensors that each step receives after the states.
        unroll: whether to repeat the step in the graph instead of looping.
        input_length: the number of steps; ignored: the inputs have it.
        time_major: whether the axes are (steps, batch, ...).
        zero_output_for_mask: whether the output of a masked step is 0, or the output of
            the step before.
        return_all_outputs: whether to return the outputs of all steps, or the last one.

    Returns:
        (last output, outputs, states).
    """
    if not time_major:
        inputs = tree.map_structure(_swap_batch_and_steps, inputs)
    xs = {"inputs": inputs}
    if mask is not None:
        mask = ops.cast(mask, "bool")
        mask = ops.expand_dims(mask, -1) if len(mask.shape) == 2 else mask
        xs["mask"] = mask if time_major else _swap_batch_and_steps(mask)
    constants = list(constants or ())
    states = list(initial_states)

    def run_step(states: Any, x: Any) -> tuple[Any, Any]:
        output, new_states = step_function(x["inputs"], (*states, *constants))
        return output, _in_dtypes_of(states, new_states)

    def body(carry: Any, x: Any) -> tuple[Any, Any]:
        states, previous = carry
        output, new_states = run_step(states, x)
        if mask is not None:
            last = ops.zeros_like(output) if zero_output_for_mask else previous
            output = _select(x["mask"], output, last)
            new_states = tree.map_structure(
                lambda new, old: _select(x["mask"], new, old), new_states, states
            )
        return (new_states, output), output if return_all_outputs else None

    first = tree.map_structure(lambda x: x[-1 if go_backwards else 0], xs)
    spec = _output_spec(run_step, states, first)
    carry = (states, ops.zeros(spec.shape, spec.dtype))
    (states, last), outputs = ops.scan(
        body, carry, xs, reverse=go_backwards, unroll=bool(unroll) or 1
    )
    if outputs is None:
        outputs = ops.expand_dims(last, 0)
    elif go_backwards:
        outputs = ops.flip(outputs, axis=0)
    return last, outputs if time_major else _swap_batch_and_steps(outputs), states


def _output_spec(run_step: Callable[..., Any], states: Any, x: Any) -> Any:
    """Return shape and dtype of the output of one step, from a trace without effect."""
    with Trace("rnn"):
        return ops.convert_to_tensor(run_step(states, x)[0]).spec


def _in_dtypes_of(old: Any, new: Any) -> Any:
    """Return the new states, as a structure like the old ones and in their dtypes."""
    new = new if tree.is_nested(new) else [new]
    leaves = [
        ops.cast(value, previous.dtype)
        for value, previous in zip(tree.flatten(new), tree.flatten(old), strict=True)
    ]
    return tree.pack_sequence_as(old, leaves)


def _swap_batch_and_steps(x: Any) -> Any:
    return ops.swapaxes(x, 0, 1)


def _select(mask: Any, new: Any, old: Any) -> Any:
    """Return `new` for the rows where the mask, (batch, 1), holds, else `old`."""
    return ops.where(ops.reshape(mask, (-1, *(1,) * (len(new.shape) - 1))), new, old)


def cudnn_ok(*args: Any, **kwargs: Any) -> bool:
    """Tell whether a layer needs cuDNN: no layer does, every loop is compiled."""
    return False


def lstm(
    inputs: Any,
    initial_state_h: Any,
    initial_state_c: Any,
    mask: Any,
    kernel: Any,
    recurrent_kernel: Any,
    bias: Any,
    activation: Callable[..., Any],
    recurrent_activation: Callable[..., Any],
    return_sequences: bool = False,
    go_backwards: bool = False,
    unroll: bool = False,
) -> tuple[Any, Any, Any]:
    """Run an LSTM; the inputs of all steps are projected by one product of matrices.

    Returns:
        (last output, outputs, [h, c]).

    Raises:
        NotImplementedError: with a mask. Keras then calls `rnn`, which computes the
            output of a masked step.
    """
    _refuse_mask(mask)

    def step(x: Any, states: Any) -> tuple[Any, Any]:
        h, c = states
        gates = x + ops.matmul(h, recurrent_kernel)
        i, f, g, o = ops.split(gates, 4, axis=-1)
        c = recurrent_activation(f) * c + recurrent_activation(i) * activation(g)
        h = recurrent_activation(o) * activation(c)
        return h, [h, c]

    return rnn(
        step,
        _project(inputs, kernel, bias),
        [initial_state_h, initial_state_c],
        go_backwards=go_backwards,
        unroll=unroll,
        return_all_outputs=return_sequences,
    )


def gru(
    inputs: Any,
    initial_state: Any,
    mask: Any,
    kernel: Any,
    recurrent_kernel: Any,
    bias: Any,
    activation: Callable[..., Any],
    recurrent_activation: Callable[..., Any],
    return_sequences: bool = False,
    go_backwards: bool = False,
    unroll: bool = False,
    reset_after: bool = True,
) -> tuple[Any, Any, Any]:
    """Run a GRU; the inputs of all steps are projected by one product of matrices.

    Returns:
        (last output, outputs, [h]).

    Raises:
        NotImplementedError: with a mask. Keras then calls `rnn`, which computes the
            output of a masked step.
    """
    _refuse_mask(mask)
    biases = ops.unstack(bias) if bias is not None and reset_after else (bias, None)
    units = recurrent_kernel.shape[0]

    def step(x: Any, states: Any) -> tuple[Any, Any]:
        (h,) = states
        if reset_after:
            product = _add(ops.matmul(h, recurrent_kernel), biases[1])
            z, r = _gates(x, product[..., : 2 * units])
            candidate = x[..., 2 * units :] + r * product[..., 2 * units :]
        else:
            z, r = _gates(x, ops.matmul(h, recurrent_kernel[:, : 2 * units]))
            product = ops.matmul(r * h, recurrent_kernel[:, 2 * units :])
            candidate = x[..., 2 * units :] + product
        h = z * h + (1 - z) * activation(candidate)
        return h, [h]

    def _gates(x: Any, product: Any) -> Any:
        gates = recurrent_activation(x[..., : 2 * units] + product)
        return gates[..., :units], gates[..., units:]

    return rnn(
        step,
        _project(inputs, kernel, biases[0]),
        [initial_state],
        go_backwards=go_backwards,
        unroll=unroll,
        return_all_outputs=return_sequences,
    )


def bidirectional_lstm(*args: Any, **kwargs: Any) -> Any:
    """Refuse: Keras then runs the two directions one by one, each compiled."""
    raise NotImplementedError("toolkit has no fused bidirectional LSTM")


def bidirectional_gru(*args: Any, **kwargs: Any) -> Any:
    """Refuse: Keras then runs the two directions one by one, each compiled."""
    raise NotImplementedError("toolkit has no fused bidirectional GRU")


def _refuse_mask(mask: Any) -> None:
    if mask is not None:
        raise NotImplementedError("a mask needs the output of masked steps")


def _project(inputs: Any, kernel: Any, bias: Any) -> Any:
    return _add(ops.matmul(inputs, kernel), bias)


def _add(x: Any, bias: Any) -> Any:
    return x if bias is None else x + bias
