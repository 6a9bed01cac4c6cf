"""`python -m toolkit`: see `toolkit.cli`."""

import os
import sys

if not sys.flags.safe_path and sys.path[0] == os.getcwd():
    # `python -m` searches the current folder first, and a module in it would be
    # imported instead of a module of the standard library.
    del sys.path[0]

from toolkit.cli import main

sys.exit(main())
