"""Public names of other libraries on toolkit: `compat.tensorflow`."""
