"""Entry point of ``python -m fedbench``, which is equivalent to the ``fedbench`` command."""

from fedbench.cli import command_line

if __name__ == "__main__":
    command_line()
