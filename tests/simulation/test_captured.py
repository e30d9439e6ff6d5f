"""Captured steps without a GPU: what is captured here is a function that does the step again."""

import pytest
import torch
from tools import close

from fedbench.core.types import Batch
from fedbench.simulation.captured import CapturedOracle, write
from fedbench.simulation.oracles import make_oracle
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


@pytest.mark.parametrize("name", [n for n in DEEP if n not in LARGE])
def test_the_same_bits_for_more_and_for_fewer_clients(name):
    """A part of the clients, all of them, a part again: memory grows, graphs go, and are captured again."""
    task, batch, w = case(name)
    plain, captured = make_oracle(task, "stacked"), Again(make_oracle(task, "stacked"))
    for k in (1, 1, 1, 1, 3, 3, 3, 3, 1, 1, 3):
        part, lr = part_of(batch, k), torch.full((k, 1), 0.1, dtype=w.dtype)
        ours, theirs = w[:k].clone(), w[:k].clone()
        captured.descend_(ours, part, lr)
        plain.descend_(theirs, part, lr)
        assert torch.equal(ours, theirs)
        losses, grads = captured.loss_and_grad(w[:1].expand(k, -1), part)
        kept = grads.clone()
        assert torch.equal(captured.grad(ours, part), plain.grad(ours, part))
        assert torch.equal(grads, kept)  # a later call leaves it
        for a, b in zip(
            (losses, grads), plain.loss_and_grad(w[:1].expand(k, -1), part), strict=True
        ):
            assert close(a, b, 1e-14)
    assert len(captured.graphs) == 6
    assert captured.replayed > 5


def test_no_more_than_the_most_graphs():
    task, batch, w = case("mlp")
    captured = Again(make_oracle(task, "stacked"))
    captured.most = 2
    for _ in range(4):
        for k in (3, 2, 1):
            assert torch.equal(
                captured.grad(w[:k], part_of(batch, k)),
                captured.oracle.grad(w[:k], part_of(batch, k)),
            )
    assert [what[1][0][0] for what in captured.graphs] == [3, 2]
    captured.forget()
    assert captured.graphs == {}


def test_nothing_is_tried_again_after_a_step_that_cannot_be_captured():
    task, batch, w = case("mlp")
    captured = Again(make_oracle(task, "stacked"))
    tried = []
    captured._captured = lambda run, outputs: tried.append(outputs)  # returns None
    for _ in range(5):
        assert torch.equal(captured.grad(w, batch), captured.oracle.grad(w, batch))
    assert len(tried) == 1
    assert captured.graphs == {}
