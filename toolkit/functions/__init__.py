"""Python functions traced into graphs: `function` and its concrete functions."""
