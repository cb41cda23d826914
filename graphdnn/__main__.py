"""``python -m graphdnn``."""

import sys

from graphdnn.cli import main

if __name__ == "__main__":
    sys.exit(main())
