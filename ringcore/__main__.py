"""``python -m ringcore``: the command line, also where the console script is not on the PATH."""

import sys

from ringcore.cli import main

if __name__ == "__main__":
    sys.exit(main())
