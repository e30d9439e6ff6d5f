"""Keys of a configuration that say where, how or how closely a run is carried out, not what it computes."""

from __future__ import annotations

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
_PLACES = ("device", "eval_train_every", "data_dir", "results_dir", "force", "tracker", "engine", "data.download")


def changes_no_numbers(key: str) -> bool:
    """Return whether a dotted key says where or how a run is carried out; its numbers do not depend on it."""
    return key != "engine.precision" and any(key == p or key.startswith(f"{p}.") for p in _PLACES)


def setting(config: Tree) -> Tree:
    """Return the dotted keys of a configuration that make its setting: all but the seed and what changes no numbers."""
    return {k: v for k, v in leaves(config).items() if k != "seed" and not changes_no_numbers(k)}
