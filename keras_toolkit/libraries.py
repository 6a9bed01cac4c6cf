"""Branches for libraries on Keras that list the backends that they accept.

BayesFlow computes derivatives with the functions of the backend. Its branch for
TensorFlow uses a GradientTape, as toolkit does.
"""

from __future__ import annotations


def before(text: str, addition: str) -> tuple[str, str]:
    """Return a text and its replacement: the addition, then the text."""
    return text, addition + text


_OTHER = "    case other:"
_DEFAULT = "        case _:"

# For each module: pairs of a text and its replacement.
BRANCHES: dict[str, tuple[tuple[str, str], ...]] = {
    "bayesflow.types.tensor": (
        before(
            _OTHER,
            '    case "toolkit":\n'
            "        from toolkit import Tensor as BackendTensor\n",
        ),
    ),
    "bayesflow.approximators.backend_approximators.backend_approximator": (
        before(
            _OTHER,
            '    case "toolkit":\n'
            "        from .tensorflow_approximator import (\n"
            "            TensorFlowApproximator as BaseBackendApproximator,\n"
            "        )\n",
        ),
    ),
    "bayesflow.approximators.backend_approximators.tensorflow_approximator": (
        # The module needs the names GradientTape and Tensor.
        ("import tensorflow as tf\n", "import toolkit as tf\n"),
    ),
    "bayesflow.utils.jacobian.vjp": (
        before(
            f"    {_OTHER}",
            '        case "toolkit":\n'
            "            import toolkit\n\n"
            "            with toolkit.GradientTape(persistent=True) as tape:\n"
            "                tape.watch(x)\n"
            "                fx = f(x)\n\n"
            "            def vjp_fn(projector):\n"
            "                return tape.gradient(fx, x, projector)\n",
        ),
    ),
    "bayesflow.utils.jacobian.jvp": (
        before(
            _DEFAULT,
            '        case "toolkit":\n'
            "            import toolkit\n\n"
            "            fx, _jvp = toolkit.ops.jvp(f, x, tangents)\n",
        ),
    ),
    "bayesflow.utils.tensor_utils": (
        before(
            f'{_DEFAULT}\n            raise NotImplementedError(f"Symbolic',
            '        case "toolkit":\n            return x.constant is None\n',
        ),
        before(
            f'{_DEFAULT}\n            raise NotImplementedError(f"Searchsorted',
            '        case "toolkit":\n'
            "            from toolkit.compat import tensorflow as tf\n\n"
            "            return tf.searchsorted(\n"
            '                sorted_sequence, values, side=side, out_type="int64"\n'
            "            )\n",
        ),
    ),
    "bayesflow.utils.devices": (
        before(
            _DEFAULT,
            '        case "toolkit":\n'
            "            import toolkit\n\n"
            '            return toolkit.distribution.list_devices("gpu")\n',
        ),
    ),
}
