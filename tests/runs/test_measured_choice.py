"""The choice of a form: the fastest per client-step by an injected clock, kept, resumed, and short of memory."""

import json
import weakref
from dataclasses import replace
from functools import partial

import pytest
import torch
from pretend_gpu import PretendGpu
from tools import CASES, case_id, engine_of, federation, make, stages_of, task_for

from fedbench.config.schema import EngineConfig
from fedbench.core.algorithm import Stage
from fedbench.core.errors import RequestError
from fedbench.core.samplers import sample_cohort
from fedbench.models.dense import MLP
from fedbench.runs import measured_choice
from fedbench.runs.build_engine import make_engine
from fedbench.runs.measured_choice import Choice, FormChoice, Sample
from fedbench.simulation.batches import LocalWork
from fedbench.simulation.forms import Form
from fedbench.simulation.memory import OutOfMemory
from fedbench.simulation.oracles import DenseOracle, LoopOracle, make_oracle

PLAIN = EngineConfig("auto", None, 1, "float64", "auto", profile=False, graphs=False)  # loop or stacked
WORK = LocalWork(lr=0.1, batch_size=5)
CLIENTS = 4  # of 20 examples, so that each takes 4 steps


class Device:
    """A pretended GPU on which a call of an oracle takes the time, or ends with the error, of its mode.

    Attributes:
        calls: The modes of all calls, in order.
    """

    def __init__(self, patch):
        self.now, self.cost, self.calls = 0.0, {"loop": 0.003, "stacked": 0.008}, []
        patch.setattr(measured_choice, "make_oracle", self._oracle)
        patch.setattr(measured_choice, "_SECONDS", 0.1)
        patch.setattr(measured_choice, "_PASSES", 2)

    def _oracle(self, task, mode):
        oracle = make_oracle(task, mode)
        plain = oracle.descend_

        def descend_(w, batch, lr):
            self.calls.append(mode)
            if isinstance(self.cost[mode], Exception):
                raise self.cost[mode]
            self.now += self.cost[mode]
            plain(w, batch, lr)

        oracle.descend_ = descend_
        return oracle

    def choice(self, config=PLAIN, case="fedavg", stages=None):
        data = federation((20,) * CLIENTS).to(torch.device("cuda"), torch.float64)
        task = task_for(data, partial(MLP, hidden=(4,)))
        task.device = torch.device("cuda")
        w = task.init(torch.Generator().manual_seed(0))
        sample = Sample(stages or stages_of(make("fedavg"), 2, CLIENTS), task, data, WORK, w, sample_cohort(), 0)
        engine = make_engine(task, data, WORK, config)
        return FormChoice(sample, config, engine, {"algo": case}, clock=lambda: self.now)


@pytest.fixture
def device(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with PretendGpu({}, {}):
        yield Device(monkeypatch)


@pytest.mark.parametrize(("stacked", "best"), [(0.008, "stacked"), (0.016, "loop"), (0.4, "loop")])
def test_the_fastest_per_client_step_is_taken(device, stacked, best):
    """A call of the loop is one client-step, one of the stacked form four, however many passes are timed."""
    device.cost["stacked"] = stacked
    maker = device.choice()
    choice = maker.settle(None)
    assert choice.measured == pytest.approx({"loop": 3.0, "stacked": 1000 * stacked / 4})
    assert (choice.chosen_by, choice.form.mode, choice.left_out) == ("measurement", best, {})
    engine = maker.engine
    assert (engine.mode, engine.cohort_size, engine.workers) == (best, {"loop": 1, "stacked": 4}[best], 1)
    assert type(engine.oracle) is {"loop": LoopOracle, "stacked": DenseOracle}[best]
    assert choice.facts()["measured"] == {k: round(v, 5) for k, v in choice.measured.items()}


def test_a_slow_form_is_abandoned_after_one_pass(device, monkeypatch):
    """Of the stacked form: the chunk whose memory is measured, one pass that warms up, and one that is timed."""
    monkeypatch.setattr(measured_choice, "_SECONDS", 100.0)
    monkeypatch.setattr(measured_choice, "_PASSES", 1)
    device.cost["stacked"] = 4 * 0.0091
    choice = device.choice().settle(None)
    assert choice.measured == pytest.approx({"loop": 3.0, "stacked": 9.1})
    assert device.calls.count("stacked") == 3
    device.cost["stacked"] = 4 * 0.0089
    device.calls.clear()
    device.choice(case="another").settle(None)
    assert device.calls.count("stacked") == 3 + 2 * 4  # two passes of four steps more


def uncapturable():
    """FedAvg with a step that reads a number from the device."""
    algo = make("fedavg")

    def step(oracle, msg, local, batch, info):
        new = algo.step(oracle, msg, local, batch, info)
        return {**new, "w": new["w"] * (0.5 if new["w"].sum() > 1e9 else 1)}

    return replace(algo, step=step)


@pytest.mark.parametrize("place", ["stage", "setup", "personal"])
def test_a_form_has_to_carry_out_every_algorithm_of_the_run(device, place):
    """Steps of the stage that is timed can be captured; those of a shorter one, or of another phase, cannot."""
    algo, bad = make("fedavg"), uncapturable()
    stages = [Stage(algo, 3), Stage(bad, 1)] if place == "stage" else [Stage(replace(algo, **{place: bad}), 3)]
    choice = device.choice(replace(PLAIN, graphs=None), stages=stages).settle(None)
    assert set(choice.left_out) == {"loop, graphs", "stacked, graphs"}
    assert set(choice.measured) == {"loop", "stacked"}
    assert all("cannot be captured" in reason for reason in choice.left_out.values())


def test_it_is_measured_once_for_a_case(device):
    first = device.choice().settle(None)
    device.calls.clear()
    second = device.choice().settle(None)
    assert device.calls == ["stacked"]  # the chunk whose memory is measured
    assert (second.chosen_by, second.form, second.measured) == ("cache", first.form, first.measured)
    assert device.choice(case="another method").settle(None).chosen_by == "measurement"
    assert device.choice(replace(PLAIN, precision="float32")).settle(None).chosen_by == "measurement"


def test_a_corrupt_file_is_measured_again(device, tmp_path):
    device.choice().settle(None)
    (file,) = (tmp_path / "fedbench" / "forms").glob("*.json")
    content = json.loads(file.read_text())
    for form in ({"mode": "loop", "speed": 3}, {"mode": "unfold"}, None):  # unknown, not a candidate here, nothing
        file.write_text(json.dumps(content | {"kept": content["kept"] | {"form": form}}))
        assert device.choice().settle(None).chosen_by == "measurement"
    assert device.choice().settle(None).chosen_by == "cache"


def test_a_resumed_run_keeps_its_form_and_its_chunks(device):
    kept = json.loads(json.dumps(Choice(Form("loop"), "measurement", {"loop": 9.0, "stacked": 9.5}).kept()))
    maker = device.choice()
    maker.engine.resume(maker.engine.limits, 2)
    choice = maker.settle(kept)
    assert (choice.form, choice.chosen_by, choice.measured["stacked"]) == (Form("loop"), "resumed", 9.5)
    assert (maker.engine.mode, maker.engine.cohort_size) == ("loop", 2)
    assert device.calls == []  # although stacked is faster now
    pinned = device.choice(replace(PLAIN, mode="stacked"))
    assert pinned.settle(kept).chosen_by == "pinned"
    assert pinned.engine.mode == "stacked"
    assert device.choice().settle({"form": 3}).chosen_by == "measurement"


def test_what_is_pinned_is_not_measured(device):
    maker = device.choice(replace(PLAIN, mode="loop"))
    choice = maker.settle(None)
    assert (choice.chosen_by, choice.measured, maker.engine.mode) == ("pinned", {}, "loop")
    assert device.calls == []


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB\nmore"), "CUDA out of memory. Tried to"),
        (RequestError("a local step cannot be captured in a CUDA graph"), "a local step cannot be captured"),
        (RuntimeError("vmap: it looks like you're calling .item()"), "vmap: it looks like"),
        (MemoryError(), "MemoryError"),
    ],
)
def test_a_candidate_that_fails_is_left_out_and_named(device, error, reason, capsys):
    device.cost["stacked"] = error
    maker = device.choice()
    choice = maker.settle(None)
    assert (choice.form.mode, list(choice.measured), list(choice.left_out)) == ("loop", ["loop"], ["stacked"])
    assert choice.left_out["stacked"].startswith(reason)
    assert "\n" not in choice.left_out["stacked"]
    assert choice.facts()["left_out"] == choice.left_out
    said = f"fedbench: the form (stacked) is not tried further: {choice.left_out['stacked']}\n"
    assert capsys.readouterr().err == (said if reason.startswith("vmap") else "")  # what nobody expects


def test_errors_that_are_kept_hold_no_tensors():
    """Nor does what led to them: the frames of each are let go."""

    def failing(tensor):
        try:
            raise RuntimeError("the first")
        except RuntimeError as first:
            raise RequestError("the second") from first

    tensor = torch.zeros(3)
    held = weakref.ref(tensor)
    with pytest.raises(RequestError) as caught:
        failing(tensor)
    kept = caught.value
    del tensor, caught
    assert held() is not None
    measured_choice._let_go(kept)
    assert held() is None
    assert str(kept.__cause__) == "the first"


def test_a_device_that_has_failed_ends_the_run(device):
    device.cost["stacked"] = torch.AcceleratorError("CUDA error: an illegal memory access was encountered")
    with pytest.raises(torch.AcceleratorError, match="illegal memory access"):
        device.choice().settle(None)
    device.cost["stacked"] = torch.AcceleratorError("CUDA error: out of memory")
    assert device.choice().settle(None).left_out == {"stacked": "CUDA error: out of memory"}


def test_other_errors_are_not_swallowed(device):
    device.cost["stacked"] = ValueError("a mistake in the method")
    with pytest.raises(ValueError, match="a mistake in the method"):
        device.choice().settle(None)


def test_if_all_candidates_fail_the_plainest_says_why(device):
    device.cost = {"loop": RuntimeError("shapes do not match"), "stacked": torch.OutOfMemoryError("CUDA out of memory")}
    with pytest.raises(RuntimeError, match="shapes do not match"):
        device.choice().settle(None)
    device.cost["loop"] = device.cost["stacked"]
    with pytest.raises(OutOfMemory, match=r"one client does not fit .* smaller local.batch_size .*CUDA out of memory"):
        device.choice().settle(None)
    with pytest.raises(OutOfMemory, match="one client does not fit"):
        device.choice(replace(PLAIN, mode="stacked")).settle(None)


def test_a_kept_form_that_no_longer_fits_is_measured_again(device):
    assert device.choice().settle(None).form.mode == "stacked"
    device.cost["stacked"] = torch.OutOfMemoryError("CUDA out of memory")
    choice = device.choice().settle(None)
    assert (choice.chosen_by, choice.form.mode) == ("measurement", "loop")


def test_streams_and_graphs_are_tried(device):
    """On streams the calls of the clock's oracle are not side by side, and in graphs there are none."""
    choice = device.choice(replace(PLAIN, workers=None, graphs=None)).settle(None)
    assert choice.left_out == {}
    plain = {"loop", "loop, graphs", "stacked", "stacked, graphs"}
    assert choice.measured.keys() == plain | {"loop, graphs, 2 streams", "loop, graphs, 4 streams"}
    assert choice.form.graphs


@pytest.mark.parametrize(
    ("free", "held", "clients"),
    [(1600, 0, 4), (1599, 0, 2), (1500, 100, 4), (800, 0, 2), (799, 0, 1), (300, 0, 1)],
)
def test_chunks_fit_into_a_quarter_of_the_memory(device, monkeypatch, free, held, clients):
    """A chunk of 4 clients has a peak of 400 bytes above the 50 there before; torch holds some without use."""
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device=None: (free, 10**9))
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device=None: 50)
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device=None: 50 + held)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device=None: 450)
    maker = device.choice(replace(PLAIN, mode="stacked"))
    maker.settle(None)
    assert maker.engine.cohort_size == clients


def test_the_users_chunks_are_kept(device):
    maker = device.choice(replace(PLAIN, mode="stacked", cohort_size=3))
    maker.settle(None)
    assert maker.engine.cohort_size == 3
    assert device.calls == []


@pytest.mark.parametrize("case", CASES, ids=case_id)
def test_the_local_phase_of_every_method_can_be_timed(case):
    data = federation((7, 3, 12))
    task = task_for(data, partial(MLP, hidden=(4,)))
    w = task.init(torch.Generator().manual_seed(0))
    stages = stages_of(make(case[0], **case[1]), 2, 3)
    sample = Sample(stages, task, data, WORK, w, sample_cohort(), 0)
    engine, before = engine_of(task, "stacked", 2), w.clone()
    work = sample.on(engine, 3, 2)
    work()
    work()  # with the plans of the first call
    assert torch.equal(sample.w, before)
    assert sample.steps(3, 2) == 5  # of 2, 1 and 3 steps
