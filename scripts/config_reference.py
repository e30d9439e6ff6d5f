"""Write docs/configuration.md from the comments of the config tree.

    python scripts/config_reference.py

The page lists all configuration keys and all choices of the groups. `make docs` runs this script.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path

import yaml
from config_comments import Key, read

from fedbench.config.overrides import CONFIG_DIR, options

TARGET = Path(__file__).resolve().parent.parent / "docs" / "configuration.md"
GROUPS = {
    "algo": "The algorithm; its options are `algo.<key>`. [algorithms.md](algorithms.md) has a "
    "card for each.",
    "data": "A source with a partition; keys are `data.<key>`. [data.md](data.md) describes them.",
    "data/partition": "The assignment of examples to clients; keys are `data.partition.<key>`.",
    "model": "The model; keys are `model.<key>`. Each `data` choice names its default. "
    "[Models](simulation.md#models).",
    "objective": "The loss of local steps, for methods that leave it free; keys are "
    "`objective.<key>`. [Losses of your own](own_method.md#another-loss-fedlc).",
    "tracker": "Trackers that receive the rounds of a run in addition to its directory.",
    "availability": "The clients that take part in a round, and the results that arrive; keys are "
    "`availability.<key>`. This group and the four below describe the conditions around a method.",
    "attack": "Clients that attack; keys are `attack.<key>`.",
    "defence": "The server's defences against attacks; keys are `defence.<key>`.",
    "privacy": "Differential privacy of the clients; keys are `privacy.<key>`.",
    "compression": "Compression of the vectors that are sent; keys are `compression.<key>`.",
    "debug": "Shortcuts for a quick check.",
    "experiment": "One of a paper's setups: selects data, model and settings. `presets.<algo>` are "
    "its values for one algorithm, which replace that algorithm's defaults.",
}
HEAD = """\
# Configuration

This page is generated from the comments in `conf/` by `make docs`; edit the comments instead.

Every key can be set on the command line as `key=value`; unknown keys are errors. The command line
takes precedence over an experiment, and an experiment over the defaults below.
`fedbench --cfg job KEY=VALUE ...` prints the configuration of a run without running it. `null`
means that nothing is set, `???` that the key has no default and must be set.
"""


def page() -> str:
    """Return the text of docs/configuration.md."""
    keys = read(CONFIG_DIR / "config.yaml").keys
    main = [key for key in keys if key.name.split(".")[0] != "presets"]
    parts = [HEAD, "## Keys\n", "".join(_keys(main))]
    for group, about in GROUPS.items():
        choices = [_choice(group, name) for name in options(group)]
        parts.append(f"## {group}\n\n{_wrapped(about)}")
        parts.append("\n".join(choices))
    return "\n".join(parts)


def _choice(group: str, name: str) -> str:
    """Return the list item of a choice: its comment, its selections and its keys."""
    path = CONFIG_DIR / group / f"{name}.yaml"
    file = read(path)
    keys = [key for key in file.keys if not key.name.endswith("_target_")]
    settings = _selected(path)
    if file.is_global:
        settings += [f"{key.name}={key.value}" for key in keys if key.value]
        keys = []
    about = f": {file.about}" if file.about else ""
    lines = [_wrapped(f"- **{name}**{about}", "  ")]
    if settings:
        quoted = [f"`{setting}`" for setting in settings]
        lines.append(_wrapped(f"  - {' '.join(quoted)}", "    "))
    lines += _keys(keys, "  ")
    return "".join(lines)


def _selected(path: Path) -> list[str]:
    """Return the selections of a file's defaults list.

    They are choices of groups, and files of its own group that it extends.
    """
    tree = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    selected = []
    for entry in tree.get("defaults", []):
        if isinstance(entry, dict):
            ((key, name),) = entry.items()
            group = key.removeprefix("override ").lstrip("/").split("@")[0]
            if name is not None:
                selected.append(f"{group}={name}")
        elif entry != "_self_":
            base = entry.removesuffix("@_here_").removeprefix("/experiment/")
            selected.append(f"extends {base}")
    return selected


def _keys(keys: Iterable[Key], indent: str = "") -> Iterator[str]:
    for key in keys:
        value = f" = `{key.value}`" if key.value else ""
        comment = f": {key.comment}" if key.comment else ""
        if key.value or key.comment:
            yield _wrapped(f"{indent}- `{key.name}`{value}{comment}", f"{indent}  ")


def _wrapped(text: str, indent: str = "") -> str:
    if "`" not in text:
        text = text.replace("<-", "←").replace("<", "\\<")
    filled = textwrap.fill(
        text,
        100,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return f"{filled}\n"


if __name__ == "__main__":
    TARGET.write_text(page(), encoding="utf-8")
    print(f"wrote {TARGET}")
