"""Recurrent cells along a sequence: scans with the name of their cell.

Each is a composite whose body is the scan of its cell, with the same computation. The
name lets other code use a whole implementation of the cell, as ONNX files do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from toolkit.control_flow.loops import run_scan, scan_p
from toolkit.core.tensor import Tensor, bind
from toolkit.core.trace import decomposable_as
from toolkit.ir import PRIMITIVES, Primitive


def _body(*inputs: Tensor, facts: Any, **attrs: Any) -> Any:
    return bind(scan_p, *inputs, **attrs)


def _declare_recurrent(name: str) -> Primitive:
    """Declare a scan with a name and attributes: pairs of names and values."""

    def spec(*specs: Any, facts: Any, **attrs: Any) -> Any:
        return scan_p.spec(*specs, **attrs)

    def vjp(g: Any, y: Any, *inputs: Tensor, facts: Any, **attrs: Any) -> Any:
        # a rule receives a single result without a tuple
        if len(attrs["body"].outputs) == 1:
            g, y = (g,), (y,)
        return scan_p.vjp(g, y, *inputs, **attrs)  # type: ignore[misc, operator]

    return decomposable_as(name, spec, _body, vjp)


lstm_p: Primitive = _declare_recurrent("lstm")
gru_p: Primitive = _declare_recurrent("gru")
rnn_p: Primitive = _declare_recurrent("rnn")


def run_recurrence(
    name: str,
    facts: dict[str, Any],
    f: Callable[[Any, Any], tuple[Any, Any]],
    init: Any,
    xs: Any,
    reverse: bool,
) -> tuple[Any, Any]:
    """Run `scan` as one node with the name of its cell, if nothing differentiates it.

    Args:
        name: "lstm", "gru" or "rnn".
        facts: attributes of the cell. The first values that f carries are the cell's
            states, the first of xs are its projected inputs; the first outer value that
            f reads is the recurrent kernel.
        f, init, xs, reverse: as for `scan`.
    """
    label = PRIMITIVES[name], tuple(facts.items())
    return run_scan(f, init, xs, None, reverse, 1, label)
