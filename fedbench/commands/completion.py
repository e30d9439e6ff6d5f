"""``fedbench completion SHELL``: a shtab script that completes commands, keys and choices."""

import shtab

from fedbench.commands.arguments import tree
from fedbench.commands.result import CommandResult
from fedbench.config.overrides import CONFIG_DIR, GROUPS, options
from fedbench.core.config_values import leaves, read_yaml

_CANDIDATES = "fedbench completion keys"


def execute(shell: str) -> CommandResult:
    """Print the script for a shell, or the keys and choices that the scripts request."""
    if shell == "keys":
        print("\n".join(_candidates()))
        return CommandResult()
    top, parsers = tree()
    top.add_argument("overrides", nargs="*")  # of ``run``, whose name may be omitted
    for parser in (top, *parsers.values()):
        for action in parser._actions:
            if action.dest == "overrides":
                action.complete = shtab.cmd(_CANDIDATES)  # type: ignore[attr-defined]
    print(shtab.complete(top, shell=shell))
    if shell == "bash":  # the first argument may be a command or a key
        print(f"_shtab_fedbench_pos_0_choices+=({' '.join(_candidates())})")
    return CommandResult()


def _candidates() -> list[str]:
    """Return the keys, and the choices of groups; shells complete the text after = separately."""
    tree = read_yaml(CONFIG_DIR / "config.yaml")
    keys = [key for key in leaves(tree) if key not in ("defaults", "presets")]
    choices = [choice for group in GROUPS for choice in options(group)]
    return [*(f"{key}=" for key in dict.fromkeys((*GROUPS, *keys))), *choices]
