"""The result of tuning as an experiment: a config file that `experiment=` takes."""

from __future__ import annotations

from collections.abc import Sequence

import yaml

from fedbench.config.overrides import parse_overrides
from fedbench.core.config_values import Tree
from fedbench.tuning.search import Study, Tuned

# keys that a run sets itself; the tuned values are in the presets
_LEFT_OUT = {
    "algo", "local", "presets", "seed", "device", "data_dir", "results_dir", "force", "tracker", "objective",
    "keep_state", "tuned_on", "engine",
}  # fmt: skip
_GROUPS = ("data", "data/partition", "model")


def tuned_experiment(studies: Sequence[Study], found: Sequence[Tuned], command: str) -> str:
    """Return the text of a config file with the chosen values of all methods as presets, and the tuning seeds.

    Runs under it train on all training examples, as without ``data.validation``, and refuse the tuning seeds.

    Args:
        studies: The searches, of one request.
        found: What they have found; methods without a chosen trial are left out.
        command: The command, for the comment on top.
    """
    first = studies[0]
    texts = [o.text for o in parse_overrides(first.after)]
    tree, choices = first.composer.composed(texts)
    defaults: list[Tree] = [{f"override /{g}": choices[g]} for g in _GROUPS if choices.get(g) is not None]
    if len(studies) == 1:
        defaults.append({"override /algo": first.method})
    content: Tree = {"defaults": defaults, **{k: v for k, v in tree.items() if k not in _LEFT_OUT}}
    content["engine"] = {"precision": tree["engine"]["precision"]}
    content["tuned_on"] = list(first.request.seeds)
    content["presets"] = {
        study.method: _preset(study, tuned)
        for study, tuned in zip(studies, found, strict=True)
        if tuned.best is not None
    }
    about = f"# @package _global_\n# Values chosen on validation examples by: {command}\n"
    return about + yaml.safe_dump(content, sort_keys=False)


def _preset(study: Study, tuned: Tuned) -> Tree:
    """Return all keys of a method and of its local solver, with the chosen values."""
    assert tuned.best is not None
    tree, _ = study.composer.composed(study.after)
    preset: Tree = {k: v for k, v in tree["algo"].items() if k != "_target_"} | {"local": dict(tree["local"])}
    for key, value in tuned.best.values.items():
        section, _, name = key.partition(".")
        (preset["local"] if section == "local" else preset)[name] = value
    return preset
