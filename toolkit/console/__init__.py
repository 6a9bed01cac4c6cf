"""What the user sees in a terminal: messages, progress, warnings, tracebacks."""
