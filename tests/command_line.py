"""The command as tests call it: in an empty directory, in this process."""

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


def models(folder):
    """The content of every model below a directory, by its path there."""
    return {p.relative_to(folder): p.read_bytes() for p in folder.rglob("model.safetensors")}


def run_dir(tmp_path, lines):
    path = tmp_path / lines[-1]
    assert path.is_dir()
    return path


def interrupted(fed, monkeypatch, at, *args):
    """Interrupt a run at its evaluation number ``at``; rounds 0 .. at-2 are checkpointed."""
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
        assert fed(*args)[0] == 130
