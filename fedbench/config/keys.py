"""Keys of a configuration that say where, how or how closely a run is carried out, not what it computes."""

from __future__ import annotations

from typing import Any

from fedbench.config.names import present
from fedbench.core.trees import Tree, leaves

# keys that name files or directories of the user
USER_FILES = (
    "init.path", "data.file", "data.root", "data.json_train", "data.json_test", "data.train", "data.test",
    "data.partition.file",
)  # fmt: skip
# what is recorded of a run: part of its identity, since the files differ, but never a departure from a paper
WATCHING = frozenset({"eval_every", "keep_clients", "improved_clients", "metrics"})
# keys and sections that change no numbers, the precision of the engine aside; a number that eval_train_every leaves out
# of a round is missing there and the same elsewhere
_PLACES = (
    "device", "eval_train_every", "data_dir", "results_dir", "force", "tracker", "engine",
    "data.download", "data.mirrors", "keep_state", "objective", "tuned_on",
)  # fmt: skip

# Options that fedbench's own functions gained after their first release, each with the value that is what they did
# before. With this value an option is no part of a setting, so that runs made before it existed stay the same runs.
ADDED: dict[str, Tree] = {
    "fedbench.data.sources.mnist.load": {"standardise": "channel"},
    "fedbench.data.partitions.label.consecutive_classes": {"as_published": False},
}
# keys that came after runs were made, with the value under which a run is the one that it was without the key
_NEUTRAL: Tree = {
    "data.validation": 0,
    "local.schedule": "constant", "local.decay_factor": None, "local.decay_every": 1, "local.decay_at": None,
    "local.decay_to": 0,
}  # fmt: skip


def changes_no_numbers(key: str) -> bool:
    """Return whether a dotted key says where or how a run is carried out; its numbers do not depend on it."""
    return key != "engine.precision" and any(key == p or key.startswith(f"{p}.") for p in _PLACES)


def is_neutral(key: str, value: object) -> bool:
    """Return whether a dotted key has the value that runs had before the key existed."""
    return key in _NEUTRAL and value == _NEUTRAL[key]


def setting(config: Tree) -> Tree:
    """Return the dotted keys of a configuration that make its setting: all but the seed and what changes no numbers."""
    return {
        k: v
        for k, v in leaves(without_added(config)).items()
        if k != "seed" and not changes_no_numbers(k) and not is_neutral(k, v)
    }


def without_added(section: Any) -> Any:
    """Return a configuration, or a section of it, without the options of ``ADDED`` that have the value of old."""
    if not isinstance(section, dict):
        return section
    target = section.get("_target_")
    added = ADDED.get(present(target), {}) if isinstance(target, str) else {}
    return {k: without_added(v) for k, v in section.items() if k not in added or v != added[k]}
