"""Entry point of ``python -m fedbench``, which is equivalent to the ``fedbench`` command."""

import sys

from fedbench.cli import main

if __name__ == "__main__":
    sys.exit(main())
