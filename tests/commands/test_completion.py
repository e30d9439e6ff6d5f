"""Completion by Tab in a real bash: words, flags, keys and choices."""

import os
import shutil
import stat
import subprocess
import sys

import pytest
from tools import ROOT


@pytest.fixture(scope="module")
def shell(tmp_path_factory):
    """Complete a line, given as bash splits it, with the script that the command prints."""
    folder = tmp_path_factory.mktemp("bin")
    command = folder / "fedbench"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m fedbench "$@"\n')
    command.chmod(command.stat().st_mode | stat.S_IXUSR)
    env = {**os.environ, "PYTHONPATH": str(ROOT), "PATH": f"{folder}:{os.environ['PATH']}"}
    script = subprocess.run(
        [command, "completion", "bash"], env=env, capture_output=True, text=True, check=True
    ).stdout

    def complete(line):
        words = line.split(" ")
        asked = f"{script}\nCOMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; _shtab_fedbench\n"
        done = subprocess.run(
            ["bash", "-c", asked + 'printf "%s\\n" "${COMPREPLY[@]}"'],
            env=env,
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.split()

    return complete


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("fedbench li", ["list", "linear", "linear_sigmoid"]),
        ("fedbench report --comp", ["--compare"]),
        ("fedbench data ver", ["verify"]),
        ("fedbench benchmark fair --base", ["--baselines"]),
        ("fedbench algo = fedpr", ["fedprox"]),
        ("fedbench tune local.mom", ["local.momentum="]),
    ],
)
def test_the_script_completes_in_bash(shell, line, expected):
    assert shell(line) == expected
