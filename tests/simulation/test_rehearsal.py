"""A rehearsal of runs on a GPU without one: no mixed devices, nothing in a round that waits, the results of a CPU."""

import json
import re
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from math import prod

import pytest
import torch
from pretend_gpu import PretendError, PretendGpu
from safetensors.torch import load_file
from tools import CASES, case_id, engine_of, federation, make, stages_of, task_for, variants
from torch import nn

from fedbench.core.samplers import sample_cohort
from fedbench.models.cnn import ConvNet
from fedbench.models.dense import MLP, Linear
from fedbench.models.lstm import LSTM
from fedbench.runs import train
from fedbench.runs.recorder import Recorder
from fedbench.runs.trackers import Tracker
from fedbench.simulation import first_call
from fedbench.simulation.batches import LocalWork
from fedbench.simulation.diagnostics import DIAGNOSTICS
from fedbench.simulation.loop import _Loop

SIZES = (1, 7, 4)
WORK = LocalWork(lr=0.1, batch_size=5)

COPYING = {  # where a round may copy to the device, without waiting for it
    "Cohort.__init__": "facts of the cohort, once for the same clients with the same work",
    "Cohort.info": "the keys of the clients' draws in this round",
    "Plan.__init__": "the places of the examples in the batches, once for the same clients with the same work",
    "Part.__init__": "the positions of a chunk in the cohort, likewise",
    "Rows.of_clients": "the examples of the cohort, likewise",
    "_groups": "the blocks of examples that are measured, once for the same clients",
    "_flat_sums": "numbers of examples, where losses are measured",
    "SharedProbes.at_broadcast": "likewise",
    "SharedProbes.mean_losses": "likewise",
    "SharedProbes.losses_of_several": "likewise",
    "_Loop._try": "the second cohort of DRFA",
    "fedfv.<locals>.update": "FedFV: the combination of updates that was found on the host",
    "fedmdfg.<locals>.propose": "FedMDFG: the step sizes to try",
    "StateRows.read": "states of clients that are kept on the host",
    "note_visit": "FedCorr: the client that was visited",
}
WAITING = {  # where a round may wait for the device
    "shortest_combination": "a quadratic program of the size of the cohort is solved on the host",
    "shortest_in_hull": "likewise",
    "fedfv.<locals>.update": "FedFV projects updates one after another in the order of their losses",
    "fedmdfg.<locals>.fixed": "FedMDFG solves such a program, and counts the clients that moved or are absent",
    "fedmdfg.<locals>.propose": "likewise",
    "fedmdfg.<locals>.searched": "FedMDFG decides between step sizes",
    "estimate_levels": "FedCorr estimates noise on the host, with scikit-learn, between rounds",
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


def prepared(algo, data, task, mode, rounds, place, work):
    stages = stages_of(algo, rounds, data.num_clients)
    return train.PreparedRun(
        title="rehearsal",
        seed=0,
        stages=stages,
        task=task,
        data=data,
        work=work,
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


def carry_out(path, algo, data, model, mode, device, rounds=2, place="auto", work=WORK):
    """A run: its rows without the clocks, its models and its moments. On a GPU it is interrupted once and resumed."""
    data, task = data.to(device, torch.float64), task_for(data, model)
    task.device = device
    run = prepared(algo, data, task, mode, rounds, place, work)
    recorder = Recorder(path)
    run.tracker.due = device.type == "cuda"
    with pytest.raises(KeyboardInterrupt) if run.tracker.due else nullcontext():
        train.run(run, recorder, {})
    if device.type == "cuda":
        train.run(run, recorder, {})
    assert json.loads((path / "meta.json").read_text())["status"] == "done"
    rows = [json.loads(line) for line in (path / "rounds.jsonl").read_text().splitlines()]
    models = {f"{p.stem}.{k}": v for p in path.glob("*.safetensors") for k, v in load_file(p).items()}
    moments = [json.loads(p.read_text()) for p in path.glob("moments.json")]
    return [{k: v for k, v in row.items() if v is not None and "seconds" not in k} for row in rows], models, moments


@pytest.fixture
def rehearse(tmp_path_factory, monkeypatch):
    """Carry a run out on the pretended GPU and on the CPU, compare them, and return the GPU."""
    monkeypatch.setattr(train, "_CHECKPOINT_SHARE", 0)
    real = _Loop.round

    def watched(self, t, stage, snapshot):
        with nullcontext() if PretendGpu.current is None else PretendGpu.current.round():
            return real(self, t, stage, snapshot)

    monkeypatch.setattr(_Loop, "round", watched)

    def rehearsed(algo, model, mode, shape=None, data=None, sizes=SIZES, waiting=WAITING, **options):
        data = data or federation(sizes, features=prod(shape or (6,)), shape=shape)
        folders = (tmp_path_factory.mktemp(name) for name in ("cpu", "gpu"))
        rows, models, moments = carry_out(next(folders), algo, data, model, mode, torch.device("cpu"), **options)
        with PretendGpu(COPYING, waiting) as gpu:
            found = carry_out(next(folders), algo, data, model, mode, torch.device("cuda"), **options)
        for row, other in zip(rows, found[0], strict=True):
            assert other == pytest.approx(row, rel=1e-12, abs=1e-12)
        assert found[1].keys() == models.keys()
        for name, v in models.items():
            torch.testing.assert_close(found[1][name], v, rtol=1e-12, atol=1e-12, msg=name)
        assert found[2] == moments
        return gpu

    return rehearsed


MODES = ["stacked", "loop"]
SMALL_MLP = partial(MLP, hidden=(4,))
DEFAULTS = [c for c in CASES if c[1] == variants(c[0])[0]]
CNN = partial(ConvNet, channels=(2, 3), kernel=3, hidden=4)
TEXT = partial(LSTM, tokens=7, vectors=None, embedding=3, hidden=4, layers=2, dense=(3,), dropout=0.3)
FEW = ["fedavg", "scaffold", "adafedadam"]


class Residual(nn.Module):
    """A block of a ResNet with GroupNorm, with what torchvision's has: ReLU in place, and a shortcut."""

    def __init__(self, shape, classes):
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(shape[0], 4, 3, padding=1, bias=False), nn.GroupNorm(2, 4)
        self.conv2, self.norm2 = nn.Conv2d(4, 4, 3, stride=2, padding=1, bias=False), nn.GroupNorm(2, 4)
        self.shortcut, self.relu = nn.Conv2d(shape[0], 4, 1, stride=2, bias=False), nn.ReLU(inplace=True)
        self.pool, self.fc = nn.AdaptiveAvgPool2d((1, 1)), nn.Linear(4, classes)

    def forward(self, x):
        h = self.norm2(self.conv2(self.relu(self.norm1(self.conv1(x)))))
        h += self.shortcut(x)
        return self.fc(torch.flatten(self.pool(self.relu(h)), 1))


@pytest.mark.parametrize("case", CASES, ids=case_id)
def test_every_method(rehearse, case):
    fitting = {"tensors": [24, 4, 12, 3]} if "tensors" in case[1] else {}
    assert rehearse(make(case[0], **case[1] | fitting), SMALL_MLP, "stacked").faults == []


@pytest.mark.parametrize(("model", "mode"), [(Linear, "stacked"), (SMALL_MLP, "loop")])
@pytest.mark.parametrize("case", DEFAULTS, ids=case_id)
def test_every_method_by_other_ways(rehearse, case, model, mode):
    assert rehearse(make(case[0], **case[1]), model, mode, sizes=(7, 3)).faults == []


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("model", [CNN, Residual], ids=["cnn", "resnet"])
@pytest.mark.parametrize("name", FEW)
def test_images(rehearse, name, model, mode):
    assert rehearse(make(name), model, mode, shape=(2, 6, 6), sizes=(7, 3)).faults == []


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", FEW)
def test_text(rehearse, name, mode):
    data = federation((7, 3), features=5)
    data = replace(data, x=(data.x * 3).long() % 7, tokens=7)
    work = replace(WORK, random=True)
    assert rehearse(make(name), TEXT, mode, data=data, work=work).faults == []


@pytest.mark.parametrize(("name", "phases", "writes"), [("scaffold", 1, 2), ("ditto", 2, 1)])
def test_client_states_on_the_host(rehearse, name, phases, writes):
    """They come without a wait; before new ones are written to their places, they must have arrived."""
    waiting = {"_finish": "the new states of the part before"}
    gpu = rehearse(make(name), Linear, "stacked", sizes=(1, 7, 4, 9), place="host", waiting=waiting)
    assert gpu.faults == []
    parts = 2  # of at most 3 of the 4 clients; two rounds, of which the second is repeated after the interruption
    assert (gpu.excused["StateRows.read"], gpu.excused["_finish"]) == (3 * parts * phases, 3 * writes)


def test_the_stages_of_fedcorr(rehearse):
    gpu = rehearse(make("fedcorr", iterations=1, rounds1=1), Linear, "stacked", sizes=(9, 12, 8), rounds=5)
    assert gpu.faults == []


def test_what_a_round_copies(rehearse):
    """Two rounds and, after the interruption, the second one again: the plans twice, the keys in every round."""
    gpu = rehearse(make("fedavg"), Linear, "stacked", sizes=(7, 6))
    assert gpu.excused == {"Cohort.info": 3, "Cohort.__init__": 2 * 4, "Part.__init__": 2, "Plan.__init__": 2 * 5}


def test_kernels_do_not_grow_with_the_clients_side_by_side(rehearse):
    two, three, one_by_one = (
        rehearse(make("fedavg"), Linear, mode, sizes=sizes).launches
        for mode, sizes in (("stacked", (7, 7)), ("stacked", (7, 7, 7)), ("loop", (7, 7)))
    )
    assert two == three < one_by_one


def planted(change):
    """FedAvg with a change of what the clients upload."""

    def finish(msg, client, local, info):
        return {"delta": change(msg["w"] - local["w"])}, client

    return replace(make("fedavg"), finish=finish)


@pytest.fixture
def trusted(monkeypatch):
    """Functions of tests count as fedbench's, whose numbers are not checked to be finite: that waits for the device."""
    monkeypatch.setattr(first_call, "is_own", lambda function: False)


@pytest.mark.usefixtures("trusted")
def test_it_finds_a_planted_item(rehearse):
    gpu = rehearse(planted(lambda delta: delta * delta.sum().item()), Linear, "stacked")
    assert gpu.faults
    assert all(re.fullmatch(r"aten::_local_scalar_dense, fedbench/simulation/first_call.py:\d+", f) for f in gpu.faults)


@pytest.mark.usefixtures("trusted")
@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda delta: (delta, delta.cpu())[0], "aten::_to_copy to the host"),
        (lambda delta: delta * (2 if (delta > 0).any() else 1), "aten::_local_scalar_dense"),
        (lambda delta: delta * delta[delta > 0].sum(), "aten::index by a mask"),
        (lambda delta: delta[torch.arange(len(delta))], "aten::index by an index on the host"),
        (lambda delta: delta * torch.ones(len(delta), 1).to(delta), "aten::_to_copy to the device that waits for it"),
    ],
    ids=["cpu", "bool", "mask", "index", "upload"],
)
def test_it_finds_other_waits(rehearse, change, what):
    assert {f.split(", ")[0] for f in rehearse(planted(change), Linear, "stacked").faults} == {what}


@pytest.mark.usefixtures("trusted")
def test_it_finds_a_planted_tensor_of_the_cpu(rehearse):
    with pytest.raises(PretendError, match=r"aten::mul with .* on the CPU, fedbench/simulation/first_call.py:\d+"):
        rehearse(planted(lambda delta: delta * torch.ones(delta.shape, dtype=delta.dtype)), Linear, "stacked")


@pytest.mark.usefixtures("trusted")
def test_it_finds_a_planted_generator_of_the_cpu(rehearse):
    def noisy(delta):
        return delta + torch.randn(delta.shape, device=delta.device, generator=torch.Generator().manual_seed(0))

    with pytest.raises(PretendError, match=r"a generator of the CPU, fedbench/simulation/first_call.py:\d+"):
        rehearse(planted(noisy), Linear, "stacked")
