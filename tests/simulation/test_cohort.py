"""The round of a cohort: uploads that are added up as clients finish, and client states written in place."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from fedbench.core.algorithm import Averaging
from fedbench.core.randomness import sample_cohort
from fedbench.core.types import nbytes
from fedbench.simulation import cohort
from fedbench.simulation.cohort import CohortResult, PartResult
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
        isinstance(s.algorithm.update, Averaging) for s in stages_of(make(case[0], **case[1]), 1, 7)
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
    """Σ ω_k u_k = 0.5 (1, 2) + 2 (3, -1); the step sees it under the name of the upload, and the others as they are."""
    seen = {}

    def step(server, uploads, cohort):
        seen.update(uploads)
        return server

    rule = Averaging(step, {"u": lambda server, cohort: server["omega"]})
    uploads = {"u": torch.tensor([[1.0, 2.0], [3.0, -1.0]]), "n": torch.tensor([[7.0], [8.0]])}
    rule({"omega": torch.tensor([0.5, 2.0])}, uploads, None)
    assert seen["u"].tolist() == [6.5, -1.0]
    assert seen["n"].tolist() == [[7.0], [8.0]]


@pytest.mark.parametrize(
    ("case", "mode"),
    [
        pytest.param(
            case,
            mode,
            marks=[] if case in SHOWN[mode] else [pytest.mark.slow],
            id=f"{mode}-{case_id(case)}",
        )
        for mode in MODES
        for case in ADDED
    ],
)
def test_adding_up_part_by_part_changes_nothing(case, mode, monkeypatch):
    algo, data = make(case[0], **case[1]), federation()
    options = {"mode": mode, "cohort_size": 2, "participation": 1.0 if everyone(case) else 4}
    whole = snapshots(algo, data, **options)[-1]
    part_by_part(monkeypatch)
    parts = [snapshots(algo, data, workers=n, **options)[-1] for n in (1, 3)]
    for k, v in whole.server.items():
        assert close(parts[0].server[k].double(), v.double(), 1e-12), k
        assert torch.equal(parts[0].server[k], parts[1].server[k]), k
    for k, v in whole.clients.items():
        assert close(parts[0].clients[k].double(), v.double(), 1e-12), k
    assert parts[0].bytes_up == whole.bytes_up


@pytest.mark.parametrize("mode", ["loop", "compiled"])
def test_models_of_clients_are_not_held(mode, monkeypatch):
    """The server's step sees one vector for the whole cohort, unless something looks at every upload."""
    shapes = []
    algo = make("fedavg")
    rule = algo.update

    def step(server, uploads, cohort):
        shapes.append(uploads["delta"].shape)
        return rule.step(server, uploads, cohort)

    object.__setattr__(algo, "update", Averaging(step, rule.weights))
    part_by_part(monkeypatch)
    puts = []
    put = CohortResult.store
    monkeypatch.setattr(
        CohortResult, "store", lambda self, total, rows, some: puts.append(nbytes(some))
    )
    data = federation()
    final(algo, data, rounds=2, mode=mode, cohort_size=2)
    assert [len(s) for s in shapes] == [1, 1]
    assert sum(puts) == 0
    monkeypatch.setattr(CohortResult, "store", put)
    seen = []
    watcher = Observer(lambda round: round == 2, lambda exchange: seen.append(exchange))
    final(algo, data, rounds=2, mode=mode, cohort_size=2, observers=[watcher])
    assert [(e.round, tuple(e.uploads["delta"].shape)) for e in seen] == [(2, (7, 21))]


def test_sums_are_formed_in_the_order_of_the_chunks():
    """1e16 + 1 - 1e16 is 0 in this order and 1 in another."""
    values = [torch.tensor([v], dtype=torch.float64) for v in (1e16, 1.0, -1e16)]
    for order in ([0, 1, 2], [2, 1, 0], [1, 2, 0]):
        trained = CohortResult(torch.arange(3), None)
        for number in order:
            part = SimpleNamespace(positions=np.array([number]), rows=slice(number, number + 1))
            sums = {"u": values[number].clone()}
            trained.add((number, part), PartResult({}, {}, {}, sums, {"u": torch.float64}, 8))
        assert trained.sums["u"].item() == 0
        assert trained.bytes_up == 24


@pytest.mark.parametrize("mode", MODES)
def test_states_of_absent_clients_stay(mode, monkeypatch):
    part_by_part(monkeypatch)
    data = federation()
    first, last = snapshots(
        make("scaffold"), data, mode=mode, cohort_size=2, participation=3, rounds=1
    )
    taking = sample_cohort(3)(0, data.train.counts, 0)
    moved = (last.clients["c"] != first.clients["c"]).any(1)
    assert moved.nonzero().flatten().tolist() == taking.tolist()
