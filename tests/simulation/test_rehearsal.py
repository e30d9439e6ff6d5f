"""A rehearsal of runs on a GPU without one: no mixed devices, nothing in a round that waits, the results of a CPU."""

import json
from contextlib import nullcontext
from functools import partial

import pytest
import torch
from pretend_gpu import PretendGpu
from safetensors.torch import load_file
from tools import CASES, case_id, engine_of, federation, make, stages_of, task_for

from fedbench.core.samplers import sample_cohort
from fedbench.models.dense import MLP, Linear
from fedbench.runs import train
from fedbench.runs.store import Recorder
from fedbench.runs.trackers import Tracker
from fedbench.simulation.batches import LocalWork
from fedbench.simulation.diagnostics import DIAGNOSTICS
from fedbench.simulation.loop import _Loop

SIZES = (1, 12, 4, 7)
WORK = LocalWork(lr=0.1, batch_size=5)

COPYING = {  # where a round may copy to the device, without waiting for it
    "Cohort.__init__": "facts of the cohort, once for the same clients with the same work",
    "Cohort.info": "the keys of the clients' draws in this round",
    "Plan.__init__": "the places of the examples in the batches, once for the same clients with the same work",
    "Part.__init__": "the positions of a chunk in the cohort, likewise",
    "_groups": "the blocks of examples that are measured, once for the same clients",
    "_flat_sums": "numbers of examples, where losses are measured",
    "SharedProbes.at_broadcast": "likewise",
    "SharedProbes.mean_losses": "likewise",
}
WAITING = {  # where a round may wait for the device
    "shortest_combination": "a quadratic program of the size of the cohort is solved on the host",
    "note_visit": "FedCorr estimates noise on the host, with scikit-learn, between rounds",
    "estimate_levels": "likewise",
    "corrected": "likewise",
    "nearly_clean": "clients are drawn on the host; FedCorr decides who may be",
}


class Interrupting(Tracker):
    """Ends a run in its last round, once."""

    def __init__(self, rounds):
        self.rounds, self.due = rounds, True

    def log(self, row):
        if row["round"] == self.rounds and self.due:
            self.due = False
            raise KeyboardInterrupt


def prepared(algo, data, task, mode, rounds, place="auto"):
    stages = stages_of(algo, rounds, data.num_clients)
    return train.PreparedRun(
        title="rehearsal",
        seed=0,
        stages=stages,
        task=task,
        data=data,
        work=WORK,
        engine=engine_of(task, mode, 3 if mode == "stacked" else 1),
        w=task.init(torch.Generator().manual_seed(0)),
        sampler=sample_cohort(1.0),
        client_state=place,
        eval_every=1,
        eval_train_every=1,
        keep_clients="last",
        tracker=Interrupting(sum(s.rounds for s in stages)),
        diagnostics=tuple(DIAGNOSTICS),
    )


def carry_out(path, algo, data, model, mode, device, rounds=2, place="auto"):
    """A run that is interrupted after its last checkpoint and resumed: its rows without the clocks, and its models."""
    data, task = data.to(device, torch.float64), task_for(data, model)
    task.device = device
    run = prepared(algo, data, task, mode, rounds, place)
    recorder = Recorder(path)
    with pytest.raises(KeyboardInterrupt):
        train.run(run, recorder, {})
    assert train.run(run, recorder, {})["status"] == "done"
    rows = [json.loads(line) for line in (path / "rounds.jsonl").read_text().splitlines()]
    models = {f"{p.stem}.{k}": v for p in path.glob("*.safetensors") for k, v in load_file(p).items()}
    moments = [json.loads(p.read_text()) for p in path.glob("moments.json")]
    return [{k: v for k, v in row.items() if v is not None and "seconds" not in k} for row in rows], models, moments


@pytest.fixture
def rehearse(tmp_path, monkeypatch):
    """Carry a run out on the pretended GPU and on the CPU, compare them, and return the GPU."""
    monkeypatch.setattr(train, "_CHECKPOINT_SHARE", 0)
    real = _Loop.round

    def watched(self, t, stage, snapshot):
        with nullcontext() if PretendGpu.current is None else PretendGpu.current.round():
            return real(self, t, stage, snapshot)

    monkeypatch.setattr(_Loop, "round", watched)

    def rehearsed(algo, model, mode, shape=None, data=None, **options):
        data = federation(SIZES, shape=shape) if data is None else data
        rows, models, moments = carry_out(tmp_path / "cpu", algo, data, model, mode, torch.device("cpu"), **options)
        with PretendGpu(COPYING, WAITING) as gpu:
            found = carry_out(tmp_path / "gpu", algo, data, model, mode, torch.device("cuda"), **options)
        for row, other in zip(rows, found[0], strict=True):
            assert other == pytest.approx(row, rel=1e-12, abs=1e-12)
        assert found[1].keys() == models.keys()
        for name, v in models.items():
            torch.testing.assert_close(found[1][name], v, rtol=1e-12, atol=1e-12, msg=name)
        assert found[2] == moments
        return gpu

    return rehearsed


@pytest.mark.parametrize("mode", ["stacked", "loop"])
@pytest.mark.parametrize("model", [Linear, partial(MLP, hidden=(4,))], ids=["linear", "mlp"])
@pytest.mark.parametrize("case", CASES, ids=case_id)
def test_every_method(rehearse, case, model, mode):
    assert rehearse(make(case[0], **case[1]), model, mode).faults == []
