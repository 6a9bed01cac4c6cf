"""NumPy references of the optimizers: `(g, p, state, lr, t, **arguments) -> p`.

`state` is a dict that starts empty; t is 1 in the first step.
"""

import numpy as np


def sgd(g, p, state, lr, t, momentum=0.0, nesterov=False):
    v = state["v"] = momentum * state.get("v", 0) - lr * g
    return p + momentum * v - lr * g if nesterov else p + v


def rmsprop(g, p, state, lr, t, rho=0.9, momentum=0.0, epsilon=1e-7, centered=False):
    v = state["v"] = rho * state.get("v", 0) + (1 - rho) * g**2
    if centered:
        m = state["m"] = rho * state.get("m", 0) + (1 - rho) * g
        v = v - m**2
    b = state["b"] = momentum * state.get("b", 0) + lr * g / np.sqrt(v + epsilon)
    return p - b


def adam(
    g, p, state, lr, t, beta_1=0.9, beta_2=0.999, epsilon=1e-7, amsgrad=False, **_
):
    m = state["m"] = beta_1 * state.get("m", 0) + (1 - beta_1) * g
    v = state["v"] = beta_2 * state.get("v", 0) + (1 - beta_2) * g**2
    if amsgrad:
        v = state["max"] = np.maximum(state.get("max", 0), v)
    # Epsilon is scaled as in the last lines of section 2 of the paper.
    scaled = epsilon / np.sqrt(1 - beta_2**t)
    return p - lr * (m / (1 - beta_1**t)) / (np.sqrt(v / (1 - beta_2**t)) + scaled)


def schedule_free(
    g, p, state, lr, t, beta_1=0.9, beta_2=0.999, epsilon=1e-8, warmup_steps=0
):
    lr = lr * min(t / warmup_steps, 1) if warmup_steps else lr
    z = state.get("z", state["start"])
    v = state["v"] = beta_2 * state.get("v", 0) + (1 - beta_2) * g**2
    x = (p - (1 - beta_1) * z) / beta_1
    z = state["z"] = z - lr * g / (np.sqrt(v / (1 - beta_2**t)) + epsilon)
    return beta_1 * (x + (z - x) / t) + (1 - beta_1) * z


def adagrad(g, p, state, lr, t, initial_accumulator_value=0.1, epsilon=1e-7):
    a = state["a"] = state.get("a", initial_accumulator_value) + g**2
    return p - lr * g / np.sqrt(a + epsilon)


def adadelta(g, p, state, lr, t, rho=0.95, epsilon=1e-7):
    a = state["a"] = rho * state.get("a", 0) + (1 - rho) * g**2
    d = g * np.sqrt((state.get("s", 0) + epsilon) / (a + epsilon))
    state["s"] = rho * state.get("s", 0) + (1 - rho) * d**2
    return p - lr * d


def adamax(g, p, state, lr, t, beta_1=0.9, beta_2=0.999, epsilon=1e-7):
    m = state["m"] = beta_1 * state.get("m", 0) + (1 - beta_1) * g
    u = state["u"] = np.maximum(beta_2 * state.get("u", 0), np.abs(g))
    return p - lr / (1 - beta_1**t) * m / (u + epsilon)


def nadam(g, p, state, lr, t, beta_1=0.9, beta_2=0.999, epsilon=1e-7):
    u, following = (beta_1 * (1 - 0.5 * 0.96**s) for s in (t, t + 1))
    product = state["product"] = state.get("product", 1) * u
    m = state["m"] = beta_1 * state.get("m", 0) + (1 - beta_1) * g
    v = state["v"] = beta_2 * state.get("v", 0) + (1 - beta_2) * g**2
    m_hat = following * m / (1 - product * following) + (1 - u) * g / (1 - product)
    return p - lr * m_hat / (np.sqrt(v / (1 - beta_2**t)) + epsilon)


def lamb(g, p, state, lr, t, beta_1=0.9, beta_2=0.999, epsilon=1e-7):
    d = p - adam(g, p, state, 1.0, t, beta_1, beta_2, 0.0)
    v = state["v"] / (1 - beta_2**t)
    d = d * np.sqrt(v) / (np.sqrt(v) + epsilon)
    return p - lr * np.linalg.norm(p) / np.linalg.norm(d) * d


def lion(g, p, state, lr, t, beta_1=0.9, beta_2=0.99):
    m = state.get("m", 0)
    state["m"] = beta_2 * m + (1 - beta_2) * g
    return p - lr * np.sign(beta_1 * m + (1 - beta_1) * g)


def ftrl(
    g,
    p,
    state,
    lr,
    t,
    learning_rate_power=-0.5,
    initial_accumulator_value=0.1,
    l1_regularization_strength=0.0,
    l2_regularization_strength=0.0,
    l2_shrinkage_regularization_strength=0.0,
    beta=0.0,
):
    n = state.get("n", initial_accumulator_value)
    new = state["n"] = n + g**2
    power, l1 = -learning_rate_power, l1_regularization_strength
    l2 = l2_regularization_strength + beta / (2 * lr)
    sigma = (new**power - n**power) / lr
    shrink = 2 * l2_shrinkage_regularization_strength * p
    z = state["z"] = state.get("z", 0) + g + shrink - sigma * p
    q = new**power / lr + 2 * l2
    return np.where(np.abs(z) > l1, (np.sign(z) * l1 - z) / q, 0)


def adafactor(
    g,
    p,
    state,
    lr,
    t,
    beta_2_decay=-0.8,
    epsilon_1=1e-30,
    epsilon_2=1e-3,
    clip_threshold=1.0,
    relative_step=True,
):
    decay = 1 - t**beta_2_decay
    square = g**2 + epsilon_1
    if g.ndim > 1:
        for name, axis in (("r", -1), ("c", -2)):
            fresh = square.mean(axis)
            state[name] = decay * state.get(name, 0) + (1 - decay) * fresh
        r = state["r"] / state["r"].mean(-1, keepdims=True)
        v = r[..., None] * state["c"][..., None, :]
    else:
        v = state["v"] = decay * state.get("v", 0) + (1 - decay) * square
    u = g / np.sqrt(v)
    u = u / max(1, np.sqrt((u**2).mean()) / clip_threshold)
    rate = min(lr, t**-0.5) if relative_step else lr
    return p - max(epsilon_2, np.sqrt((p**2).mean())) * rate * u


def muon(g, p, state, lr, t, momentum=0.95, nesterov=True, rms_rate=0.2, **_):
    if p.ndim != 2:
        return adam(g, p, state, lr, t)
    m = state["m"] = momentum * state.get("m", 0) + g
    d = g + momentum * m if nesterov else m
    left, sizes, right = np.linalg.svd(d, full_matrices=False)
    sizes = sizes / (np.linalg.norm(d) + 1e-7)
    for _ in range(5):  # each step applies an odd polynomial to the singular values
        sizes = 3.4445 * sizes - 4.7750 * sizes**3 + 2.0315 * sizes**5
    if rms_rate is not None:
        lr = lr * rms_rate * np.sqrt(max(p.shape))
    return p - lr * (left * sizes) @ right


def clipped(gs, clipnorm=None, clipvalue=None, global_clipnorm=None):
    """Return the clipped gradients."""
    if clipvalue is not None:
        return [np.clip(g, -clipvalue, clipvalue) for g in gs]
    norms = [np.linalg.norm(g) for g in gs]
    if clipnorm is not None:
        return [g * min(1, clipnorm / norm) for g, norm in zip(gs, norms, strict=True)]
    if global_clipnorm is not None:
        return [g * min(1, global_clipnorm / np.linalg.norm(norms)) for g in gs]
    return gs


def train(
    rule,
    parameters,
    steps,
    rate,
    weight_decay=None,
    use_ema=False,
    ema_momentum=0.99,
    ema_overwrite_frequency=None,
    loss_scale_factor=None,
    gradient_accumulation_steps=None,
    clip=None,
    **arguments,
):
    """Return the parameters and their averages after steps with these gradients.

    `rule` may be a list with one rule per parameter.
    """
    ps, every = list(parameters), gradient_accumulation_steps or 1
    states = [{"start": p} for p in ps]
    averages, waiting = [0.0] * len(ps), []
    for i, gs in enumerate(steps):
        updates = i // every
        waiting.append([g / (loss_scale_factor or 1) for g in gs])
        if len(waiting) == every:
            means = [np.mean(gradients, 0) for gradients in zip(*waiting, strict=True)]
            lr = rate(updates) if callable(rate) else rate
            if weight_decay:
                ps = [p - p * weight_decay * lr for p in ps]
            gs = clipped(means, **(clip or {}))
            ps = [
                rule(g, p, state, lr, updates + 1, **arguments)
                for g, p, state in zip(gs, ps, states, strict=True)
            ]
            waiting = []
            keep = ema_momentum if updates else 0
            averages = [
                keep * a + (1 - keep) * p for a, p in zip(averages, ps, strict=True)
            ]
            if use_ema and ema_overwrite_frequency:
                if (updates + 1) % ema_overwrite_frequency == 0:
                    ps = list(averages)
    return ps, averages
