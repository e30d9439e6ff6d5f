"""What users type and find on disk: every word, key, file and column that the interface promises is
there.
"""

import pytest
import yaml

import fedbench
from fedbench.config.compose import compose_run
from fedbench.config.overrides import options

WORDS = (
    "list data report reproduce tune compare new status show plot view benchmark publish".split()
)

ALGORITHMS = """
    fedavg fedavgm fedprox fedadagrad fedyogi fedadam fedams fednova scaffold qfedavg afl term ditto
    fedmgda adafed fedfa adafedadam naive_adaptive local_adam fedcada fafed stem fedsps fedcorr
    fedfv propfair gifair fedmdfg drfa fedheal feddyn fedexp fedcm mimelite fedsam mofedsam fedspeed
    pfedme apfl fedper lgfedavg fedrep moon fedntd fedlc feddecorr fedrod fedbn silobn fixbn
    fedavg_ft fedbabu local fedamp
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
