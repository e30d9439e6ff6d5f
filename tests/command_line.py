"""The command as tests call it: in an empty directory, in this process."""

import json
import shlex
import textwrap

import pytest

from fedbench.cli import main

FAST = ["data.clients=8", "rounds=4"]
FILES = {"config.yaml", "rounds.jsonl", "clients.parquet", "model.safetensors", "meta.json", "DONE"}


@pytest.fixture
def fed(tmp_path, monkeypatch, capsys):
    """Run the command in an empty directory; returns (status, lines of stdout, stderr)."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FEDBENCH_DATA", raising=False)
    # a slow machine prints what a fast one does
    monkeypatch.setattr("fedbench.runs.progress.EVERY", 1e6)

    def call(*args):
        capsys.readouterr()
        status = main(list(args))
        out = capsys.readouterr()
        return status, out.out.splitlines(), out.err

    return call


@pytest.fixture
def train(fed, tmp_path):
    """Run a command that must succeed; returns the directory that its last line names."""

    def run(*args):
        status, out, err = fed(*args)
        assert status == 0, err
        return run_dir(tmp_path, out)

    return run


@pytest.fixture
def refuse(fed):
    """Run a command that must be rejected; returns its message."""

    def run(*args):
        status, _, err = fed(*args)
        assert status == 2, err
        return err

    return run


def wrong_requests(file):
    """The rows of a file: a command without ``fedbench``; below it, a part of its error."""
    blocks = file.read_text().strip().split("\n\n")
    rows = [block.split("\n") for block in blocks]
    return [pytest.param(shlex.split(row), message, id=row) for row, message in rows]


def write_files(folder, files):
    """Write texts by their names, each in the directory that its name has."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))


def meta_of(path):
    return json.loads((path / "meta.json").read_text())


def rows_of(path):
    """The recorded rounds of a run."""
    return [json.loads(line) for line in (path / "rounds.jsonl").read_text().splitlines()]


def rows_without_clocks(path):
    """The recorded rounds of a run without the seconds that they took."""
    clocks = {"seconds_train", "seconds_eval"}
    return [{k: row[k] for k in row.keys() - clocks} for row in rows_of(path)]


def model_of(path):
    return (path / "model.safetensors").read_bytes()


def models(folder):
    """The content of every model below a directory, by its path there."""
    return {p.relative_to(folder): p.read_bytes() for p in folder.rglob("model.safetensors")}


def run_dir(tmp_path, lines):
    path = tmp_path / lines[-1]
    assert path.is_dir()
    return path


def interrupted(fed, monkeypatch, at, *args):
    """Interrupt a run at its evaluation number ``at``, and return its message.

    Rounds 0 .. at-2 are checkpointed.
    """
    from fedbench.runs import training as runner

    real, calls = runner.evaluate, []

    def interrupting(*given):
        calls.append(1)
        if len(calls) == at:
            raise KeyboardInterrupt
        return real(*given)

    with monkeypatch.context() as patch:
        patch.setattr(runner, "evaluate", interrupting)
        patch.setattr(runner, "_CHECKPOINT_EVERY", 0)
        status, _, err = fed(*args)
    assert status == 130
    return err
