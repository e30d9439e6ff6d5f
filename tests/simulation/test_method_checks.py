"""The first result of each function of a method is checked: the message names the function, what came and what fits."""

import re
from dataclasses import replace
from functools import partial

import pytest
import torch
from tools import CASES, case_id, federation, final, make, snapshots, stages_of, task_for

from fedbench.core.algorithm import Algorithm, Averaging, Trials, descent, server_descent
from fedbench.core.errors import RequestError
from fedbench.core.optim import Optimizer
from fedbench.simulation.method_checks import checked

DATA = federation()  # 7 clients; a linear model of 6 features and 3 classes has 21 parameters
FEDAVG = Algorithm()
HERE = r"\S*test_method_checks\.py, line \d+\)"
MODES = ["loop", "stacked", "compiled"]


def nan(v):
    return torch.full_like(v, torch.nan)


def in_place(server, uploads, cohort):
    server["w"].sub_(cohort.p @ uploads["delta"])
    return server


def finish_in_place(msg, client, local, info):
    return {"delta": local["w"].neg_().add_(msg["w"])}, client


FAULTS = {
    "instruct returns columns": (
        {"instruct": lambda server, cohort: {"rank": cohort.p.unsqueeze(1)}},
        r"instruct: <lambda> \(HERE returned 'rank' \[7, 1\] float64; expected a number for each client of the cohort, "
        r"\[C\] with C = 7",
    ),
    "propose returns one model": (
        {"trials": Trials(lambda server, uploads, cohort: {"trials": server["w"]})},
        r"propose: <lambda> \(HERE returned 'trials' \[21\] float64; expected an entry 'trials': models \[J, P\]",
    ),
    "propose forgets the models": (
        {"trials": Trials(lambda server, uploads, cohort: {"w": server["w"]})},
        r"propose: .* returned \{w: \[21\] float64\}; expected an entry 'trials'",
    ),
    "update widens an empty table": (
        {
            "server_init": lambda w, count: {"w": w, "last": w.new_zeros(0, len(w))},
            "update": lambda server, uploads, cohort: {**server, "last": server["w"].new_zeros(3, 2)},
        },
        r"update: .* returned 'last' \[0, 2\] float64; expected \[0, 21\] float64, a table with the columns",
    ),
    "update forgets the mean": (
        {"update": lambda server, uploads, cohort: {"w": server["w"] - uploads["delta"]}},
        r"update: <lambda> \(HERE returned 'w' \[7, 21\] float64; expected \[21\] float64, the model \[P\]; reduce .*"
        r"cohort\.p @ uploads\['delta'\]",
    ),
    "update returns the model": (
        {"update": lambda server, uploads, cohort: server["w"]},
        r"update: .* returned \[21\] float64; expected the server's state: a dictionary of tensors",
    ),
    "update returns nothing": ({"update": lambda server, uploads, cohort: None}, "update: .* returned None; expected"),
    "update drops the model": (
        {"update": lambda server, uploads, cohort: {"x": server["w"]}},
        r"update: .* returned \{x: \[21\] float64\}; expected an entry 'w'",
    ),
    "update invents an entry": (
        {"update": lambda server, uploads, cohort: {**server, "t": server["w"]}},
        "update: .* returned 'w', 't'; expected the entries of the state before, 'w'",
    ),
    "update changes the type": (
        {"update": lambda server, uploads, cohort: {"w": server["w"].float()}},
        r"update: .* returned 'w' \[21\] float32; expected \[21\] float64",
    ),
    "update works in place": ({"update": in_place}, r"update: in_place \(HERE changes server\['w'\] in place; ret"),
    "update divides by zero": (
        {"update": lambda server, uploads, cohort: {"w": nan(server["w"])}},
        r"update: .* returned 'w' \[21\] float64 with 21 values that are not finite; expected finite numbers from",
    ),
    "update raises": (
        {"update": lambda server, uploads, cohort: {"w": server["w"] - uploads["gradient"]}},
        r"update: .* raised KeyError in \S*test_method_checks\.py, line \d+: 'gradient' \(its arguments: \{w: \[21\] "
        r"float64\}; \{delta: \[7, 21\] float64\}; cohort of 7 clients\)",
    ),
    "direction forgets the mean": (
        server_descent(direction=lambda uploads, cohort: uploads["delta"]),
        r"direction: <lambda> \(HERE returned \[7, 21\] float64; expected the direction \[21\] of the server's step; r",
    ),
    "direction is a number": (
        server_descent(direction=lambda uploads, cohort: uploads["delta"].mean()),
        r"direction: .* returned \[\] float64; expected the direction \[21\]",
    ),
    "averaged weights": (
        server_descent(direction=lambda u, cohort: u["delta"], averaged={"delta": lambda s, cohort: cohort.p.sum()}),
        r"weights of 'delta': .* returned \[\] float64; expected the weights of the clients, \[C\] with C = 7",
    ),
    "server optimizer": (
        server_descent(Optimizer(lambda w: {}, lambda g, s: g)),
        r"server optimizer: .* returned \[21\] float64; expected \(direction, the new entries",
    ),
    "finish returns a dictionary": (
        {"finish": lambda msg, client, local, info: {"delta": msg["w"] - local["w"]}},
        r"finish: <lambda> \(HERE returned \{delta: \[\d, 21\] float64\}; expected two dictionaries, \(upload, client",
    ),
    "finish mixes clients": (
        {"finish": lambda msg, client, local, info: ({"delta": (msg["w"] - local["w"]).mean(0)}, client)},
        r"finish: .* returned 'delta' \[21\] float64 in the upload; expected one row per client, \[C, \.\.\.\] with C",
    ),
    "finish forgets the client state": (
        {
            "client_init": lambda w: {"h": torch.zeros_like(w)},
            "finish": lambda msg, client, local, info: ({"delta": msg["w"] - local["w"]}, {}),
        },
        "finish: .* returned a client state with no entries; expected 'h'",
    ),
    "finish keeps what client_init does not know": (
        {"finish": lambda msg, client, local, info: ({"delta": msg["w"] - local["w"]}, {"h": local["w"]})},
        "finish: .* returned a client state with 'h'; expected no entries, since client_init returns none",
    ),
    "finish keeps another shape": (
        {
            "client_init": lambda w: {"h": torch.zeros_like(w)},
            "finish": lambda msg, client, local, info: ({"delta": msg["w"] - local["w"]}, {"h": info.n}),
        },
        r"finish: .* returned 'h' in the client state \[\d, 1\] float64; expected \[\d, 21\] float64",
    ),
    "finish works in place": ({"finish": finish_in_place}, r"finish: .* changes local\['w'\] in place"),
    "broadcast forgets the model": (
        {"broadcast": lambda server: {"model": server["w"]}},
        r"broadcast: .* returned \{model: \[21\] float64\}; expected an entry 'w': the model \[P\], which clients",
    ),
    "server_init": (
        {"server_init": lambda w, clients: {"w": w, "t": 0}},
        "server_init: .* returned 't': int in the server's state; expected names with tensors",
    ),
    "client_init": (
        {"client_init": lambda w: {"h": w.expand(7, 21)}},
        r"client_init: .* returned 'h' \[7, 21\] float64; expected a vector \[P\] or a number \[1\], of one client",
    ),
    "start": (
        {"start": lambda msg, client, info: {"w": msg["w"][:5]}},
        r"start: .* returned 'w' \[5\] float64; expected \[21\] float64, or the same for each client",
    ),
    "deploy": (
        {"deploy": lambda server, clients: server},
        r"deploy: .* returned \{w: \[21\] float64\}; expected the model \[P\], or \[N, P\] with one for each client",
    ),
}  # fmt: skip
STEPS = {
    "step returns the model": (
        {"step": lambda oracle, msg, local, batch, info: local["w"] - oracle.grad(local["w"], batch)},
        r"step: .* returned \[\d, 21\] float64; expected the local variables: a dictionary",
    ),
    "step forgets a variable": (
        {
            "start": lambda msg, client, info: {"w": msg["w"], "m": torch.zeros_like(msg["w"])},
            "step": lambda oracle, msg, local, batch, info: {"w": local["w"]},
        },
        r"step: .* returned \{w: \[\d, 21\] float64\}; expected 'm' too, as start gave it",
    ),
    "step mixes clients": (
        {"step": lambda oracle, msg, local, batch, info: {"w": oracle.grad(local["w"], batch).mean(0)}},
        r"step: .* returned 'w' \[21\] float64; expected \[\d, 21\] float64, the models of the clients at work",
    ),
    "gradient": (
        descent(gradient=lambda oracle, msg, local, batch, info: oracle.loss_and_grad(local["w"], batch)),
        r"gradient: .* returned tuple of \[\d, 1\] float64, \[\d, 21\] float64; expected a tensor \[A, P\]",
    ),
    "extra": (
        descent(extra=lambda msg, local, info: info.lr),
        r"extra: .* returned \[\d, 1\] float64; expected \[\d, 21\] float64, a term of the gradient",
    ),
    "local optimizer": (
        descent(Optimizer(lambda w: {}, lambda g, s: (g.sum(), {}))),
        r"local optimizer: .* returned a direction \[\] float64; expected \[\d, 21\] float64, as the gradient",
    ),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("fault", [*FAULTS, *STEPS])
def test_a_wrong_result_is_named(fault, mode):
    fields, message = (FAULTS | STEPS)[fault]
    with pytest.raises(RequestError) as raised:
        seen = snapshots(replace(FEDAVG, **fields), DATA, rounds=1, mode=mode)
        algo = stages_of(replace(FEDAVG, **fields), 1, 7)[0].algorithm
        algo.deploy(seen[-1].server, seen[-1].clients)
    assert re.match(message.replace("HERE", HERE), str(raised.value)), str(raised.value)


def test_a_personal_phase_sends_nothing():
    personal = Algorithm(finish=lambda msg, client, local, info: ({"delta": local["w"]}, client))
    with pytest.raises(RequestError, match=r"personal\.finish: .* an upload .* expected an empty one, \{\}"):
        final(replace(FEDAVG, personal=personal), DATA, rounds=1)


def test_a_run_that_diverges_is_not_a_fault_of_the_method():
    """From numbers that are not moderate any more, no function can be asked for finite ones."""

    def update(server, uploads, cohort):
        return {"w": server["w"] - cohort.p @ uploads["delta"].mul(1e200).square()}

    algo = replace(FEDAVG, finish=lambda msg, client, local, info: ({"delta": local["w"] + 1e7}, client), update=update)
    assert not torch.isfinite(final(algo, DATA, rounds=1)).all()


def test_only_the_first_result_is_looked_at():
    calls = []

    def update(server, uploads, cohort):
        calls.append(1)
        return {"w": server["w"] - cohort.p @ uploads["delta"]} | ({"late": server["w"]} if len(calls) == 3 else {})

    assert set(snapshots(replace(FEDAVG, update=update), DATA, rounds=3)[-1].server) == {"w", "late"}


def test_a_partial_and_an_object_are_named_by_their_code():
    class Rule:
        def __call__(self, server, uploads, cohort):
            return None

    def rule(factor, server, uploads, cohort):
        return factor

    with pytest.raises(RequestError, match=rf"update: Rule \({HERE} returned None"):
        final(replace(FEDAVG, update=Rule()), DATA, rounds=1)
    with pytest.raises(RequestError, match=rf"update: rule \({HERE} returned int"):
        final(replace(FEDAVG, update=partial(rule, 3)), DATA, rounds=1)


def test_memory_that_runs_out_is_left_to_the_engine():
    """Its error is not the method's: the engine does less at once and repeats."""
    failed = []

    def finish(msg, client, local, info):
        if not failed:
            failed.append(1)
            raise MemoryError
        return {"delta": msg["w"] - local["w"]}, client

    algo = replace(FEDAVG, finish=finish)
    assert torch.allclose(final(algo, DATA, rounds=1, cohort_size=4), final(FEDAVG, DATA, rounds=1), rtol=1e-12)


@pytest.mark.parametrize("case", [c for c in CASES if c[0] != "fedcorr"], ids=case_id)
def test_what_engines_know_of_a_method_stays(case):
    """The type of its step, what it sums, and the optimizers of fedbench's own."""
    algo = make(case[0], **case[1])
    seen = checked(algo)
    known = hasattr(algo.step, "plain")
    assert not known or (type(seen.step), seen.step.opt, seen.step.plain) == (
        type(algo.step), algo.step.opt, algo.step.plain,
    )  # fmt: skip
    assert isinstance(algo.update, Averaging) == isinstance(seen.update, Averaging)
    assert task_for(DATA).size == 21
