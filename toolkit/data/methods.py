"""Dataset methods that stages add; the stub file lists them for editors."""


class Methods:
    """Base class of Data set; `transformation` and `source` add methods to it."""
