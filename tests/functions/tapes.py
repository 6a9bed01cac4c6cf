"""Tapes for the tests of reverse passes."""

import toolkit as tk


class PythonTape(tk.GradientTape):
    """Tape whose reverse pass runs as Python code: it observes the pass."""

    def _pull_back(self, node, gs):
        return super()._pull_back(node, gs)
