"""Compression of uploads and of the broadcast: identities of the compressors, sizes of messages,
and whole runs.
"""

from dataclasses import replace
from itertools import combinations, pairwise
from math import ceil, log2

import numpy as np
import pytest
import torch
from snapshot_checks import method_states, random_rows
from tools import UNEQUAL, federation, make, population_of, round_plan, snapshots, task_for

from fedbench.config.compose import compose_run
from fedbench.core.algorithm import Algorithm
from fedbench.core.errors import RequestError
from fedbench.core.randomness import fold_in, key
from fedbench.core.types import ClientInfo
from fedbench.runs.build import build
from fedbench.scenarios import compression as module
from fedbench.scenarios import compressors
from fedbench.scenarios.availability import Availability
from fedbench.scenarios.compression import Codec, Compression, compression
from fedbench.scenarios.layers import shown
from fedbench.scenarios.scenario_stack import ScenarioStack
from fedbench.simulation.loop import Observer

SHAPES = ((20, 30), (20,))  # a matrix and biases, 620 values
ROWS = random_rows(3, 620)
DATA = federation()
N = len(UNEQUAL)
P = task_for(DATA).size
EVERY = {
    "top_k": {"ratio": 0.05},
    "random_k": {"ratio": 0.2},
    "qsgd": {"bucket": 100},
    "sign": {},
    "power": {"warm": False},
}


def codec(kind, side="up", shapes=SHAPES, **options):
    population = population_of(DATA, shapes=shapes)
    return Codec(
        kind=kind,
        side=side,
        population=population,
        **options,
    )


def each(**options):
    """A codec of every kind."""
    return [codec(kind, **own, **options) for kind, own in EVERY.items()]


def coded(one, x, draw=5, factors=None):
    """What is decoded from messages for the rows of x, whose clients are 0, 1, ...; sketches start
    from 0.
    """
    state = one.fresh({"x": x[0]})
    if factors is None and "~factors.x" in state:
        factors = state["~factors.x"].expand(len(x), -1)
    ids = torch.arange(len(x)).unsqueeze(1)
    return one.coded(
        x,
        draw,
        (ids,),
        factors,
    )


def decoded(one, x, draw=5):
    return coded(one, x, draw)[0]


# ---- the size of a message: a real encoder


def scaled_parts(one, count):
    """Numbers of values that share a scale."""
    if one.kind == "sign" and one.per == "tensor":
        return [int(np.prod(shape)) for shape in one.population.shapes]
    size = count if one.kind == "sign" else one.bucket or count
    return [min(size, count - start) for start in range(0, count, size)]


def scale_of(one, part):
    part = part.astype(np.float64)
    if one.kind == "sign":
        return np.abs(part).mean()
    return np.sqrt((part**2).sum()) if one.norm == "l2" else np.abs(part).max()


def encoded(one, x, hashes):
    """The message for x [P]: values of its type, and integers with the number of their bits."""
    count = len(x)
    if one.kind in ("sign", "qsgd"):
        sizes = scaled_parts(one, count)
        parts = np.split(x, np.cumsum(sizes)[:-1])
        scales = np.array([scale_of(one, part) for part in parts], x.dtype)
        if one.kind == "sign":
            return scales, (x >= 0).astype(int), 1
        spread = np.repeat(scales, sizes).astype(np.float64)
        r = one.levels * np.abs(x) / np.where(spread, spread, 1)
        up = (hashes + 0.5) / 2.0**63 < r - np.floor(r)
        levels = np.sign(x) * np.minimum(np.floor(r) + up, one.levels)
        return scales, (levels + one.levels).astype(int), ceil(log2(2 * one.levels + 1))

    k = max(1, ceil(one.ratio * count - 1e-9))
    order = np.argsort(
        -np.abs(x) if one.kind == "top_k" else hashes,
        kind="stable",
    )
    places = np.sort(order[:k])
    width = ceil(log2(count))
    if one.kind == "random_k" or k == count:
        return x[places], [], 0
    if ceil(k * width / 8) < ceil(count / 8):
        return x[places], places, width
    return x[places], np.isin(np.arange(count), places).astype(int), 1


def read(one, values, integers, count, hashes):
    """The vector [P] that a message stands for."""
    if one.kind in ("sign", "qsgd"):
        scales = np.repeat(values, scaled_parts(one, count))
        if one.kind == "sign":
            return np.where(integers, scales, -scales)
        levels = integers - one.levels
        return scales.astype(np.float64) * levels / one.levels
    found = np.zeros(count)
    if one.kind == "random_k":
        places = np.sort(np.argsort(hashes, kind="stable")[: len(values)])
        values = values.astype(np.float64) * (count / len(values))
    elif len(values) == count:
        places = np.arange(count)
    else:
        places = np.flatnonzero(integers) if len(integers) == count else integers
    found[places] = values
    return found


MESSAGES = [
    *((kind, {"ratio": r}) for kind in ("top_k", "random_k") for r in (0.001, 0.1, 0.5, 1)),
    *(("qsgd", {"levels": 4, "bucket": 10, "norm": norm}) for norm in ("l2", "max")),
    ("qsgd", {"levels": 1, "bucket": None}),
    ("sign", {}),
    ("sign", {"per": "tensor"}),
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("count", [1, 2, 10, 129, 620])
@pytest.mark.parametrize(("kind", "options"), MESSAGES)
def test_a_message_has_the_size_that_is_counted_and_gives_what_is_decoded(
    kind, options, count, dtype
):
    shapes = ((count - count // 3,), (count // 3,)) if count > 2 else ((count,),)
    one = codec(
        kind,
        shapes=shapes,
        feedback="none",
        **options,
    )
    x = random_rows(1, count).to(dtype)
    x[0, :: count - 1 or 1] = x[0, 0]  # a tie, and with one value no tie
    client = torch.zeros(1, 1, dtype=torch.int64)
    hashes = fold_in(5, client, torch.arange(count))[0].numpy()

    values, integers, width = encoded(
        one,
        x[0].numpy(),
        hashes,
    )
    assert all(0 <= number < 2**width for number in integers)
    assert values.nbytes + ceil(len(integers) * width / 8) == one.size(count, x.element_size())
    found = torch.from_numpy(read(one, values, integers, count, hashes))
    tolerance = 0 if dtype == torch.float32 else 1e-15  # sums in another order
    torch.testing.assert_close(
        decoded(one, x)[0],
        found.to(dtype),
        rtol=tolerance,
        atol=0,
    )


@pytest.mark.parametrize(
    ("kind", "options", "count", "size"),
    [
        ("top_k", {"ratio": 0.07}, 100, 28 + 7),  # 0.07 * 100 is 7.000000000000001
        ("power", {}, 620, 4 * 2 * (20 + 30) + 80),
        ("power", {"rank": 12}, 620, 4 * 620),  # 12 * 50 = 600 values are no fewer
    ],
)
def test_sizes_by_hand(kind, options, count, size):
    assert codec(kind, **options).size(count, 4) == size


# ---- the compressors


def kind_of(one):
    return one.kind


@pytest.mark.parametrize(
    "one",
    each(),
    ids=kind_of,
)
def test_nothing_stays_nothing(one):
    assert not decoded(one, 0 * ROWS).any()


@pytest.mark.parametrize("kind", ["random_k", "qsgd"])
def test_clients_have_draws_of_their_own(kind):
    equal_rows = ROWS[:1].expand(2, -1)
    first, second = decoded(codec(kind, ratio=0.2), equal_rows)
    assert not torch.equal(first, second)


def test_of_equal_values_the_first_are_sent_and_what_is_not_finite_always():
    rows = [
        [1.0, -2, 2, 0, 2, -2],
        [0.0, 0, 0, 0, 0, 0],
        [9.0, 1, torch.nan, 5, 6, 7],
    ]
    ties, zeros, nan = decoded(codec("top_k", ratio=0.5), torch.tensor(rows))
    assert ties.tolist() == [0, -2, 2, 0, 2, 0]
    assert not zeros.any()
    assert nan.nan_to_num(nan=-1).tolist() == [9, 0, -1, 0, 0, 7]


def test_zero_has_a_sign():
    rows = torch.tensor([[0.0, -5, 1]])
    assert decoded(codec("sign"), rows).tolist() == [[2, -2, 2]]


@pytest.mark.parametrize(("feedback", "factor"), [("none", 1), ("ef", 2 / 5)])
def test_random_k_over_all_sets(feedback, factor, monkeypatch):
    sets = list(combinations(range(5), 2))
    hashes = torch.full((len(sets), 5), 9)
    for row, chosen in zip(hashes, sets, strict=True):
        row[list(chosen)] = 1
    monkeypatch.setattr(module, "fold_in", lambda *coordinates: hashes)
    x = random_rows(1, 5)
    one = codec("random_k", ratio=0.4, feedback=feedback)
    mean = decoded(one, x.expand(len(sets), -1)).mean(0)
    assert torch.allclose(
        mean,
        x[0] * factor,
        rtol=1e-12,
    )


@pytest.mark.parametrize(
    ("norm", "omega"),
    [("l2", min(4 / 9, 2 / 3)), ("max", 4 / 36)],
)
def test_qsgd_over_all_draws(norm, omega, monkeypatch):
    draws = 4000
    u = (torch.arange(draws, dtype=torch.float64) + 0.5) / draws
    hashes = (u * 2.0**63).long().unsqueeze(1).expand(-1, 6)
    monkeypatch.setattr(module, "fold_in", lambda *coordinates: hashes)
    x = random_rows(1, 6)
    options = {"levels": 3, "bucket": 4, "norm": norm}
    got = decoded(codec("qsgd", **options), x.expand(draws, -1))
    assert torch.allclose(
        got.mean(0),
        x[0],
        atol=1e-3,
    )
    kept = decoded(codec("qsgd", feedback="ef", **options), x.expand(draws, -1))
    assert torch.allclose(
        kept * (1 + omega),
        got,
        rtol=1e-12,
    )


def test_power_is_a_projection():
    entry = torch.arange(60)
    hashes = fold_in(key(5, 24), torch.zeros_like(entry), entry)
    start = compressors.normal(hashes).view(30, 2)
    matrix = ROWS[:, :600].view(3, 20, 30)
    basis = torch.linalg.qr(matrix @ start).Q
    projected = (basis @ basis.mT @ matrix).flatten(1)
    one = codec("power", warm=False)
    assert torch.allclose(decoded(one, ROWS)[:, :600], projected)


def test_a_warm_factor_draws_near_to_the_best_and_comes_back_after_nothing():
    one, x = codec("power"), ROWS[:1]
    values = torch.linalg.svdvals(x[0, :600].view(20, 30))
    lost, factors = [], None
    for _ in range(60):
        got, factors = coded(one, x, factors=factors)
        lost.append((got - x).norm().item())
    assert lost[0] > lost[1] > lost[-1]
    assert lost[-1] == pytest.approx(
        values[2:].norm().item(),
        rel=1e-3,
    )
    gone = coded(one, 0 * x, factors=factors)[1]
    assert not gone.any()
    assert torch.equal(coded(one, x, factors=gone)[0], decoded(one, x))
    assert not torch.equal(decoded(one, x, draw=6), decoded(one, x))  # in another round


@pytest.mark.parametrize(
    ("kind", "options"),
    [("power", {}), ("sign", {"per": "tensor"})],
)
def test_a_tensor_without_dimensions_is_one_value(kind, options):
    x = random_rows(3, 621)
    found = decoded(
        codec(
            kind,
            shapes=(*SHAPES, ()),
            **options,
        ),
        x,
    )
    assert torch.equal(found[:, 620].abs(), x[:, 620].abs())
    assert torch.equal(found[:, :620], decoded(codec(kind, **options), x[:, :620]))


# ---- residuals and references


def plan_at(round, ids=(0, 1), receivers=(0, 1), server=None):
    return round_plan(
        ids,
        round=round,
        receivers=np.array(receivers),
        server=server or {},
    )


def channel(one, rounds, x=ROWS):
    """What the server gets in each round from clients that would always upload x, and their last
    states.
    """
    c, p = x.shape
    info = ClientInfo(*[torch.arange(c).unsqueeze(1)] * 7)
    server = {"w": torch.zeros(p, dtype=x.dtype)}
    layer = Compression(one, None)
    fresh = layer.wrap(Algorithm(), plan_at(0)).client_init(x[0])
    states = {k: v.expand(c, -1) for k, v in fresh.items()}
    got = []
    for t in range(rounds):
        algo = layer.wrap(Algorithm(), plan_at(t))
        uploads, states = algo.finish(
            server,
            states,
            {"w": -x},
            info,
        )
        got.append(uploads["delta"])
    return torch.stack(got), states


@pytest.mark.parametrize(
    "one",
    each(feedback="ef"),
    ids=kind_of,
)
def test_what_was_sent_and_the_residual_are_all_there_was(one):
    got, states = channel(one, 9)
    assert torch.allclose(
        got.sum(0) + states["~held.delta"],
        9 * ROWS,
        atol=1e-10,
    )


@pytest.mark.parametrize(
    "one",
    each(feedback="ef21"),
    ids=kind_of,
)
def test_ef21_comes_nearer(one):
    got, states = channel(one, 30)
    assert (got[-1] - ROWS).norm() < 0.9 * (got[0] - ROWS).norm()
    assert torch.equal(states["~held.delta"], got[-1])


class Downlink:
    """The broadcast of a server whose model stays where it is."""

    def __init__(self, start, model):
        self.layer = Compression(
            None,
            codec(
                "top_k",
                side="down",
                ratio=0.1,
                feedback="none",
            ),
        )
        wrapped = self.layer.wrap(Algorithm(), plan_at(0))
        self.server = wrapped.server_init(start, 4) | {"w": model}
        self.round = 0

    def send(self, ids, receivers):
        """Return what the clients get, and its bytes."""
        plan = self.layer.plan(plan_at(self.round, ids, receivers, self.server))
        message = plan.algorithm.broadcast(self.server)
        self.server = plan.remembered(self.server)
        self.round += 1
        return message["w"], plan.bytes_down(message, len(receivers))


def test_the_reference_reaches_the_model_and_absent_clients_catch_up():
    start, model = random_rows(2, 20)
    link = Downlink(start, model)
    whole = 20 * 8
    q = 2 * 8 + 2  # two values and two indices of five bits
    sent, size = link.send((0, 1), (0, 1, 2))
    assert (sent != start).sum() == 2
    assert size == 3 * whole  # no client had a model yet
    assert link.send((0,), (0, 1))[1] == 2 * q
    assert link.send((), (0, 2))[1] == q  # client 2 misses one, and nothing new is sent
    assert link.send((1,), (0, 1, 2, 3))[1] == 3 * q + whole  # client 3 is new
    sent, size = link.send((2,), (2,))
    assert (sent != start).sum() == 8
    assert size == q
    assert link.server["~missed"].tolist() == [1, 1, 0, 1]
    for _ in range(6):
        sent, _ = link.send((2,), (2,))
    assert torch.allclose(sent, model, rtol=1e-14)
    assert link.send((0,), (0,))[1] == 8 * q  # its last was in round 3
    for _ in range(3):
        link.send((0,), (0,))
    assert link.send((1,), (1,))[1] == whole  # eleven messages are longer than the vector


# ---- whole runs


def scenario(up=None, down=None, *layers):
    """What surrounds a method on the small federation."""
    population = population_of(
        DATA,
        shapes=task_for(DATA).layout.shapes,
    )
    down = {"feedback": "none", **(down or {})}
    sent = compression(
        up=up or {},
        down=down,
        population=population,
    )
    return ScenarioStack(population, [sent, *layers])


def agree(a, b):
    """Whether the states of the method are the same but for rounding."""
    ours = shown(a.server) | shown(a.clients)
    theirs = shown(b.server) | shown(b.clients)
    return ours.keys() == theirs.keys() and all(
        torch.allclose(
            v,
            theirs[k],
            rtol=1e-9,
            atol=1e-12,
        )
        for k, v in ours.items()
    )


LOSSLESS = [
    ({"kind": "none", "feedback": "ef"}, {"kind": "none"}, True),
    ({"kind": "none", "feedback": "ef21"}, {}, True),
    ({"kind": "top_k", "ratio": 1}, {}, True),
    ({"kind": "power", "rank": 12}, {"kind": "power", "rank": 12}, False),  # sent as they are
    ({"kind": "random_k", "ratio": 1, "feedback": "ef21"}, {}, False),
    ({}, {"kind": "top_k", "ratio": 1}, False),
]


@pytest.mark.parametrize("name", ["mimelite", "fednova", "ditto", "qfedavg"])
@pytest.mark.parametrize(("up", "down", "exact"), LOSSLESS)
def test_compression_that_loses_nothing_changes_nothing(name, up, down, exact):
    plain = snapshots(make(name), DATA, participation=4)[-1]
    found = snapshots(
        make(name),
        DATA,
        participation=4,
        scenario=scenario(up, down),
    )[-1]
    assert method_states(found) == method_states(plain) if exact else agree(found, plain)


@pytest.mark.parametrize("name", ["scaffold", "feddyn"])
def test_the_servers_mean_of_client_states_differs_by_the_mean_residual(name):
    up = {"kind": "qsgd", "feedback": "ef", "levels": 3}
    around = scenario(up, {"kind": "qsgd"})
    for s in snapshots(
        make(name),
        DATA,
        participation=3,
        rounds=6,
        scenario=around,
    ):
        if name == "scaffold":
            mean = s.server["c"] + s.clients["~held.c"].mean(0)
            states = s.clients["c"]
        else:
            mean = s.server["drift"] - s.clients["~held.delta"].mean(0)
            states = s.clients["drift"]
        assert torch.allclose(
            mean,
            states.mean(0),
            rtol=1e-8,
            atol=1e-10,
        )
    assert s.server["~compression_error"] > 0


@pytest.mark.parametrize(
    ("name", "vectors", "numbers"),
    [("scaffold", 2, 0), ("fednova", 1, 1), ("mimelite", 2, 0)],
)
def test_bytes_of_a_run(name, vectors, numbers):
    """With every client in both rounds: numbers in full, vectors compressed, and the broadcast in
    full at first.
    """
    around = scenario({"kind": "sign", "feedback": "ef"}, {"kind": "qsgd"})
    _, first, second = snapshots(
        make(name),
        DATA,
        rounds=2,
        scenario=around,
    )
    assert P == 21
    up = vectors * (8 + 3) + numbers * 8  # a scale and 21 signs; a_k
    assert first.bytes_up == N * up
    assert second.bytes_up == 2 * N * up
    down = 8 + 11  # a norm and 21 levels of four bits
    assert first.bytes_down == N * vectors * 168
    assert second.bytes_down == N * vectors * (168 + down)


def test_a_lost_result_leaves_the_clients_residual_and_costs_a_broadcast():
    lossy = scenario(
        {"kind": "top_k"},
        {"kind": "top_k"},
        Availability(lost=0.9),
    )
    run = snapshots(
        make("fedavg"),
        DATA,
        rounds=8,
        scenario=lossy,
    )
    size = codec("top_k").size(P, 8)
    assert {len(s.cohort) == 0 for s in run[1:]} == {False, True}
    for before, after in pairwise(run):
        present = len(after.cohort)
        absent = np.setdiff1d(np.arange(N), after.cohort)
        residuals = [s.clients["~held.delta"][absent] for s in (before, after)]
        assert torch.equal(*residuals)
        assert after.bytes_up - before.bytes_up == present * size
        assert after.server["~compression_error"].isnan() == (not present)
        if not present:
            assert torch.equal(before.server["w"], after.server["w"])


@pytest.mark.parametrize(
    ("name", "side", "rounds"),
    [
        ("fedavg", {"kind": "power", "rank": 1}, 5),
        ("ditto", {"kind": "qsgd", "levels": 3}, 5),
        # seven visits, then a stage with states of its own
        ("fedcorr", {"kind": "power", "rank": 1}, 9),
    ],
)
def test_a_run_does_not_depend_on_chunks_and_modes(name, side, rounds):
    around = scenario({"feedback": "ef21", **side}, side)
    how = {"rounds": rounds, "participation": 3, "scenario": around}
    whole = snapshots(make(name), DATA, **how)[-1]
    for other in ({"cohort_size": 1}, {"mode": "compiled"}):
        chunked = snapshots(make(name), DATA, **other, **how)[-1]
        assert agree(whole, chunked)


def test_the_error_is_the_mean_over_clients():
    algo = make("fedavg", weights="uniform")
    half = {"kind": "top_k", "ratio": 0.5}
    sent = []
    watch = Observer(lambda round: round == 1, lambda e: sent.append(e.uploads["delta"].clone()))
    snapshots(algo, DATA, rounds=1, observers=[watch])
    run = snapshots(
        algo,
        DATA,
        rounds=2,
        scenario=scenario(half, half),
    )
    lost = run[1].clients["~held.delta"]
    error = (lost.norm(dim=1) / sent[0].norm(dim=1)).mean()
    assert run[1].server["~compression_error"] == pytest.approx(error)


# ---- what is refused, and the configuration


def test_vectors_that_the_server_does_not_sum_are_refused():
    def finish(msg, client, local, info):
        return {"other": local["w"]}, client

    own = replace(make("fedavg"), finish=finish)
    message = r"compression\.up expects the vectors delta, and the method sends other"
    with pytest.raises(RequestError, match=message):
        snapshots(
            own,
            DATA,
            scenario=scenario({"kind": "sign"}),
        )


@pytest.mark.parametrize(
    ("kind", "memory"),
    [
        ("top_k", "ef"),
        ("random_k", "none"),
        ("qsgd", "none"),
        ("sign", "ef"),
        ("power", "ef"),
    ],
)
def test_biased_compressors_have_feedback_by_default(kind, memory):
    assert codec(kind).memory == memory


@pytest.mark.parametrize(
    ("last", "name"), [("defence=median", "Defence"), ("privacy=central", "Privacy")]
)
def test_messages_of_attackers_are_compressed_and_decoded_before_the_rule_and_clipping(last, name):
    chosen = [last, "compression=sign", "attack=sign_flip", "algo.weights=uniform"]
    layers = build(compose_run(["data.clients=5", *chosen])).scenario.layers
    assert [type(layer).__name__ for layer in layers] == ["Attack", "Compression", name]
