"""Completion by Tab: the candidates, and the script in a real bash."""

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

import fedbench
from fedbench.cli import WORDS
from fedbench.commands.completion import candidates
from fedbench.config.schema import options


@pytest.mark.parametrize(
    ("current", "earlier", "expected"),
    [
        ("li", [], ["list"]),
        ("fedp", ["list", "algo"], ["fedprox"]),
        ("k_", ["list", "partition"], ["k_classes"]),
        ("al", ["list"], ["algo"]),
        ("algo=fedpr", [], ["algo=fedprox"]),
        ("algo=fedavg,fedpr", ["-m"], ["algo=fedavg,fedprox"]),
        ("methods=fedavg,fedpr", ["compare"], ["methods=fedavg,fedprox"]),
        ("experiment=adafed", [], ["experiment=adafed/", "experiment=adafedadam/"]),
        ("experiment=adafedadam/table7_synthetic_m", [], ["experiment=adafedadam/table7_synthetic_momentum"]),
        ("algo.", ["algo=fedprox"], ["algo.mu=", "algo.server_lr=", "algo.weights="]),
        ("data.partition.al", ["data/partition=dirichlet"], ["data.partition.alpha="]),
        ("data.part", ["data/partition=dirichlet"], ["data.partition."]),
        ("loc", [], ["local."]),
        ("bud", ["tune", "algo=fedprox"], ["budget="]),
        ("pruning=", ["tune"], ["pruning=none", "pruning=halving"]),
        ("--comp", ["report"], ["--compare"]),
        ("known/n", ["reproduce"], ["known/niid_bench"]),
        ("kno", ["report", "results", "--paper"], ["known"]),
        ("res", ["report"], []),  # directories are left to the shell
        ("z", [], ["z"][1:]),
    ],
    ids=str,
)
def test_candidates(current, earlier, expected):
    assert candidates(current, earlier) == expected


def test_every_command_and_every_choice_of_a_group_is_offered():
    assert candidates("", [])[: len(WORDS)] == list(WORDS)
    assert candidates("model=", []) == [f"model={name}" for name in options("model")]


def test_choices_of_your_own(tmp_path):
    (tmp_path / "algo").mkdir()
    (tmp_path / "algo" / "mine.yaml").write_text("_target_: mine.mine\nspeed: 3\n")
    assert candidates("algo=min", [], tmp_path) == ["algo=mine"]
    assert candidates("algo.s", ["algo=mine"], tmp_path) == ["algo.speed="]


def test_every_flag_that_is_offered_exists(fed):
    from fedbench.commands import completion

    for word in ("report", "status", "show", "reproduce", "plot"):
        text = "\n".join(fed(word, "--help")[1])
        for flag in completion._FLAGS[word]:
            assert flag in text, (word, flag)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("fedbench li", ["list"]),
        ("fedbench algo=fedpr", ["fedprox"]),  # what follows the =, which readline takes for the end of a word
        ("fedbench -m algo=fedavg,fedpr", ["fedavg,fedprox"]),
        ("fedbench list algo fedp", ["fedprox"]),
        ("fedbench experiment=adafed/table17", ["adafed/table17_cifar100_s1_e10", "adafed/table17_cifar100_s2_e10"]),
    ],
)
@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_the_script_completes_in_bash(fed, tmp_path, line, expected):
    command = tmp_path / "fedbench"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m fedbench "$@"\n')
    command.chmod(command.stat().st_mode | stat.S_IXUSR)
    script = "\n".join(fed("completion", "bash")[1])
    asked = f'{script}\nCOMP_LINE="{line}"; COMP_POINT=${{#COMP_LINE}}; _fedbench; printf "%s\\n" "${{COMPREPLY[@]}}"'
    here = {"PYTHONPATH": str(Path(fedbench.__file__).parents[1])}
    env = {**os.environ, **here, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-c", asked], env=env, capture_output=True, text=True, check=True)
    assert done.stdout.split() == expected


def test_an_unknown_shell_is_refused(fed):
    status, _, err = fed("completion", "powershell")
    assert status == 2
    assert "completion must be one of bash, zsh, fish; got 'powershell'" in err
    assert 'eval "$(fedbench completion bash)"' in fed("completion")[2]
