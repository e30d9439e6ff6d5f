"""``fedbench completion SHELL`` prints a script of shtab, which completes words, flags, keys and choices by Tab."""

from __future__ import annotations

from argparse import Namespace

import shtab

from fedbench.commands.arguments import tree
from fedbench.config.comments import read
from fedbench.config.overrides import CONFIG_DIR, GROUPS, options

_CANDIDATES = "fedbench completion keys"


def execute(args: Namespace) -> int:
    """Print the script of a shell, or the keys and choices that the scripts ask for."""
    if args.shell == "keys":
        print("\n".join(_candidates()))
        return 0
    top, words = tree()
    top.add_argument("overrides", nargs="*")  # of run, whose word need not be typed
    for parser in (top, *words.values()):
        for action in parser._actions:
            if action.dest == "overrides":
                action.complete = shtab.cmd(_CANDIDATES)  # type: ignore[attr-defined]
    print(shtab.complete(top, shell=args.shell))
    if args.shell == "bash":  # its first argument may be a word or a key
        print(f"_shtab_fedbench_pos_0_choices+=({' '.join(_candidates())})")
    return 0


def _candidates() -> list[str]:
    """Return the keys of every run, and the choices of the groups: shells complete what follows = as a word."""
    keys = [k.name for k in read(CONFIG_DIR / "config.yaml").keys if not k.name.startswith("presets")]
    return [f"{key}=" for key in dict.fromkeys((*GROUPS, *keys))] + [c for group in GROUPS for c in options(group)]
