"""`python -m toolkit`: see `toolkit.cli`."""

import sys

from toolkit.cli import main

sys.exit(main())
