"""Signals that ask a run to end: it finishes its round, saves it, says so, and goes on when it is asked again."""

import json
import os
import signal

import pytest
from command_line import FAST, run_dir

from fedbench.runs.process import (
    Interrupted,
    answered_by,
    between_rounds,
    exit_status,
    raise_interrupted,
)
from fedbench.runs.recorder import Recorder
from fedbench.runs.training import TrainingSession

SIGNALS = ["SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1"]


@pytest.fixture
def at_round(monkeypatch):
    """Send signals to this process while a round is recorded."""

    def send(round, *numbers):
        real = TrainingSession.record

        def record(self, snapshot):
            result = real(self, snapshot)
            if snapshot.round == round:
                for number in numbers:
                    os.kill(os.getpid(), number)
            return result

        monkeypatch.setattr(TrainingSession, "record", record)

    return send


def test_who_forces_a_run_is_told_that_this_starts_over(fed, at_round):
    at_round(2, signal.SIGINT)
    assert fed(*FAST, "force=True")[2].endswith(
        "; run the same command again to resume (force=true starts over)\n"
    )


@pytest.mark.parametrize("name", SIGNALS)
def test_a_run_ends_after_its_round_and_goes_on_later(fed, tmp_path, at_round, monkeypatch, name):
    number = getattr(signal, name)
    handlers = [signal.getsignal(getattr(signal, n)) for n in SIGNALS]
    _, out, _ = fed(*FAST, "results_dir=whole")
    whole = (run_dir(tmp_path, out) / "model.safetensors").read_bytes()
    with monkeypatch.context():
        at_round(2, number)
        status, out, err = fed(*FAST)
    assert status == 128 + number
    assert "ending after this round" in err
    (meta,) = (tmp_path / "results").rglob("meta.json")
    where = f"at round 2 of 4: {meta.parent.relative_to(tmp_path)}"
    assert err.endswith(f"fedbench: interrupted {where}; run the same command again to resume\n")
    assert json.loads(meta.read_text())["status"] == "interrupted"
    saved = Recorder(meta.parent).load()
    assert saved[1]["round"] == 2
    assert [signal.getsignal(getattr(signal, n)) for n in SIGNALS] == handlers
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    status, out, err = fed(*FAST)
    assert status == 0
    assert "resuming at round 2 of 4" in err
    assert (run_dir(tmp_path, out) / "model.safetensors").read_bytes() == whole


def test_a_round_that_is_saved_already_is_not_saved_again(fed, at_round, monkeypatch):
    """Its files would be written over while they are the only checkpoint."""
    saved, real = [], Recorder.save
    monkeypatch.setattr("fedbench.runs.training._CHECKPOINT_EVERY", 0)
    monkeypatch.setattr(
        Recorder, "save", lambda self, w, p: (saved.append(p["round"]), real(self, w, p))
    )
    at_round(2, signal.SIGTERM)
    assert fed(*FAST)[0] == 128 + signal.SIGTERM
    assert saved[-1] == 2
    assert len(saved) == len(set(saved))


def test_a_second_signal_ends_it_at_once(fed, tmp_path, at_round):
    at_round(2, signal.SIGINT, signal.SIGTERM)
    assert fed(*FAST)[0] == 128 + signal.SIGTERM
    (meta,) = (tmp_path / "results").rglob("meta.json")
    saved = Recorder(meta.parent).load()
    assert saved is None or saved[1]["round"] < 2


def test_a_signal_in_the_last_round_changes_nothing(fed, at_round):
    at_round(4, signal.SIGTERM)
    assert fed(*FAST)[0] == 0


def test_a_signal_in_the_last_round_of_a_run_ends_the_sweep(fed, tmp_path, at_round):
    at_round(4, signal.SIGTERM)
    status, _, err = fed("-m", *FAST, "seed=0,1", "--jobs", "1")
    assert status == 143
    assert "run the same command again" in err
    assert [p.parent.name for p in tmp_path.rglob("DONE")] == ["seed_0"]
    assert not list(tmp_path.rglob("seed_1"))


def test_a_signal_that_is_ignored_stays_ignored(fed, at_round):
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        at_round(2, signal.SIGHUP)
        assert fed(*FAST)[0] == 0
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_handler_of_the_calling_program_is_left_alone():
    came = []
    before = signal.signal(signal.SIGUSR1, lambda number, frame: came.append(number))
    try:
        with between_rounds() as asked:
            os.kill(os.getpid(), signal.SIGUSR1)
            assert came == [signal.SIGUSR1]
            assert asked() is None
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_outside_of_rounds_a_signal_is_an_exception():
    with answered_by(raise_interrupted), pytest.raises(Interrupted, match="SIGTERM") as caught:
        os.kill(os.getpid(), signal.SIGTERM)
    assert exit_status(caught.value) == 143
    assert exit_status(KeyboardInterrupt()) == 130
