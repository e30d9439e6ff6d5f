"""What users type and find on disk: every word, key, file and column that the interface promises is
there.
"""

import pandas as pd
import pytest
import yaml
from command_line import FILES
from safetensors.torch import load_file

import fedbench
from fedbench.config.compose import compose_run
from fedbench.config.overrides import options

WORDS = ("list", "data", "report", "reproduce", "tune", "compare", "new", "status", "show", "plot")

ALGORITHMS = """
    fedavg fedavgm fedprox fedadagrad fedyogi fedadam fedams fednova scaffold qfedavg afl term ditto
    fedmgda adafed fedfa adafedadam naive_adaptive local_adam fedcada fafed stem fedsps fedcorr
    fedfv propfair gifair fedmdfg drfa fedheal feddyn fedexp fedcm mimelite fedsam mofedsam fedspeed
    pfedme apfl
"""
DATA = """
    synthetic_leaf synthetic_iid synthetic_0_0 synthetic_0.5_0.5 synthetic_1_1 mnist_2class
    fmnist_dir0.5 cifar10_dir0.05 cifar10_dir0.1 cifar10_dir0.5 cifar10_dir1 cifar10_iid
    cifar10_shards2 cifar100_dir0.5 cifar100_dir0.05 femnist femnist_skewed sent140 shakespeare
    wikitext2 cinic10_dir0.5 tinyimagenet_dir0.05 imagefolder leaf_json
"""
GROUPS = {
    "algo": ALGORITHMS,
    "data": DATA,
    "model": "linear mlp cnn simplecnn vgg11 resnet18_gn lstm_char lstm_sent140 lstm_lm",
    "tracker": "none wandb tensorboard mlflow",
    "experiment": "adafedadam/table5_synthetic smoke",
    "availability": "none bernoulli clients cyclic stragglers",
    "debug": "quick",
}
# a key of every kind with a value other than its default, and where it is in the configuration
KEYS = """
    data.clients=7 data.split=0.7 data.seed=5 local.optimizer=sgd local.lr=0.3 local.momentum=0.5
    local.weight_decay=0.01 local.clip_norm=2.0 local.batch_size=full local.batch_size=4
    local.epochs=3 local.epochs=[1,3] local.steps=6 rounds=9 participation=0.5 participation=3
    seed=4 eval_every=3 device=cpu device=auto engine.mode=loop engine.mode=stacked
    engine.mode=compiled engine.cohort_size=3 engine.cohort_size=auto engine.workers=2
    engine.workers=auto engine.precision=float64 engine.precision=tf32 engine.precision=bf16
    init.path=w.safetensors data_dir=somewhere results_dir=elsewhere force=true keep_clients=all
"""
COLUMNS = """
    round train_loss test_loss accuracy_mean accuracy_std accuracy_variance accuracy_min
    accuracy_max accuracy_worst5 accuracy_worst10 accuracy_worst20 accuracy_worst30 accuracy_best5
    accuracy_best10 accuracy_best20 accuracy_best30 angle_degrees kl_uniform accuracy_mean_weighted
    accuracy_std_weighted accuracy_worst30_weighted improved_clients clients bytes_up bytes_down
    seconds_train seconds_eval
"""
CLIENT_COLUMNS = "round client name n_train n_test correct accuracy test_loss train_loss"
META = "status seed hash device client_steps client_steps_per_second peak_memory_bytes engine"
SMALL = ("algo=fedavg", "data=synthetic_leaf", "data.clients=6", "rounds=2")


def test_the_global_help_and_the_version_name_the_words(fed):
    status, out, _ = fed("--help")
    assert status == 0
    assert set(WORDS) <= {line.split()[0] for line in out if line.strip()}
    assert fed("--version")[1] == [f"fedbench {fedbench.__version__}"]


@pytest.mark.parametrize("group", GROUPS)
def test_every_choice_of_a_group_exists(group):
    assert set(GROUPS[group].split()) <= {"none", *options(group)}


def test_every_key_can_be_set():
    for typed in KEYS.split():
        key, _, value = typed.partition("=")
        found = compose_run([typed]).tree
        for part in key.split("."):
            found = found[part]
        assert str(found).replace(" ", "") == str(yaml.safe_load(value)).replace(" ", ""), typed


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A finished run, and the directory that has it."""
    folder = tmp_path_factory.mktemp("results")
    return fedbench.run([*SMALL, f"results_dir={folder}", "seed=1"]), folder


def test_a_run_has_its_files(run):
    found, folder = run
    path = found.path
    meta = found.meta
    assert path == folder / "synthetic_leaf" / "fedavg" / meta["hash"] / "seed_1"
    assert {file.name for file in path.iterdir()} == FILES
    assert (meta["status"], meta["seed"]) == ("done", 1)
    assert set(META.split()) <= set(meta)
    assert found.config["rounds"] == 2
    rounds = found.rounds()
    assert rounds["round"].tolist() == [0, 1, 2]
    assert set(COLUMNS.split()) <= set(rounds)
    clients = pd.read_parquet(path / "clients.parquet")
    assert set(CLIENT_COLUMNS.split()) <= set(clients)
    assert set(clients["round"]) == {2}
    assert set(load_file(path / "model.safetensors")) == {"weight", "bias"}
