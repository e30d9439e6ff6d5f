"""Every command of the documentation runs, with few rounds and seeds, or states why it does not."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from doc_pages import PAGES, blocks
from tools import ROOT

from fedbench.cli import main

TEXTS = {
    page: page.read_text(encoding="utf-8")
    for page in [
        ROOT / "README.md",
        *PAGES,
    ]
}
PYTHON = re.compile(r"^```python\n(import fedbench\n.*?)^```", re.M | re.S)
IN_PYTHON = [page for page, text in TEXTS.items() if PYTHON.search(text)]
RUNNING = [page for page in PAGES if any(block.reason is None for block in blocks(TEXTS[page]))]
WITHOUT_TRAINING = ("list", "data", "new", "report", "status", "show", "plot", "completion")


def small(words):
    """A command with two rounds, two seeds, one process, and the smallest settings of a paper."""
    if words[0] in WITHOUT_TRAINING or "--cfg" in words or "--plan" in words:
        return words
    if words[0] == "reproduce":
        if "--profile" in words:
            place = words.index("--profile")
            words = words[:place] + words[place + 2 :]
        return [*words, "--profile", "smoke", "--jobs", "1"]
    text = " ".join(words)
    words = [re.sub(r"^(seed=\d+,\d+),.*", r"\1", word) for word in words]
    words = [word for word in words if not word.startswith("rounds=")]
    if "-m" in words and "--jobs" not in words and "hydra/launcher" not in text:
        words[1:1] = ["--jobs", "1"]
    return [*words, "rounds=2"]


def run(command, capsys):
    """The exit status and the output of a command: of fedbench in this process, else in a shell."""
    if not command.startswith("fedbench "):
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        env = {**os.environ, "PYTHONPATH": str(ROOT), "PATH": path}
        done = subprocess.run(
            ["bash", "-ec", command],
            capture_output=True,
            text=True,
            env=env,
        )
        return done.returncode, done.stdout + done.stderr
    words = shlex.split(re.sub(r"\s{2,}#.*", "", command))
    status = main(small(words[1:]))
    out = capsys.readouterr()
    return status, out.out + out.err


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_block_that_is_not_run_says_why(page):
    reasons = [block.reason for block in blocks(TEXTS[page]) if block.reason is not None]
    comments = TEXTS[page].count("<!-- not run")
    assert len(reasons) == comments, "<!-- not run: why --> stands above commands"
    assert all(len(reason.split()) >= 2 for reason in reasons)


@pytest.mark.slow
@pytest.mark.usefixtures("no_figures")
@pytest.mark.parametrize("page", RUNNING, ids=lambda page: page.stem)
def test_the_commands_run(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FEDBENCH_DATA", raising=False)
    monkeypatch.setenv("FEDBENCH_OFFLINE", "1")
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    for block in blocks(TEXTS[page]):
        for command in block.lines if block.reason is None else ():
            if variable := re.fullmatch(r'([A-Z]+)="(.*)"', command):
                monkeypatch.setenv(*variable.groups())
                continue
            status, said = run(os.path.expandvars(command), capsys)
            assert status == 0, f"{page.name}, block of line {block.line}: {command}\n{said}"


@pytest.mark.slow
@pytest.mark.parametrize("page", IN_PYTHON, ids=lambda page: page.stem)
def test_the_python_runs(page, tmp_path, monkeypatch):
    """Blocks that begin with ``import fedbench``; others are parts of files."""
    monkeypatch.chdir(tmp_path)
    for text in PYTHON.findall(TEXTS[page]):
        exec(re.sub(r"rounds=\d+", "rounds=2", text), {})
    assert list(tmp_path.rglob("DONE"))
