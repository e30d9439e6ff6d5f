"""The first result of each function of a method is checked: the message names the function, what
came and what fits.
"""

import random
import re
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from tools import federation, final, make, snapshots, stages_of

from fedbench.core.algorithm import Algorithm, Trials, descent, server_descent
from fedbench.core.errors import RequestError
from fedbench.core.objective import Objective
from fedbench.core.optim import Optimizer
from fedbench.simulation.checks import checked

DATA = federation()  # 7 clients; a linear model of 6 features and 3 classes has 21 parameters
FEDAVG = Algorithm()
HERE = r"\S*test_checks\.py, line \d+\)"


def in_place(server, uploads, cohort):
    server["w"].sub_(cohort.p @ uploads["delta"])
    return server


def averaged(server, uploads, cohort):
    return {"w": server["w"] - cohort.p @ uploads["delta"]}


def final_of(**fields):
    """The model of FedAvg after one round, with other functions."""
    return final(replace(FEDAVG, **fields), DATA, rounds=1)


def delta(msg, local):
    return {"delta": msg["w"] - local["w"]}


FAULTS = {  # the fields of the method, what came, and what fits
    "instruct": (
        {"instruct": lambda server, cohort: {"rank": cohort.p.unsqueeze(1)}},
        "'rank' [7, 1] float64",
        "[C] with C = 7 (a number for each client of the cohort)",
    ),
    "trials.propose": (
        {"trials": Trials(lambda server, uploads, cohort: {"trials": server["w"]})},
        "'trials' [21] float64",
        "float64 [J, P] with P = 21",
    ),
    "update": (
        {"update": lambda server, uploads, cohort: {"w": server["w"] - uploads["delta"]}},
        "'w' [7, 21] float64",
        "float64 [P] with P = 21 (the server's state, as before: {**server, 'w': ...}; "
        "reduce the uploads [C, ...] "
        "over the cohort, as cohort.p @ uploads['delta'] does",
    ),
    "update: another type": (
        {"update": lambda server, uploads, cohort: {"w": server["w"].float()}},
        "'w' [21] float32",
        "float64 [P] with P = 21",
    ),
    "update: not finite": (
        {"update": lambda server, uploads, cohort: {"w": server["w"] * torch.nan}},
        "'w' [21] float64 with values that are not finite",
        "",
    ),
    "update.direction": (
        server_descent(direction=lambda uploads, cohort: uploads["delta"]),
        "[7, 21] float64",
        "[P] (the direction of the server's step; reduce",
    ),
    "update.weights['delta']": (
        server_descent(
            direction=lambda u, cohort: u["delta"],
            averaged={"delta": lambda s, cohort: cohort.p.sum()},
        ),
        "[] float64",
        "[C] with C = 7 (the weights of the clients",
    ),
    "finish": (
        {
            "finish": lambda msg, client, local, info: (
                {"delta": (msg["w"] - local["w"]).mean(0)},
                client,
            )
        },
        "'delta' [21] float64",
        "[C, ...] with C = ",
    ),
    "finish: one value": (
        {"finish": lambda msg, client, local, info: delta(msg, local)},
        "{delta: [6, 21] float64}",
        "two values: (the upload, one row per client",
    ),
    "finish: no client state": (
        {
            "client_init": lambda w: {"h": torch.zeros_like(w)},
            "finish": lambda msg, client, local, info: (delta(msg, local), {}),
        },
        "no entries",
        "'h' (the client state",
    ),
    "personal.finish": (
        {
            "personal": Algorithm(
                finish=lambda msg, client, local, info: ({"delta": local["w"]}, client)
            )
        },
        "'delta' [6, 21] float64",
        "[0] (an empty upload, {}: a personal phase sends nothing)",
    ),
    "broadcast": (
        {"broadcast": lambda server: {"model": server["w"]}},
        "{model: [21] float64}",
        "an entry 'w': float64 [P] with P = 21",
    ),
    "server_init": (
        {"server_init": lambda w, clients: {"w": w, "t": 0}},
        "'t' int",
        "names with tensors",
    ),
    "client_init": (
        {"client_init": lambda w: {"h": w.expand(7, 21)}},
        "'h' [7, 21] float64",
        "[] or [*]",
    ),
    "start": (
        {"start": lambda msg, client, info: {"w": msg["w"][:5]}},
        "'w' [5] float64",
        "float64 [P] or [1, P] or [C, P] with C = 6, P = 21",
    ),
    "deploy": (
        {"deploy": lambda server, clients: server},
        "{w: [21] float64}",
        "a tensor (the model",
    ),
    "step": (
        {
            "step": lambda oracle, msg, local, batch, info: {
                "w": oracle.grad(local["w"], batch).mean(0)
            }
        },
        "'w' [21] float64",
        "float64 [C, P] with C = 6, P = 21",
    ),
    "step.gradient": (
        descent(
            gradient=lambda oracle, msg, local, batch, info: oracle.loss_and_grad(local["w"], batch)
        ),
        "tuple of [6, 1] float64, [6, 21] float64",
        "a tensor (one vector per client",
    ),
    "step.extra": (
        descent(extra=lambda msg, local, info: info.lr),
        "[6, 1] float64",
        "[C, P] or [1, P] or [P] with C = 6, P = 21 (a term of the gradient",
    ),
    "step.opt.update": (
        descent(Optimizer(lambda w: {}, lambda g, s: (g.sum(), {}))),
        "[] float64",
        "float64 [6, 21] (the direction, as the gradient)",
    ),
}


def refusal(fields):
    """The message about a method with these fields."""
    algo = replace(FEDAVG, **fields)
    with pytest.raises(RequestError) as raised:
        last = snapshots(algo, DATA, rounds=1)[-1]
        stages_of(algo, 1, 7)[0].algorithm.deploy(last.server, last.clients)
    return str(raised.value)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_wrong_result_is_named(fault):
    fields, came, fits = FAULTS[fault]
    role, where, message = re.fullmatch(
        r"(.*?): (\S+ \(\S*test_checks\.py, line \d+\)) (.*)", refusal(fields)
    ).groups()
    assert role == fault.partition(":")[0]
    assert where.startswith("<lambda>")
    assert message.startswith(f"returned {came}" + (f"; expected {fits}" if fits else "")), message


def test_an_error_is_named_with_its_arguments():
    def update(server, uploads, cohort):
        return {"w": server["w"] - uploads["gradient"]}

    message = refusal({"update": update})
    assert re.search(r"raised KeyError in \S*test_checks\.py, line \d+: 'gradient'", message)
    arguments = "{w: [21] float64}; {delta: [7, 21] float64}; cohort of 7 clients"
    assert f"(its arguments: {arguments})" in message


def test_a_change_in_place_is_named():
    message = refusal({"update": in_place})
    assert "changes 'w' of its arguments in place; return a new tensor" in message


def test_a_changed_dictionary_is_named():
    """It would be compared with itself, and its new entries lost."""

    def start(msg, client, info):
        msg["w"] = msg["w"] * 0.9
        return {"w": msg["w"]}

    def finish(msg, client, local, info):
        client["m"] = local["w"]
        return delta(msg, local), client

    assert "changes the entry 'w' of its arguments; return" in refusal({"start": start})
    assert "changes the entry 'm' of its arguments; return" in refusal({"finish": finish})


def test_a_changed_fact_about_the_clients_is_named():
    def update(server, uploads, cohort):
        cohort.lr.mul_(0.5)
        return averaged(server, uploads, cohort)

    assert "changes 'lr' of its arguments in place" in refusal({"update": update})


@pytest.mark.parametrize(
    "draw",
    [torch.rand, np.random.rand, lambda n: random.random()],
    ids=["torch", "numpy", "python"],
)
def test_draws_from_a_global_generator_are_named(draw):
    def update(server, uploads, cohort):
        draw(3)
        return averaged(server, uploads, cohort)

    message = refusal({"update": update})
    assert "draws from a global generator of random numbers" in message


def test_a_loss_without_its_dimension_of_examples_is_named():
    """[A, K] has the form of [A, B], but its sum includes padding."""

    def values(own, others, batch, local, info):
        return own.logits.softmax(-1).square().mean(1)

    message = refusal({"objective": Objective(values)})
    assert re.search(r"returned \[\d, 3\] .* \[C, B\] or \[C, 1\] with B = 10, C = \d ", message)


def test_an_error_in_a_later_call_names_the_function():
    calls = []

    def update(server, uploads, cohort):
        calls.append(1)
        if len(calls) == 3:
            raise ValueError("boom")
        return averaged(server, uploads, cohort)

    message = rf"update: update \({HERE} raised ValueError in \S*test_checks\.py, line \d+: boom"
    with pytest.raises(RuntimeError, match=message):
        final(replace(FEDAVG, update=update), DATA, rounds=3)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Algorithm(needs=("loss",)), "needs must be a set"),
        (lambda: Algorithm(needs={"losses"}), "needs must be one of .*; did you mean loss"),
        (lambda: Objective(abs, models="broadcast"), "models must be a tuple"),
        (lambda: Objective(abs, models=("global",)), "models must be one of broadcast, previous"),
    ],
)
def test_unknown_words_are_refused_when_a_method_is_made(make, message):
    with pytest.raises(RequestError, match=message):
        make()


def test_a_run_that_diverges_is_not_a_fault_of_the_method():
    """From numbers that are not moderate any more, no function can be asked for finite ones."""

    def update(server, uploads, cohort):
        return {"w": server["w"] - cohort.p @ uploads["delta"].mul(1e200).square()}

    def finish(msg, client, local, info):
        return {"delta": local["w"] + 1e7}, client

    assert not torch.isfinite(final_of(finish=finish, update=update)).all()


def test_only_the_first_result_is_looked_at():
    calls = []

    def update(server, uploads, cohort):
        calls.append(1)
        late = {"late": server["w"]} if len(calls) == 3 else {}
        return averaged(server, uploads, cohort) | late

    last = snapshots(replace(FEDAVG, update=update), DATA, rounds=3)[-1]
    assert set(last.server) == {"w", "late"}


def test_a_partial_and_an_object_are_named_by_their_code():
    class Rule:
        def __call__(self, server, uploads, cohort):
            return None

    def rule(factor, server, uploads, cohort):
        return factor

    with pytest.raises(RequestError, match=rf"update: Rule \({HERE} returned None"):
        final_of(update=Rule())
    with pytest.raises(RequestError, match=rf"update: rule \({HERE} returned int"):
        final_of(update=partial(rule, 3))


def test_memory_that_runs_out_is_left_to_the_engine():
    """Its error is not the method's: the engine does less at once and repeats."""
    failed = []

    def finish(msg, client, local, info):
        if not failed:
            failed.append(1)
            raise MemoryError
        return delta(msg, local), client

    ours = final(replace(FEDAVG, finish=finish), DATA, rounds=1, cohort_size=4)
    assert torch.allclose(ours, final_of(), rtol=1e-12)


@pytest.mark.parametrize("name", "fedavg scaffold adafedadam ditto fafed drfa".split())
def test_functions_of_fedbench_stay_as_they_are(name):
    """They are tested, and an engine knows some of them by their type."""
    algo = make(name)
    assert checked(algo) == algo
