"""`python -m themis` is the command `themis`."""

import sys

from themis.cli import main

if __name__ == "__main__":
    sys.exit(main())
