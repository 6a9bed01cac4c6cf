"""The name and version of the distribution that pip installs.

The import package is `toolkit`. On the package index another project has that name, so
the distribution has a different one.
"""

from __future__ import annotations

DISTRIBUTION = "toolkit-nn"
VERSION = "0.1.0"
__version__ = VERSION


def version() -> str:
    """Return the version of the package.

    Returns:
        A string.

    Example:
        >>> import toolkit
        >>> toolkit.version() == toolkit.__version__
        True
    """
    return VERSION


def requirement(*extras: str) -> str:
    """Return the requirement of pip for this package with extras, in quotes.

    >>> requirement("mpi")
    '"toolkit-nn[mpi]"'
    """
    return f'"{DISTRIBUTION}[{",".join(extras)}]"'


def install_command(*extras: str) -> str:
    """Return the command that installs the packages of extras.

    >>> install_command("mpi", "serve")
    'pip install "toolkit-nn[mpi,serve]"'
    """
    return f"pip install {requirement(*extras)}"
