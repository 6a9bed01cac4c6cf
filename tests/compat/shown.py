"""Results as text, the same for TensorFlow and for toolkit's TensorFlow names."""

import numpy as np

from toolkit.errors import ToolkitError


def shown(x):
    """Return the kind, dtype and values of a result as text."""
    if isinstance(x, dict):
        return "{" + ", ".join(f"{k}: {shown(x[k])}" for k in sorted(x)) + "}"
    if hasattr(x, "_fields") or type(x) in (list, tuple):
        name = "" if type(x) is tuple else type(x).__name__
        return f"{name}({', '.join(map(shown, x))})"
    if "Ragged" in type(x).__name__ and hasattr(x, "to_list"):
        return f"ragged {name_of(x.dtype)} {x.to_list()}"
    if type(x).__name__ == "SparseTensor":
        indices = np.asarray(x.indices).tolist()
        values = _numbers(np.asarray(x.values))
        return f"sparse {name_of(x.dtype)} {tuple(x.shape)} {indices} {values}"
    if hasattr(x, "element_spec"):
        return f"data{shown(list(x))[4:]}"
    if type(x).__name__ == "TensorSpec":
        return f"spec {name_of(x.dtype)} {tuple(x.shape)}"
    if isinstance(x, np.ndarray):
        return f"array {_numbers(x)}"
    if hasattr(x, "numpy"):
        return f"{name_of(x.dtype)} {_numbers(np.asarray(x.numpy()))}"
    return f"{type(x).__name__} {x}" if isinstance(x, np.generic) else repr(x)


def name_of(dtype):
    return getattr(dtype, "name", dtype)


def _numbers(array):
    if array.dtype.kind == "f":
        array = np.asarray([float(f"{v:.5g}") for v in array.ravel()]).reshape(
            array.shape
        )
    return str(array.tolist())


def result(call, names):
    """Return a call's result as text; "refused" for errors of toolkit or the system."""
    try:
        return shown(eval(call, names))
    except (ToolkitError, OSError):
        return "refused"
    except Exception as error:  # an unexpected error
        return f"raised {type(error).__name__}: {error}"


def mistakes(group, names):
    """Return the calls of a group whose results differ from the line below them."""
    lines = group.split("\n")[1:-1]
    wrong = [
        f"{call}: expected {expected.strip()}; received {actual}"
        for call, expected in zip(lines[::2], lines[1::2], strict=True)
        if (actual := result(call, names)) != expected.strip()
    ]
    return "\n".join(wrong)
