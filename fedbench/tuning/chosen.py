"""The result of tuning as an experiment: a config file for `experiment=`."""

from collections.abc import Sequence

import yaml

from fedbench.config.overrides import ADDITIONS
from fedbench.core.config_values import Tree
from fedbench.tuning.search import Tuned

# keys that each run sets itself; the tuned values are in the presets
_LEFT_OUT = {
    "algo",
    "local",
    "presets",
    "seed",
    "device",
    "data_dir",
    "results_dir",
    "force",
    "tracker",
    "tuned_by",
    "keep_state",
    "tuned_on",
    "engine",
}
_GROUPS = ("data", "data/partition", "model", *ADDITIONS)


def tuned_experiment(searches: Sequence[Tuned], command: str) -> str:
    """Return the text of a config file with the chosen values of all methods as presets.

    Runs of this experiment train on all training examples, as without ``data.validation``, and
    refuse the tuning seeds.

    Args:
        searches: Results of the searches of one request. Methods without a chosen trial are left
            out.
        command: The command, for the comment at the top.
    """
    study = searches[0].study
    tree, choices = study.composer.composed(study.after)
    groups = [group for group in _GROUPS if choices.get(group) not in (None, "none")]
    defaults = [{f"override /{group}": choices[group]} for group in groups]
    if len(searches) == 1:
        defaults.append({"override /algo": study.method})
    settings = {key: value for key, value in tree.items() if key not in _LEFT_OUT}
    chosen = [tuned for tuned in searches if tuned.best is not None]
    content = {
        "defaults": defaults,
        **settings,
        "engine": {"precision": tree["engine"]["precision"]},
        "tuned_on": list(study.request.seeds),
        "presets": {tuned.study.method: _preset(tuned) for tuned in chosen},
    }
    about = f"# @package _global_\n# Values chosen on validation examples by: {command}\n"
    return about + yaml.safe_dump(content, sort_keys=False)


def _preset(tuned: Tuned) -> Tree:
    """Return all keys of a method and its local solver, with the chosen values."""
    tree, _ = tuned.study.composer.composed(tuned.study.after)
    for key, value in tuned.values.items():
        section, _, name = key.partition(".")
        tree[section][name] = value
    del tree["algo"]["_target_"]
    preset: Tree = tree["algo"] | {"local": tree["local"]}
    return preset
