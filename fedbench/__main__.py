"""``python -m fedbench`` is the ``fedbench`` command."""

import sys

from fedbench.cli import main

if __name__ == "__main__":
    sys.exit(main())
