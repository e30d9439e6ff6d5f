"""The parsers of the command line, built from the table in ``arguments.yaml``.

This module avoids slow imports, so that help appears at once; ``cli`` imports the module of a
command when the command is typed.
"""

import argparse
import re
from pathlib import Path
from typing import Any, NoReturn

from fedbench.core.config_values import read_yaml
from fedbench.core.errors import RequestError, nearest

_TABLE = read_yaml(Path(__file__).with_name("arguments.yaml"))
COMMANDS: dict[str, Any] = _TABLE["commands"]
LISTED: list[str] = COMMANDS["list"]["arguments"]["group"]["choices"]
_TYPES = {"int": int, "float": float}


class Parser(argparse.ArgumentParser):
    """A parser that raises ``RequestError`` instead of ending the process."""

    def error(self, message: str) -> NoReturn:
        """Raise a RequestError that suggests the closest choice."""
        given = re.search(r"invalid choice: '(.*)' \(choose from (.*)\)", message)
        hint = nearest(given[1], re.findall(r"'([^']*)'", given[2])) if given else ""
        raise RequestError(f"{message}{hint or f'; see `{self.prog} --help`'}")


def tree() -> tuple[Parser, dict[str, Parser]]:
    """Return the parser of the command line, and the parsers of the commands by name."""
    shape = argparse.RawDescriptionHelpFormatter
    top = Parser(
        prog="fedbench",
        usage=_TABLE["usage"],
        description=_TABLE["about"],
        epilog=_TABLE["epilog"],
        formatter_class=shape,
    )
    top.add_argument("--version", action="store_true", help="print the version")
    below = top.add_subparsers(
        title="commands", metavar="COMMAND", prog="fedbench", parser_class=Parser
    )
    parsers = {}
    for command, facts in COMMANDS.items():
        parsers[command] = below.add_parser(
            command,
            help=facts["about"],
            description=facts["about"],
            epilog=facts.get("epilog"),
            allow_abbrev=False,
            argument_default=argparse.SUPPRESS,  # the functions define the defaults
            formatter_class=shape,
        )
        _add_arguments(parsers[command], facts["arguments"])
    return top, parsers


def _add_arguments(parser: Parser, arguments: dict[str, Any]) -> None:
    """Add arguments, given by name, to a parser.

    The options "shared" stand for a group of arguments that several commands share.
    """
    for names, options in arguments.items():
        if options == "shared":
            _add_arguments(parser, _TABLE["shared"][names])
            continue
        if "type" in options:
            options = options | {"type": _TYPES[options["type"]]}
        parser.add_argument(*names.split(", "), **options)
