"""Signals that ask a run to end: it finishes and saves its round, and can be resumed."""

import os
import signal
import subprocess
import sys
import time

import pytest
from command_line import FAST, meta_of, model_of

from fedbench.runs import training as runner
from fedbench.runs.process import (
    Interrupted,
    between_rounds,
    exit_status,
    on_signal,
    raise_interrupted,
)
from fedbench.runs.recorder import Recorder
from fedbench.runs.training import TrainingSession

SIGNALS = ["SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1"]


@pytest.fixture
def at_round(monkeypatch):
    """Send signals to this process while a round is recorded, once."""
    real = TrainingSession.record

    def send(round, *numbers):
        pending = list(numbers)

        def record(self, snapshot):
            result = real(self, snapshot)
            while pending and snapshot.round == round:
                os.kill(os.getpid(), pending.pop(0))
            return result

        monkeypatch.setattr(TrainingSession, "record", record)

    return send


def checkpoint(tmp_path):
    """The directory of the only run, and the round of its checkpoint."""
    (meta,) = (tmp_path / "results").rglob("meta.json")
    saved = Recorder(meta.parent).load()
    return meta.parent, saved and saved[1]["round"]


def test_who_forces_a_run_is_told_that_this_starts_over(fed, at_round):
    at_round(2, signal.SIGINT)
    _, _, err = fed(*FAST, "force=True")
    assert err.endswith("; run the same command again to resume (force=true starts over)\n")


@pytest.mark.parametrize("name", SIGNALS)
def test_a_run_ends_after_its_round_and_goes_on_later(fed, train, tmp_path, at_round, name):
    number = getattr(signal, name)
    handlers = [signal.getsignal(getattr(signal, n)) for n in SIGNALS]
    whole = model_of(train(*FAST, "results_dir=whole"))
    at_round(2, number)
    status, _, err = fed(*FAST)
    assert status == 128 + number
    assert "ending after this round" in err
    path, round = checkpoint(tmp_path)
    assert round == 2
    where = f"at round 2 of 4: {path.relative_to(tmp_path)}"
    assert err.endswith(f"fedbench: interrupted {where}; run the same command again to resume\n")
    assert meta_of(path)["status"] == "interrupted"
    assert [signal.getsignal(getattr(signal, n)) for n in SIGNALS] == handlers
    status, _, err = fed(*FAST)
    assert status == 0
    assert "resuming at round 2 of 4" in err
    assert model_of(path) == whole


def test_a_round_that_is_saved_already_is_not_saved_again(fed, at_round, monkeypatch):
    """Its files would be written over while they are the only checkpoint."""
    rounds = []
    real = Recorder.save

    def save(self, tensors, progress):
        rounds.append(progress["round"])
        real(self, tensors, progress)

    monkeypatch.setattr("fedbench.runs.training._CHECKPOINT_EVERY", 0)
    monkeypatch.setattr(Recorder, "save", save)
    at_round(2, signal.SIGTERM)
    assert fed(*FAST)[0] == 128 + signal.SIGTERM
    assert rounds[-1] == 2
    assert len(rounds) == len(set(rounds))


def test_a_second_signal_ends_it_at_once(fed, tmp_path, at_round):
    at_round(2, signal.SIGINT, signal.SIGTERM)
    assert fed(*FAST)[0] == 128 + signal.SIGTERM
    assert checkpoint(tmp_path)[1] in (None, 0, 1)


@pytest.mark.processes
def test_a_second_signal_does_not_wait_for_the_threads_of_a_round(tmp_path):
    """The round would take hours."""
    typed = "rounds=2 data.clients=8 model=mlp engine.mode=loop engine.workers=2"
    process = subprocess.Popen(
        [sys.executable, "-m", "fedbench", *typed.split(), "local.steps=100000000"],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        while not any(path.stat().st_size for path in tmp_path.rglob("rounds.jsonl")):
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        while "a second signal ends at once" not in process.stderr.readline():
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130
    assert "interrupted" in err
    assert meta_of(checkpoint(tmp_path)[0])["status"] == "interrupted"


def test_whoever_ends_it_at_once_is_told_where_the_run_is(fed, tmp_path, at_round):
    at_round(2, signal.SIGINT, signal.SIGTERM)
    _, _, err = fed(*FAST)
    path = checkpoint(tmp_path)[0].relative_to(tmp_path)
    assert err.endswith(f"fedbench: interrupted: {path}; run the same command again to resume\n")


@pytest.mark.parametrize("name", SIGNALS)
def test_before_round_0_is_recorded_the_first_signal_ends_a_run_at_once(
    fed, train, tmp_path, monkeypatch, name
):
    """Nothing would be saved after a long first evaluation; the same command begins again."""
    number = getattr(signal, name)
    whole = model_of(train(*FAST, "results_dir=whole"))
    real = runner.evaluate
    evaluations = []

    def evaluate(*arguments):
        evaluations.append(1)
        os.kill(os.getpid(), number)
        return real(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(runner, "evaluate", evaluate)
        status, _, err = fed(*FAST)
    assert status == 128 + number
    assert len(evaluations) == 1
    assert "ending after this round" not in err
    path, saved = checkpoint(tmp_path)
    assert saved is None
    assert meta_of(path)["status"] == "interrupted"
    where = path.relative_to(tmp_path)
    assert err.endswith(f"fedbench: interrupted: {where}; run the same command again to resume\n")
    train(*FAST)
    assert model_of(path) == whole


def test_a_signal_in_the_last_round_changes_nothing(train, at_round):
    at_round(4, signal.SIGTERM)
    train(*FAST)


def test_a_signal_in_the_last_round_of_a_run_ends_the_sweep(fed, tmp_path, at_round):
    at_round(4, signal.SIGTERM)
    status, _, err = fed("-m", *FAST, "seed=0,1", "--jobs", "1")
    assert status == 143
    assert "run the same command again" in err
    assert [p.parent.name for p in tmp_path.rglob("DONE")] == ["seed_0"]
    assert not list(tmp_path.rglob("seed_1"))


@pytest.fixture
def handler():
    """Set the handler of a signal for a test."""
    before = {}

    def use(number, function):
        before[number] = signal.signal(number, function)

    yield use
    for number, function in before.items():
        signal.signal(number, function)


def test_a_signal_that_is_ignored_stays_ignored(train, at_round, handler):
    handler(signal.SIGHUP, signal.SIG_IGN)
    at_round(2, signal.SIGHUP)
    train(*FAST)
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN


def test_a_handler_of_the_calling_program_is_left_alone(handler):
    received = []
    handler(signal.SIGUSR1, lambda number, frame: received.append(number))
    with between_rounds() as asked:
        os.kill(os.getpid(), signal.SIGUSR1)
        assert received == [signal.SIGUSR1]
        assert asked() is None


def test_outside_of_rounds_a_signal_is_an_exception():
    with on_signal(raise_interrupted), pytest.raises(Interrupted, match="SIGTERM") as caught:
        os.kill(os.getpid(), signal.SIGTERM)
    assert exit_status(caught.value) == 143
    assert exit_status(KeyboardInterrupt()) == 130
