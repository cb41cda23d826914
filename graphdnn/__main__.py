"""``python -m graphdnn``."""

import sys

from graphdnn_command import main

if __name__ == "__main__":
    sys.exit(main())
