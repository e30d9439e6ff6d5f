"""Every command of the documentation runs, with few rounds and seeds; those that cannot say why."""

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

PYTHON = re.compile(r"^```python\n(import fedbench\n.*?)^```", re.M | re.S)
IN_PYTHON = [
    p for p in [ROOT / "README.md", *PAGES] if PYTHON.search(p.read_text(encoding="utf-8"))
]
RUNNING = [p for p in PAGES if any(b.reason is None for b in blocks(p.read_text(encoding="utf-8")))]
WORDS = ("list", "data", "new", "report", "status", "show", "plot", "completion")  # train nothing


def small(words):
    """A command with two rounds, two seeds, one process, and the smallest settings of a paper's tables."""
    if words[0] in WORDS or "--cfg" in words or "--plan" in words:
        return words
    if words[0] == "reproduce":
        words = [
            w
            for w, before in zip(words, [None, *words], strict=False)
            if "--profile" not in (w, before)
        ]
        return [*words, "--profile", "smoke", "--jobs", "1"]
    words = [re.sub(r"^(seed=\d+,\d+),.*", r"\1", w) for w in words if not w.startswith("rounds=")]
    if (
        "-m" in words
        and "--jobs" not in words
        and not any(w.startswith("hydra/launcher") for w in words)
    ):
        words = [*words[:1], "--jobs", "1", *words[1:]]
    return [*words, "rounds=2"]


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
def test_a_block_that_is_not_run_says_why(page):
    text = page.read_text(encoding="utf-8")
    reasons = [b.reason for b in blocks(text) if b.reason is not None]
    assert len(reasons) == text.count("<!-- not run"), "<!-- not run: why --> stands above commands"
    assert all(len(r.split()) >= 2 for r in reasons)


@pytest.mark.slow
@pytest.mark.usefixtures("no_figures")
@pytest.mark.parametrize("page", RUNNING, ids=lambda p: p.stem)
def test_the_commands_run(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FEDBENCH_DATA", raising=False)
    monkeypatch.setenv("FEDBENCH_OFFLINE", "1")
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    for block in blocks(page.read_text(encoding="utf-8")):
        for command in block.lines if block.reason is None else ():
            if name := re.fullmatch(r'([A-Z]+)="(.*)"', command):
                monkeypatch.setenv(*name.groups())
                continue
            status, said = run(os.path.expandvars(command), capsys)
            assert status == 0, f"{page.name}, block of line {block.line}: {command}\n{said}"


@pytest.mark.slow
@pytest.mark.parametrize("page", IN_PYTHON, ids=lambda p: p.stem)
def test_the_python_runs(page, tmp_path, monkeypatch):
    """What begins with ``import fedbench``; other blocks are parts of files."""
    monkeypatch.chdir(tmp_path)
    for text in PYTHON.findall(page.read_text(encoding="utf-8")):
        exec(re.sub(r"rounds=\d+", "rounds=2", text), {})
    assert list(tmp_path.rglob("DONE"))


def run(command, capsys):
    """The exit status, and what the command printed: of fedbench in this process, of others in a shell."""
    if not command.startswith("fedbench "):
        env = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        }
        done = subprocess.run(["bash", "-ec", command], capture_output=True, text=True, env=env)
        return done.returncode, done.stdout + done.stderr
    words = shlex.split(re.sub(r"\s{2,}#.*", "", command))
    status = main(small(words[1:]))
    out = capsys.readouterr()
    return status, out.out + out.err
