"""The part of Keras's Layer that belongs to the backend."""


class ToolkitLayer:
    """Add nothing to a layer of Keras."""
