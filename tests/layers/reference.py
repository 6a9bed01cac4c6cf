"""Small NumPy versions of layers in float64, written from the formulas."""

import numpy as np


def sigmoid(x):
    return 1.0 / (1.0 + np.exp(-x))


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def conv2d(x, kernel, bias, stride):
    """Convolve without padding; x: (batch, height, width, channels)."""
    k, m = kernel.shape[:2]
    rows = range(0, x.shape[1] - k + 1, stride)
    columns = range(0, x.shape[2] - m + 1, stride)
    windows = [[x[:, i : i + k, j : j + m] for j in columns] for i in rows]
    return np.einsum("hwbijc,ijcf->bhwf", np.array(windows), kernel) + bias


def simple_rnn(weights):
    kernel, recurrent, bias = weights

    def step(x, states):
        h = np.tanh(x @ kernel + states[0] @ recurrent + bias)
        return h, [h]

    return step


def lstm(weights):
    kernel, recurrent, bias = weights

    def step(x, states):
        h, c = states
        i, f, g, o = np.split(x @ kernel + h @ recurrent + bias, 4, axis=-1)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
        return h, [h, c]

    return step


def gru(weights, reset_after):
    kernel, recurrent, bias = weights
    inputs_bias, state_bias = bias if reset_after else (bias, 0.0 * bias)

    def step(x, states):
        (h,) = states
        x_z, x_r, x_n = np.split(x @ kernel + inputs_bias, 3, axis=-1)
        u_z, u_r, u_n = np.split(recurrent, 3, axis=-1)
        b_z, b_r, b_n = np.split(state_bias, 3)
        z = sigmoid(x_z + h @ u_z + b_z)
        r = sigmoid(x_r + h @ u_r + b_r)
        inner = r * (h @ u_n + b_n) if reset_after else (r * h) @ u_n
        h = z * h + (1 - z) * np.tanh(x_n + inner)
        return h, [h]

    return step


def recurrent(step, x, units, count, mask=None, backwards=False, states=None):
    """Return (outputs of all steps in computed order, last states)."""
    zeros = np.zeros((len(x), units))
    states = [zeros] * count if states is None else states
    output, outputs = zeros, []
    for t in range(x.shape[1])[:: -1 if backwards else 1]:
        is_valid = np.ones((len(x), 1), bool) if mask is None else mask[:, t : t + 1]
        new_output, new_states = step(x[:, t], states)
        output = np.where(is_valid, new_output, output)
        pairs = zip(new_states, states, strict=True)
        states = [np.where(is_valid, new, old) for new, old in pairs]
        outputs.append(output)
    return np.stack(outputs, 1), states


def attention(query, value, weights, allowed):
    """Compute multi-head attention; allowed: (batch, targets, sources)."""
    q_w, q_b, k_w, k_b, v_w, v_b, o_w, o_b = weights
    q = np.einsum("btf,fnh->bnth", query, q_w) + q_b[:, None]
    k = np.einsum("bsf,fnh->bnsh", value, k_w) + k_b[:, None]
    v = np.einsum("bsf,fnh->bnsh", value, v_w) + v_b[:, None]
    logits = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    shares = softmax(np.where(allowed[:, None], logits, -1e9))
    return np.einsum("bnth,nhf->btf", shares @ v, o_w) + o_b, shares
