"""Every file of the config tree composes into a configuration, and means what its name says."""

from dataclasses import FrozenInstanceError

import pytest
from command_line import write_files
from omegaconf import OmegaConf
from omegaconf.errors import MissingMandatoryValue
from tools import composed

from fedbench.config.compose import Composer, compose_run, merge_presets, resolved
from fedbench.config.overrides import ADDITIONS, GROUPS, options, parse_overrides
from fedbench.core.errors import RequestError

CHOICES = [(g, name) for g in GROUPS for name in options(g)]


@pytest.mark.parametrize(
    ("group", "name"),
    [  # tests/papers compose the experiments, too: some are enough here
        pytest.param(*c, marks=[pytest.mark.slow] if c[0] == "experiment" and n % 6 else [])
        for n, c in enumerate(CHOICES)
    ],
)
def test_every_choice_makes_a_configuration(group, name, tmp_path):
    needed = {
        "leaf_json": ["data.train=t.json"],
        "imagefolder": ["data.root=img"],
        "npz": ["data.file=x.npz"],
        "huggingface": ["data.root=d"],
    }
    config = compose_run([f"{group}={name}", *needed.get(name, [])])
    assert len(config.digest) == 10
    if group == "data":
        assert config.names.model in options("model")  # each data set names its default


def test_the_model_can_be_chosen_for_any_data_set():
    assert composed("data=cifar10_iid")[1]["model"] == "simplecnn"
    assert composed("data=cifar10_iid", "model=mlp")[1]["model"] == "mlp"
    assert composed("model=mlp", "data=cifar10_iid")[1]["model"] == "mlp"


def test_the_partition_can_be_chosen_for_any_data_set():
    tree, _ = composed("data=cifar10_dir0.05", "data/partition=iid")
    assert tree["data"]["partition"] == {"_target_": "fedbench.data.partitions.basic.iid"}


@pytest.mark.parametrize(
    ("name", "alpha_beta"),
    [
        ("0_0", 0),
        ("0.5_0.5", 0.5),
        ("1_1", 1),
        ("iid", None),
    ],
)
def test_synthetic_names_say_alpha_and_beta(name, alpha_beta):
    data = composed(f"data=synthetic_{name}")[0]["data"]
    source = data["source"]
    assert source["alpha"] == source["beta"] == alpha_beta
    assert source["size_sigma"] == 2
    assert data["clients"] == 30


def test_presets_may_set_the_local_solver():
    config = {
        "presets": {"a": {"x": 1, "local": {"lr": 3}}},
        "algo": {"x": 0, "y": 0},
        "local": {"lr": 1, "momentum": 0},
    }
    merged = merge_presets(config, "a", {"local.momentum"})
    assert merged == {
        "algo": {"x": 1, "y": 0},
        "local": {"lr": 3, "momentum": 0},
    }
    assert merge_presets(config, "a", {"local.lr", "algo.x"}) == {
        "algo": {"x": 0, "y": 0},
        "local": config["local"],
    }
    assert merge_presets(config, "b", set())["algo"] == config["algo"]
    unknown = {**config, "presets": {"a": {"z": 1}}}
    with pytest.raises(RequestError, match="presets.a sets algo.z, which does not exist"):
        merge_presets(unknown, "a", set())
    for wrong in (3, {"a": 0.1}):
        with pytest.raises(RequestError, match=r"^presets\.a must be a section with keys, got "):
            merge_presets({**config, "presets": wrong}, "a", set())


SAME = """seed=3 device=cpu engine.mode=loop engine.cohort_size=3 engine.workers=2 results_dir=x
    data_dir=x tracker=wandb force=true algo.server_lr=1"""
OTHERS = "rounds=3 engine.precision=float64 data.seed=1 eval_every=2 algo=fedprox model=mlp"


@pytest.mark.parametrize("typed", SAME.split())
def test_keys_that_are_no_part_of_a_setting(typed):
    assert compose_run([typed]).digest == compose_run([]).digest


def test_keys_that_are_part_of_a_setting():
    typed = OTHERS.split()
    digests = {compose_run([key]).digest for key in typed}
    assert len(digests | {compose_run([]).digest}) == len(typed) + 1


@pytest.mark.parametrize(
    "typed",
    [
        [],
        ["experiment=adafedadam/table5_synthetic", "algo=fedadam", "rounds=3"],
        [
            "data.seed=3",
            "data=mnist_dirmin0.1",
            "data/partition=shards",
            "model=mlp",
            "model.hidden=[7]",
            "seed=2",
        ],
        [
            "algo={server_lr: 0.5}",
            "algo=fedprox",
            "rounds=${seed}",
            "algo.mu=null",
            "local.epochs=[1,2]",
        ],
        ["+data.source.more={a: [1]}", "algo.server_lr=2"],
        ["experiment=smoke", "algo=fedprox", "algo.mu=2"],  # it sets keys of its own method
        ["algo=fedcorr_adafed", "data={seed: 3, noise: {level: 0.1}}", "algo.server={gamma: 2}"],
    ],
)
def test_the_composer_composes_as_hydra_does(typed):
    """It leaves out Hydra's own groups, and keeps what the choices of groups make."""
    for _ in range(2):
        tree, chosen = Composer().composed(typed, resolve=True)
    by_hydra, choices = composed(*typed)
    given = {key for o in parse_overrides(typed) for key in o.keys}
    wanted = merge_presets(by_hydra, choices["algo"], given)
    assert tree == {k: v for k, v in wanted.items() if v or k not in ADDITIONS}
    assert {group: chosen[group] for group in choices} == choices


def test_departures_name_what_differs_from_the_experiment():
    chosen = ["experiment=adafedadam/table5_synthetic", "algo=adafedadam"]
    more = ["rounds=10", "local.momentum=0.9", "seed=7", "eval_every=5", "algo.alpha=2"]
    composer = Composer()
    departures = composer.config([*chosen, *more]).departures
    assert departures == {
        "algo.alpha": [1, 2],
        "local.momentum": [0, 0.9],
        "rounds": [1000, 10],
    }
    assert composer.config(chosen).departures == {}
    assert composer.config(more[:3]).departures == {}  # of no experiment


def test_values_are_typed_once_and_for_all(tmp_path, monkeypatch):
    """The configuration has no text for numbers, no ~, and no number that may be two things."""
    monkeypatch.setenv("HOME", str(tmp_path))
    typed = "rounds=1e1 participation=1 local.epochs=3 local.batch_size=full engine.workers=auto"
    places = ["init.path=~/w.safetensors", "data_dir=~/d"]
    config = compose_run([*typed.split(), *places, "data.seed=null", "seed=4"])
    assert config.rounds == 10
    assert config.local.epochs == (3, 3)
    assert config.local.batch_size is None
    assert config.engine.workers is None
    assert type(config.participation) is float
    assert type(compose_run(["participation=3.0"]).participation) is int
    assert config.data.seed == 4
    assert config.init.path == tmp_path / "w.safetensors"
    assert config.data_dir == tmp_path / "d"
    assert config.tree["data_dir"] == "~/d"  # as typed: config.yaml is the same on every machine
    assert config.path.parts[:3] == ("results", "synthetic_leaf", "fedavg")
    assert compose_run(["keep_clients=[0,2]"]).keep_clients == (0, 2)
    with pytest.raises(FrozenInstanceError):
        config.rounds = 3
    assert config.algo.options == {"server_lr": 1.0, "weights": "size"}


def test_a_sweep_is_parsed_into_its_values():
    one, several, listed, ranged, section, unlisted = parse_overrides(
        [
            "+algo.x=2",
            "seed=0,1",
            "local.epochs=[1,2],[3,4]",
            "seed=range(0,3)",
            "algo={a: 1, b: {c: 2}}",
            "x=interval(0,1)",
        ]
    )
    assert one.key == "algo.x"
    assert one.added
    assert one.value == 2
    assert not one.sweeps
    assert one.each() == ["+algo.x=2"]
    assert several.sweeps
    assert several.each() == ["seed=0", "seed=1"]
    assert listed.each() == ["local.epochs=[1,2]", "local.epochs=[3,4]"]
    assert ranged.values == ("0", "1", "2")
    assert section.keys == ("algo.a", "algo.b")
    assert unlisted.sweeps
    assert unlisted.each() == []
    assert parse_overrides(["experiment=null", "debug=null"]) == []


@pytest.mark.parametrize(
    "written",
    [
        {
            "data_dir": "${oc.env:NO_SUCH,'~/here'}",
            "algo": {"lr": 0.1, "names": ["a", None]},
            "none": None,
        },
        {
            "rounds": 5,
            "algo": {"a": "${rounds}", "b": "${.a}"},
            "text": "costs $5",
        },
        {"home": "${oc.env:NO_SUCH,${other}}", "other": "there", "last": {"x": "${home}/x"}},
        {"escaped": r"\${rounds}", "rounds": 5},
    ],
    ids=["environment", "keys", "nested", "escaped"],
)
def test_sections_without_interpolations_are_what_omegaconf_makes_of_them(written):
    whole = OmegaConf.to_container(OmegaConf.create(written), resolve=True)
    assert resolved(written, {}) == whole
    assert list(resolved(written, {})) == list(whole)


def test_a_missing_value_in_any_section_is_refused():
    with pytest.raises(MissingMandatoryValue, match=r"algo\.lr"):
        resolved({"rounds": 5, "algo": {"lr": "???"}}, {})


ENVIRONMENT = """
    _target_: fedbench.algorithms.fedavg.fedavg
    token: ${oc.env:FEDBENCH_TEST_TOKEN}
    words: ["${oc.env:FEDBENCH_TEST_TOKEN}"]
    copy: ${algo.token}-x
    server_lr: ${oc.decode:${oc.env:FEDBENCH_TEST_LR}}
"""


def test_text_from_the_environment_is_stored_as_it_is_written(tmp_path, monkeypatch):
    """Also where another key refers to it; the run and its identity have the value."""
    write_files(tmp_path, {"algo/mine.yaml": ENVIRONMENT})
    monkeypatch.setenv("FEDBENCH_TEST_LR", "0.5")
    reference = "${oc.env:FEDBENCH_TEST_TOKEN}"
    digests = set()
    for token in ("hunter2", "hunter3"):
        monkeypatch.setenv("FEDBENCH_TEST_TOKEN", token)
        config = Composer(tmp_path).config(["algo=mine"])
        assert config.algo.options == {
            "token": token,
            "words": [token],
            "copy": f"{token}-x",
            "server_lr": 0.5,
        }
        assert config.stored_tree["algo"] == {
            "_target_": "fedbench.algorithms.fedavg.fedavg",
            "token": reference,
            "words": [reference],
            "copy": "${algo.token}-x",
            "server_lr": 0.5,
        }
        digests.add(config.digest)
    assert len(digests) == 2


def test_a_file_of_the_user_may_override_a_group_of_hydra(tmp_path):
    """Such groups are left out of the compositions of runs, whose keys are the same."""
    own = "# @package _global_\ndefaults:\n  - override /hydra/callbacks: mine\nrounds: 3\n"
    callback = "mine:\n  _target_: hydra.experimental.callback.Callback\n"
    files = {"experiment/own.yaml": own, "hydra/callbacks/mine.yaml": callback}
    write_files(tmp_path, files)
    config = Composer(tmp_path).config(["experiment=own"])
    assert config.rounds == 3
    assert "hydra" not in config.tree
