"""Other libraries' names over this one: `compat.tensorflow`."""
