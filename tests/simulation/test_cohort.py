"""The round of a cohort: uploads that are added up as clients finish, and client states written in
place.
"""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from fedbench.core.algorithm import Averaging
from fedbench.core.types import nbytes
from fedbench.simulation import cohort
from fedbench.simulation.cohort import CohortResult, PartResult, write_rows
from fedbench.simulation.compiled import dense
from fedbench.simulation.loop import Observer
from tests.tools import (
    CASES,
    case_id,
    close,
    everyone,
    federation,
    final,
    make,
    snapshots,
    stages_of,
)

MODES = ("loop", "stacked", "compiled")
ADDED = [
    case
    for case in CASES
    if any(
        isinstance(s.algorithm.update, Averaging)
        for s in stages_of(
            make(case[0], **case[1]),
            1,
            7,
        )
    )
]

# other methods for each mode; make test-all runs all
SHOWN = {mode: ADDED[k::9] for k, mode in enumerate(MODES)}


def part_by_part(monkeypatch):
    """Let the smallest cohorts be added up chunk by chunk, in shares of one client."""
    monkeypatch.setattr(cohort, "_HELD_BYTES", 0)
    monkeypatch.setattr(cohort, "SHARE_BYTES", 0)
    monkeypatch.setattr(dense, "SHARE_BYTES", 1)


def test_a_weighted_sum_by_hand():
    """Σ ω_k u_k = 0.5 (1, 2) + 2 (3, -1); the step sees it under the name of the upload, and the
    others as they are.
    """
    seen = {}

    def step(server, uploads, cohort):
        seen.update(uploads)
        return server

    rule = Averaging(step, {"u": lambda server, cohort: server["omega"]})
    uploads = {"u": torch.tensor([[1.0, 2.0], [3.0, -1.0]]), "n": torch.tensor([[7.0], [8.0]])}
    rule({"omega": torch.tensor([0.5, 2.0])}, uploads, None)
    assert seen["u"].tolist() == [6.5, -1.0]
    assert seen["n"].tolist() == [[7.0], [8.0]]


CASES_BY_MODE = [
    pytest.param(
        case,
        mode,
        marks=[] if case in SHOWN[mode] else [pytest.mark.slow],
        id=f"{mode}-{case_id(case)}",
    )
    for mode in MODES
    for case in ADDED
]


@pytest.mark.parametrize(("case", "mode"), CASES_BY_MODE)
def test_adding_up_part_by_part_changes_nothing(case, mode, monkeypatch):
    name, options = case
    participation = 1.0 if everyone(case) else 4
    how = {"mode": mode, "cohort_size": 2, "participation": participation}

    def run(workers):
        return snapshots(make(name, **options), federation(), workers=workers, **how)[-1]

    whole = run(workers=1)
    part_by_part(monkeypatch)
    parts = run(workers=1)
    parallel = run(workers=3)
    for states in ("server", "clients"):
        for k, v in getattr(whole, states).items():
            assert close(getattr(parts, states)[k].double(), v.double(), 1e-12), k
    for k, v in parts.server.items():
        assert torch.equal(parallel.server[k], v), k
    assert parts.bytes_up == whole.bytes_up


@pytest.mark.parametrize("mode", ["loop", "compiled"])
def test_models_of_clients_are_not_held(mode, monkeypatch):
    """The server's step sees one vector for the whole cohort, and no upload is stored."""
    shapes = []
    rule = make("fedavg").update

    def step(server, uploads, cohort):
        shapes.append(uploads["delta"].shape)
        return rule.step(server, uploads, cohort)

    algo = replace(make("fedavg"), update=Averaging(step, rule.weights))
    part_by_part(monkeypatch)
    stored = []

    def store(self, total, rows, some):
        stored.append(nbytes(some))

    monkeypatch.setattr(CohortResult, "store", store)
    final(algo, federation(), rounds=2, mode=mode, cohort_size=2)
    assert shapes == [(21,)] * 2
    assert sum(stored) == 0


@pytest.mark.parametrize("mode", ["loop", "compiled"])
def test_an_observer_sees_every_upload(mode, monkeypatch):
    part_by_part(monkeypatch)
    seen = []
    watcher = Observer(lambda round: round == 2, seen.append)
    how = {"rounds": 2, "mode": mode, "cohort_size": 2}
    final(make("fedavg"), federation(), observers=[watcher], **how)
    assert [(e.round, e.uploads["delta"].shape) for e in seen] == [(2, (7, 21))]


def test_sums_are_formed_in_the_order_of_the_chunks():
    """1e16 + 1 - 1e16 is 0 in this order and 1 in another."""
    values = [torch.tensor([v], dtype=torch.float64) for v in (1e16, 1.0, -1e16)]
    for order in ([0, 1, 2], [2, 1, 0], [1, 2, 0]):
        trained = CohortResult(torch.arange(3), None)
        for number in order:
            part = SimpleNamespace(positions=np.array([number]), rows=slice(number, number + 1))
            sums = {"u": values[number].clone()}
            trained.add(
                (number, part),
                PartResult(
                    {},
                    {},
                    {},
                    sums,
                    {"u": torch.float64},
                    8,
                ),
            )
        assert trained.sums["u"].item() == 0
        assert trained.bytes_up == 24


def test_states_are_replaced_as_a_whole_or_not_at_all():
    """A copy that lacks memory is made again, from states that have not changed."""

    class TooLarge:
        def to(self, device):
            raise torch.OutOfMemoryError

    states = {"a": torch.zeros(3, 2), "b": torch.zeros(3, 2)}
    ids = torch.tensor([2, 0])
    new = {"a": torch.ones(2, 2), "b": torch.ones(2, 2)}
    with pytest.raises(torch.OutOfMemoryError):
        write_rows(states, ids, new | {"b": TooLarge()})
    assert not states["a"].any()
    write_rows(states, ids, new)
    assert states["a"].tolist() == states["b"].tolist() == [[1, 1], [0, 0], [1, 1]]
