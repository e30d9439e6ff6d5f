"""Which of fedbench's own functions a configuration may call: those that a file of its config tree names.

fedbench has functions that write, remove and start things. A ``_target_`` in a file that came from elsewhere reaches
none of them.
"""

from __future__ import annotations

import re
from functools import cache

from fedbench.config.names import present
from fedbench.config.places import config_dir
from fedbench.core.errors import RequestError, nearest

# what a key may name: the config group, the package of its functions, and its kind for messages
_KINDS = {
    "algo": ("algo", "fedbench.algorithms", "method"),
    "data.source": ("data", "fedbench.data.sources", "data source"),
    "data.partition": ("data", "fedbench.data.partitions", "partition"),
    "model": ("model", "fedbench.models", "model"),
    "tracker": ("tracker", "fedbench.runs.trackers", "tracker"),
}
_TARGET = re.compile(r"^\s*_target_:\s*(fedbench\.[\w.]+)", re.MULTILINE)


def refuse_other_functions(target: str, what: str) -> None:
    """Refuse a function of fedbench that is none of those that a key may name; nothing is imported.

    Args:
        target: The dotted name, within fedbench.
        what: Dotted key of the component, such as ``data.source`` or ``algo.server``.

    Raises:
        RequestError: If the key may not name it.
    """
    found = next((kind for key, kind in _KINDS.items() if f"{what}.".startswith(f"{key}.")), None)
    if found is None:
        raise RequestError(f"{what}._target_={target}: {what} takes a function of your own, as FILE.FUNCTION")
    group, package, kind = found
    allowed = [name for name in _named(group) if name.startswith(f"{package}.")]
    if present(target) not in allowed:
        hint = nearest(target, allowed) or "."
        raise RequestError(
            f"{what}._target_={target} is not a {kind} of fedbench and is not executed{hint} "
            f"Allowed are the functions that conf/{group} names, and FILE.FUNCTION of the directory of --config-dir"
        )


@cache
def _named(group: str) -> tuple[str, ...]:
    """Return fedbench's functions that the files of a config group name, by their present paths."""
    texts = (file.read_text(encoding="utf-8") for file in (config_dir() / group).rglob("*.yaml"))
    return tuple(sorted({present(name) for text in texts for name in _TARGET.findall(text)}))
