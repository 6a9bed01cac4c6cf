"""The methods of data sets that stages add; the stub beside lists them for editors."""


class Methods:
    """Base of Dataset: `transformation` and `source` make a stage a method of it."""
