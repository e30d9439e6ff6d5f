"""From a composed configuration to a checked request: presets, identity and place of a run, without torch."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedbench.config.identity import WATCHING, Identity, core, identify
from fedbench.core.errors import RequestError, boolean, choice, integer, nearest, number
from fedbench.core.trees import Tree, leaves

_TOP = {
    "rounds", "participation", "sampling", "seed", "eval_every", "keep_clients", "improved_clients", "local", "data",
    "device", "engine", "init", "data_dir", "results_dir", "force", "model", "algo", "tracker",
}  # fmt: skip


def config_dir() -> Path:
    """Return the directory of the config tree: inside an installed package, beside the package in a checkout."""
    package = Path(__file__).resolve().parent.parent
    return package / "conf" if (package / "conf").is_dir() else package.parent / "conf"


def options(group: str, where: Path | None = None) -> list[str]:
    """Return the names of a config group, as typed on the command line; ``where`` in place of fedbench's own tree."""
    root = (where or config_dir()) / group
    files = root.rglob("*.yaml") if group == "experiment" else root.glob("*.yaml")
    named = (f for f in files if not f.name.startswith("_"))  # with an underscore: what others include
    return sorted(f.relative_to(root).as_posix().removesuffix(".yaml") for f in named)


@dataclass(frozen=True)
class Local:
    """The local solver and its work; ``batch_size`` None is a full batch."""

    lr: float
    momentum: float
    nesterov: bool
    weight_decay: float
    clip_norm: float | None
    batch_size: int | None
    epochs: tuple[int, int]
    steps: int | None
    crop: int
    flip: bool


@dataclass(frozen=True)
class Request:
    """A checked request for one run.

    Attributes:
        config: the resolved configuration, presets merged in.
        names: the choices of the groups: algo, data, model, experiment (or None).
        identity: Identity of the setting, the same for all seeds.
        path: the run's directory.
        departures: per key that differs from the chosen experiment: [there, here].
        overrides: as given on the command line.
    """

    config: Tree
    names: dict[str, str | None]
    identity: Identity
    path: Path
    departures: dict[str, list[Any]]
    overrides: tuple[str, ...]

    @property
    def digest(self) -> str:
        """Digest of the setting, which names the run's directory."""
        return self.identity.digest

    @property
    def setting(self) -> str:
        """The experiment, or the data set where none was chosen."""
        return str(self.names["experiment"] or self.names["data"])


def make_request(
    config: Tree, names: Mapping[str, str | None], overrides: Sequence[str] = (), baseline: Tree | None = None
) -> Request:
    """Check a resolved configuration and say where its run belongs.

    Args:
        config: plain containers, with ``presets``.
        names: the choices of the groups.
        overrides: the command line's, in Hydra's grammar.
        baseline: the same for the chosen experiment and algorithm without the command line's other overrides.

    Raises:
        RequestError: for unknown keys and values out of range.
    """
    algo = str(names["algo"])
    _refuse_changes_of_shape(config, overrides)
    merged = _whole(merge_presets(config, algo, overrides))
    check(merged)
    departures: dict[str, list[Any]] = {}
    if baseline is not None:
        here, there = (leaves(core(c)) for c in (merged, _whole(merge_presets(baseline, algo, ()))))
        for key in sorted(here.keys() | there.keys()):
            change = [there.get(key), here.get(key)]
            repeated = key.startswith("data.source.") and departures.get(key.replace("source.", "", 1)) == change
            if change[0] != change[1] and key.split(".")[0] not in WATCHING and not repeated:
                departures[key] = change
    identity = identify(merged)
    setting = str(names["experiment"] or names["data"])
    path = Path(merged["results_dir"]).expanduser() / setting / algo / identity.digest / f"seed_{merged['seed']}"
    return Request(merged, dict(names), identity, path, departures, tuple(overrides))


def merge_presets(config: Tree, algo: str, overrides: Sequence[str]) -> Tree:
    """Return the configuration with the experiment's settings for the chosen algorithm in place of its defaults.

    A key under ``presets.<algo>.local`` is one of ``local``, any other one of ``algo``. What the command line sets
    stays.

    Raises:
        RequestError: for a preset of a key that the algorithm does not have.
    """
    presets = config.get("presets") or {}
    config = {k: v for k, v in config.items() if k != "presets"}
    given = {key for o in overrides for key in _keys_of(o)}
    for group, values in (
        ("algo", {k: v for k, v in (presets.get(algo) or {}).items() if k != "local"}),
        ("local", (presets.get(algo) or {}).get("local") or {}),
    ):
        unknown = sorted(set(values) - set(config[group]))
        if unknown:
            raise RequestError(
                f"presets.{algo} sets {unknown[0]}, which {group} does not have; "
                f"it has {', '.join(k for k in config[group] if k != '_target_')}"
            )
        fresh = {k: v for k, v in values.items() if f"{group}.{k}" not in given}
        config = {**config, group: {**config[group], **fresh}}
    return config


def check(config: Tree) -> None:
    """Check what needs no data, model or algorithm.

    Raises:
        RequestError: for an unknown key or a value out of range.
    """
    _known("", config, _TOP)
    _known("engine.", config["engine"], {"mode", "cohort_size", "workers", "precision", "client_state", "profile"})
    _known("init.", config["init"], {"path"})
    rounds = integer("rounds", config["rounds"])
    every = integer("eval_every", config["eval_every"], at_least=1)
    integer("seed", config["seed"])
    keep = config["keep_clients"]
    if keep not in ("last", "all"):
        if not isinstance(keep, list):
            raise RequestError(f"keep_clients must be last, all or a list of rounds, got {keep!r}")
        for t in keep:
            if not (integer("keep_clients", t) % every == 0 or t == rounds) or t > rounds:
                raise RequestError(
                    f"keep_clients names round {t}, which is not evaluated with eval_every={every} and rounds={rounds}"
                )
    for name in ("improved_clients", "force"):
        boolean(name, config[name])
    participation(config)
    choice("sampling", config["sampling"], ("uniform", "size"))
    local(config)
    engine = config["engine"]
    choice("engine.mode", engine["mode"], ("auto", "loop", "stacked"))
    choice("engine.precision", engine["precision"], ("float32", "float64", "tf32", "bf16"))
    boolean("engine.profile", engine["profile"])
    choice("engine.client_state", engine["client_state"], ("auto", "device", "host", "file"))
    for name in ("cohort_size", "workers"):
        if engine[name] != "auto":
            integer(f"engine.{name}", engine[name], at_least=1, remedy="or auto")
    number("data.split", config["data"].get("split"), above=0, at_most=1)
    if config["data"].get("seed") is not None:
        integer("data.seed", config["data"]["seed"], remedy="or null for the run's own")
    boolean("data.download", config["data"].get("download"))
    choice("data.local_test", config["data"].get("local_test"), ("auto", "split", "official", "central", "others"))
    if config["data"].get("test_clients") is not None:
        integer("data.test_clients", config["data"]["test_clients"], at_least=1)
    if config["data"].get("clients") is not None:
        integer("data.clients", config["data"]["clients"], at_least=1)


def data_seed(config: Tree) -> int:
    """Return the seed of the partition and the split: the run's where ``data.seed`` is null."""
    own = config["data"]["seed"]
    return int(config["seed"] if own is None else own)


def participation(config: Tree) -> float | int:
    """Return a share of the clients as a float in (0, 1], or a number of clients as an int.

    Raises:
        RequestError: for anything else.
    """
    value = config["participation"]
    remedy = "1.0 is all clients, below 1 a share of them, a whole number above 1 so many"
    share = number("participation", value, above=0, remedy=remedy)
    if share <= 1:
        return share
    return integer("participation", value, at_least=1, remedy=remedy)


def local(config: Tree) -> Local:
    """Return the checked ``local`` section.

    Raises:
        RequestError: for an unknown key or a value out of range.
    """
    c = config["local"]
    names = {"optimizer", "lr", "momentum", "nesterov", "weight_decay", "clip_norm"}
    _known("local.", c, names | {"batch_size", "epochs", "steps", "crop", "flip"})
    choice("local.optimizer", c["optimizer"], ("sgd",))
    size, steps, clip = c["batch_size"], c["steps"], c["clip_norm"]
    return Local(
        lr=number("local.lr", c["lr"], above=0),
        momentum=number("local.momentum", c["momentum"], at_least=0, below=1),
        nesterov=boolean("local.nesterov", c["nesterov"]),
        weight_decay=number("local.weight_decay", c["weight_decay"], at_least=0),
        clip_norm=None if clip is None else number("local.clip_norm", clip, above=0, remedy="null for no clipping"),
        batch_size=None if size == "full" else integer("local.batch_size", size, at_least=1, remedy="or full"),
        epochs=_epochs(c["epochs"]),
        steps=None if steps is None else integer("local.steps", steps, at_least=1, remedy="null goes by local.epochs"),
        crop=integer("local.crop", c["crop"]),
        flip=boolean("local.flip", c["flip"]),
    )


def _epochs(value: object) -> tuple[int, int]:
    bounds = value if isinstance(value, list) else [value, value]
    if len(bounds) != 2:
        raise RequestError(f"local.epochs must be a whole number or [lo,hi], got {value!r}")
    low, high = (integer("local.epochs", v, at_least=1, remedy="or [lo,hi]") for v in bounds)
    if low > high:
        raise RequestError(f"local.epochs=[lo,hi] needs lo <= hi, got {value!r}")
    return low, high


def _known(prefix: str, section: Tree, names: set[str]) -> None:
    for key in section:
        if key not in names:
            allowed = ", ".join(sorted(prefix + n for n in names))
            hint = nearest(prefix + key, [prefix + n for n in names])
            raise RequestError(f"unknown key {prefix}{key}; the keys are {allowed}{hint}")


# sections that must be there, and be sections
_SECTIONS = ("local", "engine", "init", "data", "data.source", "data.noise", "model", "algo", "tracker")
# whole numbers, which may be typed as 1e3
_WHOLE = {
    "rounds", "eval_every", "seed", "participation", "local.batch_size", "local.steps", "local.epochs", "data.seed",
    "data.clients", "engine.cohort_size", "engine.workers",
}  # fmt: skip


def _whole(config: Tree, prefix: str = "") -> Tree:
    """Return the configuration with 1000 for 1e3 where a whole number belongs."""

    def value(key: str, v: Any) -> Any:
        if isinstance(v, dict):
            return _whole(v, f"{key}.")
        if key not in _WHOLE or (key == "participation" and v == 1):  # 1.0 is a share, and all
            return v
        return int(v) if isinstance(v, float) and v.is_integer() else v

    return {k: value(prefix + str(k), v) for k, v in config.items()}


def _refuse_changes_of_shape(config: Tree, overrides: Sequence[str]) -> None:
    for o in overrides:
        key = _key(o)
        if o.startswith("~"):
            raise RequestError(f"{o}: keys cannot be taken out; every key has a value (null where that means none)")
        if (
            o.startswith("+")
            and key.startswith("data.")
            and not key.startswith(("data.source.", "data.partition.", "data.noise."))
        ):
            raise RequestError(
                f"unknown key {key}; a data set has the keys that `fedbench data={{...}} --cfg job` shows"
            )
    for name in _SECTIONS:
        section: Any = config
        for part in name.split("."):
            section = section.get(part) if isinstance(section, dict) else None
        if not isinstance(section, dict):
            raise RequestError(f"{name} must be a section with keys, got {section!r}; `fedbench --cfg job` shows it")
    for name in ("data_dir", "results_dir"):
        if not isinstance(config.get(name), str) or not config[name]:
            raise RequestError(f"{name} must be a directory, got {config.get(name)!r}")


def _keys_of(override: str) -> list[str]:
    """Return the keys that an override sets; ``algo={a: 1, b: 2}`` sets algo.a and algo.b."""
    key, _, value = override.partition("=")
    inside = re.findall(r"[{,]\s*([A-Za-z_]\w*)\s*:", value) if value.lstrip().startswith("{") else []
    return [f"{_key(key)}.{name}" for name in inside] or [_key(override)]


def _key(override: str) -> str:
    return override.lstrip("+~").split("=", 1)[0].split("@", 1)[0]
