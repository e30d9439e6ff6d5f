"""Captured steps without a GPU: what is captured here is a function that does the step again."""

from contextlib import contextmanager

import pytest
import torch
from tools import close

from fedbench.core.types import Batch
from fedbench.simulation.captured import CapturedOracle, write
from fedbench.simulation.oracles import each_client, make_oracle
from tests.models.test_models import DEEP, LARGE, case


class Again(CapturedOracle):
    """An oracle that counts what it replays."""

    replayed = 0

    def _captured(self, run, outputs):
        def replay():
            self.replayed += 1
            write(run(), outputs)

        return replay


def part_of(batch, k):
    return Batch(*(v if v is None else v[:k] for v in batch[:4]))


def step_with_the_same_bits(captured, plain, w, part):
    """Return the models after a step, which must be the same without capture."""
    lr = torch.full((len(w), 1), 0.1, dtype=w.dtype, device=w.device)
    ours = w.clone()
    theirs = w.clone()
    captured.descend_(ours, part, lr)
    plain.descend_(theirs, part, lr)
    assert torch.equal(ours, theirs)
    return theirs


@pytest.mark.parametrize(("mode", "aligned"), [("stacked", False), ("loop", True)])
@pytest.mark.parametrize("name", [n for n in DEEP if n not in LARGE])
def test_the_same_bits_for_more_and_for_fewer_clients(name, mode, aligned):
    """A part of the clients, all, a part again: memory grows, and graphs are captured again."""
    task, batch, w = case(name)
    plain = make_oracle(task, mode)
    captured = Again(make_oracle(task, mode), aligned)
    for k in (1, 1, 1, 1, 3, 3, 3, 3, 1, 1, 3):
        part = part_of(batch, k)
        ours = step_with_the_same_bits(captured, plain, w[:k], part)
        same = w[:1].expand(k, -1)
        losses, grads = captured.loss_and_grad(same, part)
        kept = grads.clone()
        assert torch.equal(captured.grad(ours, part), plain.grad(ours, part))
        assert torch.equal(grads, kept)  # a later call leaves it
        plain_losses, plain_grads = plain.loss_and_grad(same, part)
        assert close(losses, plain_losses, 1e-14)
        assert close(grads, plain_grads, 1e-14)
    assert len(captured.graphs) == 6
    assert captured.replayed > 5


def test_rows_of_aligned_memory_begin_at_multiples():
    captured = Again(None, aligned=True)
    v = torch.arange(15.0).view(3, 5)
    place = captured._place("w", v)
    assert place.shape == v.shape
    assert place.stride() == (64, 1)
    assert captured._place("w", v[:2]).data_ptr() == place.data_ptr()
    assert captured._place("x", torch.zeros(2, 3, 4)).is_contiguous()
    assert Again(None)._place("w", v).is_contiguous()


class Stream:
    """A stream that notes what happens on it, and whom it waits for."""

    def __init__(self, name):
        self.name = name
        self.seen = []

    def wait_stream(self, other):
        self.seen.append(f"after {other.name}")


def test_clients_of_a_captured_step_are_on_streams_that_begin_and_end_together(monkeypatch):
    home = Stream("home")
    lanes = [Stream("a"), Stream("b")]
    on = [home]

    @contextmanager
    def stream(lane):
        on.append(lane)
        yield
        on.pop()

    def one(k):
        on[-1].seen.append(k)
        return 10 * k

    monkeypatch.setattr("torch.cuda.is_current_stream_capturing", lambda: True)
    monkeypatch.setattr("torch.cuda.current_stream", lambda: home)
    monkeypatch.setattr("torch.cuda.stream", stream)
    monkeypatch.setattr("fedbench.simulation.oracles._streams", lambda count: lanes[:count])
    assert each_client(one, 5, lanes=2) == [0, 10, 20, 30, 40]
    assert lanes[0].seen == ["after home", 0, 2, 4]
    assert lanes[1].seen == ["after home", 1, 3]
    assert home.seen == ["after a", "after b"]
    assert each_client(one, 1, lanes=2) == [0]
    assert lanes[1].seen == ["after home", 1, 3]  # no client, no stream
    monkeypatch.setattr("torch.cuda.is_current_stream_capturing", lambda: False)
    assert each_client(one, 2, lanes=2) == [0, 10]
    assert home.seen[-2:] == [0, 1]


@pytest.fixture
def captured():
    return Again(make_oracle(case("mlp")[0], "stacked"))


def same_gradients(captured, clients=3):
    _, batch, w = case("mlp")
    part = part_of(batch, clients)
    ours = captured.grad(w[:clients], part)
    return torch.equal(ours, captured.oracle.grad(w[:clients], part))


def test_no_more_than_the_most_graphs(captured):
    captured.most = 2
    for k in 4 * [3, 2, 1]:
        assert same_gradients(captured, k)
    assert [what[1][0][0] for what in captured.graphs] == [3, 2]
    captured.forget()
    assert captured.graphs == {}


def test_nothing_is_tried_again_after_a_step_that_cannot_be_captured(captured):
    tried = []
    captured._captured = lambda run, outputs: tried.append(outputs)  # returns None
    assert all(same_gradients(captured) for _ in range(5))
    assert len(tried) == 1
    assert captured.graphs == {}
