"""``python -m proxlearn``: the console script without an installation."""

import sys

from proxlearn.cli import main

sys.exit(main())
