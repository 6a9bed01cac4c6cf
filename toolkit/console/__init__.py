"""Terminal output: messages, progress, warnings, tracebacks."""
