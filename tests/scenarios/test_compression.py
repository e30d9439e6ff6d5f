"""Compression of uploads and of the broadcast: identities of the compressors, sizes of messages, and whole runs."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, pairwise

import numpy as np
import pytest
import torch
from tools import UNEQUAL, federation, make, population_of, round_plan, snapshots, task_for
from torch import Tensor

from fedbench.config.compose import compose_run
from fedbench.core.algorithm import Algorithm
from fedbench.core.errors import RequestError
from fedbench.core.randomness import fold_in
from fedbench.core.types import ClientInfo
from fedbench.runs.build import build
from fedbench.scenarios import compression as module
from fedbench.scenarios import compressors
from fedbench.scenarios.availability import Availability
from fedbench.scenarios.compression import Codec, Compression, compression
from fedbench.scenarios.scenario_stack import ScenarioStack
from fedbench.simulation.loop import Observer

KINDS = ("top_k", "random_k", "qsgd", "sign", "power")
SHAPES = ((20, 30), (20,))  # a matrix and biases, 620 values
DATA = federation()
N = len(UNEQUAL)
P = task_for(DATA).size


def codec(kind, side="up", shapes=SHAPES, **options):
    return Codec(kind=kind, side=side, population=population_of(DATA, shapes=shapes), **options)


def coded(one, x, draw=5, kept=None):
    """What is decoded from messages for the rows of x, whose clients are 0, 1, ...; sketches start from 0."""
    if kept is None:
        kept = next(
            (v.expand(len(x), -1) for k, v in one.fresh({"x": x[0]}).items() if "factors" in k),
            None,
        )
    return one.decoded(x, draw, (torch.arange(len(x)).unsqueeze(1),), kept)


def rows(c=3, p=620, seed=0, dtype=torch.float64):
    return torch.randn(c, p, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(
        dtype
    )


# ---- the size of a message: a real encoder


def bits(numbers, width):
    """Numbers as bytes, ``width`` bits each."""
    flat = [n >> j & 1 for n in numbers for j in range(width)]
    return np.packbits(np.array(flat, dtype=np.uint8), bitorder="little").tobytes()


def unbits(data, width, count):
    flat = np.unpackbits(np.frombuffer(data, np.uint8), bitorder="little")[: width * count].reshape(
        count, width
    )
    return [int(v) for v in flat @ (1 << np.arange(width, dtype=object))]


def encoded(one, x, hashes):
    """The message for x [P] as bytes; its values have the type of x."""
    count, b = len(x), x.dtype.type
    k = max(1, int(np.ceil(one.ratio * count - 1e-9)))
    if one.kind == "sign":
        cuts = (
            np.cumsum([np.prod(s) for s in one.population.shapes])[:-1].astype(int)
            if one.per == "tensor"
            else []
        )
        scales = [b(np.abs(v).mean(dtype=np.float64)) for v in np.split(x, cuts)]
        return np.array(scales, x.dtype).tobytes() + bits((x >= 0).astype(int).tolist(), 1)
    if one.kind == "qsgd":
        u, s, d = (hashes + 0.5) / 2.0**63, one.levels, one.bucket or count
        scales, levels = [], []
        for start in range(0, count, d):
            v = x[start : start + d].astype(np.float64)
            scale = b(np.sqrt((v**2).sum()) if one.norm == "l2" else np.abs(v).max())
            r = s * np.abs(v) / np.float64(scale) if scale else 0 * v
            level = np.minimum(np.floor(r) + (u[start : start + d] < r - np.floor(r)), s)
            scales.append(scale)
            levels += (s + np.sign(v) * level).astype(int).tolist()
        return np.array(scales, x.dtype).tobytes() + bits(levels, int(np.ceil(np.log2(2 * s + 1))))
    order = np.argsort(-np.abs(x) if one.kind == "top_k" else hashes, kind="stable")
    at = np.sort(order[:k])
    values = x[at].tobytes()
    if one.kind == "random_k" or k == count:
        return values
    mask = np.isin(np.arange(count), at).astype(int).tolist()
    packed = bits(at.tolist(), int(np.ceil(np.log2(count))) if count > 1 else 0)
    return values + (packed if len(packed) < -(-count // 8) else bits(mask, 1))


def read(one, message, count, hashes, dtype):
    """The vector [P] that bytes stand for."""
    b, found = np.dtype(dtype).itemsize, np.zeros(count, dtype)
    k = max(1, int(np.ceil(one.ratio * count - 1e-9)))
    if one.kind == "sign":
        sizes = [int(np.prod(s)) for s in one.population.shapes] if one.per == "tensor" else [count]
        scales = np.repeat(np.frombuffer(message[: b * len(sizes)], dtype), sizes)
        return np.where(unbits(message[b * len(sizes) :], 1, count), scales, -scales)
    if one.kind == "qsgd":
        buckets = -(-count // (one.bucket or count))
        scales = np.repeat(np.frombuffer(message[: b * buckets], dtype), one.bucket or count)[
            :count
        ].astype(np.float64)
        levels = (
            np.array(
                unbits(message[b * buckets :], int(np.ceil(np.log2(2 * one.levels + 1))), count)
            )
            - one.levels
        )
        return (scales * levels / one.levels).astype(dtype)
    values, rest = np.frombuffer(message[: b * k], dtype), message[b * k :]
    if one.kind == "random_k":
        found[np.sort(np.argsort(hashes, kind="stable")[:k])] = (
            values.astype(np.float64) * (count / k)
        ).astype(dtype)
        return found
    width = int(np.ceil(np.log2(count))) if count > 1 else 0
    if k == count:
        return values
    dense = -(-count // 8) <= -(-k * width // 8)
    found[np.flatnonzero(unbits(rest, 1, count)) if dense else unbits(rest, width, k)] = values
    return found


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("count", [1, 2, 10, 129, 620])
@pytest.mark.parametrize(
    ("kind", "options"),
    [(kind, {"ratio": ratio}) for kind in ("top_k", "random_k") for ratio in (0.001, 0.1, 0.5, 1)]
    + [
        ("qsgd", {"levels": s, "bucket": d, "norm": n})
        for s, d in ((1, None), (4, 10), (7, 512))
        for n in ("l2", "max")
    ]
    + [("sign", {}), ("sign", {"per": "tensor"})],
)
def test_a_message_in_bytes_has_the_size_that_is_counted_and_gives_what_is_decoded(
    kind, options, count, dtype
):
    shapes = ((count - count // 3,), (count // 3,)) if count > 2 else ((count,),)
    one, x = codec(kind, shapes=shapes, feedback="none", **options), rows(1, count, dtype=dtype)
    x[0, :: count - 1 or 1] = x[0, 0]  # a tie, and with one value no tie
    hashes = fold_in(5, torch.zeros(1, 1, dtype=torch.int64), torch.arange(count))[0].numpy()
    message = encoded(one, x[0].numpy(), hashes)
    assert len(message) == one.size(count, x.element_size())
    found, exact = read(one, message, count, hashes, x.numpy().dtype), dtype == torch.float32
    # sums in another order
    assert np.allclose(found, coded(one, x)[0][0], rtol=0 if exact else 1e-15, atol=0)


@pytest.mark.parametrize(
    ("kind", "options", "count", "size"),
    [
        ("top_k", {"ratio": 0.01}, 1000, 40 + 13),  # 10 values, 10 numbers of 10 bits
        ("top_k", {"ratio": 0.07}, 100, 28 + 7),  # 0.07 * 100 is 7.000000000000001
        ("random_k", {"ratio": 0.01}, 1000, 40),
        ("qsgd", {"levels": 1}, 10, 4 + 3),
        ("qsgd", {"bucket": 4}, 10, 12 + 5),
        ("sign", {}, 10, 4 + 2),
        ("power", {}, 620, 4 * 2 * (20 + 30) + 80),
        ("power", {"rank": 12}, 620, 4 * 620),  # 12 * 50 = 600 values are no fewer
    ],
)
def test_sizes_by_hand(kind, options, count, size):
    assert codec(kind, **options).size(count, 4) == size


# ---- the compressors


def every(**options):
    made = {
        "top_k": {"ratio": 0.05},
        "random_k": {"ratio": 0.2},
        "qsgd": {"bucket": 100},
        "power": {"warm": False},
    }
    return [codec(kind, **made.get(kind, {}), **options) for kind in KINDS]


@pytest.mark.parametrize(
    "one", [*every(), *every(feedback="ef"), codec("qsgd", norm="max")], ids=lambda c: c.kind
)
def test_scaling_and_nothing(one):
    x = rows()
    assert torch.allclose(coded(one, 3.7 * x)[0], 3.7 * coded(one, x)[0], rtol=1e-12, atol=1e-14)
    assert not coded(one, 0 * x)[0].any()


@pytest.mark.parametrize("one", every(), ids=lambda c: c.kind)
def test_draws_of_a_client_do_not_depend_on_the_others(one):
    x, ids = rows(4), torch.tensor([[2], [5], [7], [9]])
    whole, part = (one.decoded(x[i], 5, (ids[i],), None)[0] for i in (slice(0, 4), slice(1, 3)))
    assert torch.equal(whole[1:3], part)
    if one.kind in ("random_k", "qsgd"):  # and differ between clients
        same = one.decoded(x[:1].expand(4, -1), 5, (ids,), None)[0]
        assert not torch.equal(same[0], same[1])


def test_contraction():
    x = rows()
    square = x.square().sum(1)
    lost = [(coded(one, x)[0] - x).square().sum(1) / square for one in every(feedback="ef")]
    assert (lost[0] < 1 - 31 / 620).all()
    # on average 1 - k/P
    assert torch.allclose(lost[1], torch.tensor(0.8, dtype=torch.float64), atol=0.1)
    assert (lost[2] < 1 - 1 / (1 + min(100 / 49, 10 / 7))).all()
    assert torch.allclose(lost[3], 1 - x.abs().sum(1) ** 2 / (620 * square), rtol=1e-12)
    assert (lost[4] < 1).all()
    best = x.abs().sort(1, descending=True).values[:, 31:].square().sum(1) / square
    assert torch.allclose(lost[0], best, rtol=1e-12)  # no vector with 31 values is nearer


def test_of_equal_values_the_first_are_sent_and_what_is_not_finite_always():
    x = torch.tensor([[1.0, -2, 2, 0, 2, -2], [0.0, 0, 0, 0, 0, 0], [9.0, 1, torch.nan, 5, 6, 7]])
    got = coded(codec("top_k", ratio=0.5), x)[0]
    assert got[0].tolist() == [0, -2, 2, 0, 2, 0]
    assert not got[1].any()
    assert got[2, 2].isnan() and got[2, 0] == 9 and got[2, 5] == 7


def test_zero_has_a_sign():
    assert coded(codec("sign"), torch.tensor([[0.0, -5, 1]]))[0].tolist() == [[2, -2, 2]]


@pytest.mark.parametrize("feedback", ["none", "ef"])
def test_random_k_over_all_sets(feedback, monkeypatch):
    sets = list(combinations(range(5), 2))
    hashes = torch.ones(len(sets), 5, dtype=torch.int64) * 9
    for row, chosen in zip(hashes, sets, strict=True):
        row[list(chosen)] = 1
    monkeypatch.setattr(module, "fold_in", lambda *coordinates: hashes)
    x = rows(1, 5).expand(len(sets), -1)
    mean = coded(codec("random_k", ratio=0.4, feedback=feedback), x)[0].mean(0)
    assert torch.allclose(mean, x[0] * (1 if feedback == "none" else 2 / 5), rtol=1e-12)


@pytest.mark.parametrize("norm", ["l2", "max"])
def test_qsgd_over_all_draws(norm, monkeypatch):
    draws, s = 4000, 3
    u = (torch.arange(draws, dtype=torch.float64) + 0.5) / draws
    monkeypatch.setattr(
        module, "fold_in", lambda *coordinates: (u * 2.0**63).long().unsqueeze(1).expand(-1, 6)
    )
    x = rows(1, 6)
    got = coded(codec("qsgd", levels=s, bucket=4, norm=norm), x.expand(draws, -1))[0]
    order = 2 if norm == "l2" else torch.inf
    unit = (
        torch.cat([torch.linalg.vector_norm(v, order, 1).expand(v.shape[1]) for v in x.split(4, 1)])
        / s
    )
    fraction = x[0].abs() / unit % 1
    assert torch.allclose(got.mean(0), x[0], atol=1e-3)
    assert torch.allclose(got.var(0, correction=0), unit**2 * fraction * (1 - fraction), atol=1e-3)
    kept = coded(codec("qsgd", levels=s, bucket=4, norm=norm, feedback="ef"), x.expand(draws, -1))[
        0
    ]
    omega = min(4 / 9, 2 / 3) if norm == "l2" else 4 / 36
    assert torch.allclose(kept * (1 + omega), got, rtol=1e-12)


def test_qsgd_leaves_what_is_on_its_grid():
    one = torch.zeros(1, 512, dtype=torch.float32)
    one[0, 3] = -0.3
    assert torch.equal(coded(codec("qsgd"), one)[0], one)
    grid = torch.tensor([[3.0, -1, 0, 2]])
    assert torch.equal(coded(codec("qsgd", levels=3, norm="max"), grid)[0], grid)
    fine = coded(codec("qsgd", levels=2**40), rows())[0]
    assert torch.allclose(fine, rows(), rtol=0, atol=1e-10)


def test_power_is_a_projection_that_low_rank_passes(monkeypatch):
    x = rows(2)
    q, entry = compressors.orthonormal(rows(1, 60).view(1, 30, 2)), torch.arange(60)
    low = x.clone()
    low[:, :600] = (rows(2, 40).view(2, 20, 2) @ q.mT).flatten(1)
    assert torch.allclose(coded(codec("power", warm=False), low)[0], low, atol=1e-9)
    start = compressors.normal(fold_in(compressors.key(5, 24), 0 * entry, entry)).view(30, 2)
    matrix = x[:, :600].view(2, 20, 30)
    basis = torch.linalg.qr(matrix @ start).Q
    assert torch.allclose(
        coded(codec("power", warm=False), x)[0][:, :600], (basis @ basis.mT @ matrix).flatten(1)
    )
    # full rank, where a codec sends the matrix
    monkeypatch.setattr(Codec, "matrices", [(20, 30, 20), (1, 20, 0)])
    assert torch.allclose(coded(codec("power"), x)[0], x, atol=1e-9)


def test_a_warm_factor_draws_near_to_the_best_and_comes_back_after_nothing():
    one, x = codec("power"), rows(1)
    best = torch.linalg.svdvals(x[0, :600].view(20, 30))[2:].square().sum().sqrt()
    lost, kept = [], one.fresh({"x": x[0]})["~factors.x"][None]
    for _ in range(60):
        got, kept = coded(one, x, kept=kept)
        lost.append(torch.linalg.vector_norm(got - x).item())
    assert lost[0] > lost[1] > lost[-1] and lost[-1] == pytest.approx(best.item(), rel=1e-3)
    _, gone = coded(one, 0 * x, kept=kept)
    assert not gone.any()
    assert torch.equal(coded(one, x, kept=gone)[0], coded(one, x)[0])
    assert not torch.equal(coded(one, x, 6)[0], coded(one, x)[0])  # in another round


# ---- residuals and references


def channel(one, x, rounds):
    """What the server gets in each round from clients that would always upload x [c, P], and their last states."""
    c, p = x.shape
    info = ClientInfo(*[torch.arange(c).unsqueeze(1)] * 7)
    states = {
        k: v.expand(c, -1)
        for k, v in Compression(one, None).wrap(Algorithm(), at(0)).client_init(x[0]).items()
    }
    got = []
    for t in range(rounds):
        algo = Compression(one, None).wrap(Algorithm(), at(t))
        uploads, states = algo.finish({"w": torch.zeros(p, dtype=x.dtype)}, states, {"w": -x}, info)
        got.append(uploads["delta"])
    return torch.stack(got), states


def at(round, ids=(0, 1), receivers=(0, 1), server=None):
    return round_plan(ids, round=round, receivers=np.array(receivers), server=server or {})


@pytest.mark.parametrize("kind", ["top_k", "random_k"])
def test_what_loses_nothing_leaves_no_residual(kind):
    x = rows()
    got, states = channel(codec(kind, ratio=1, feedback="ef"), x, 3)
    assert torch.equal(got, x.expand(3, -1, -1)) and not states["~held.delta"].any()


@pytest.mark.parametrize("one", every(feedback="ef"), ids=lambda c: c.kind)
def test_what_was_sent_and_the_residual_are_all_there_was(one):
    x = rows()
    got, states = channel(one, x, 9)
    assert torch.allclose(got.sum(0) + states["~held.delta"], 9 * x, atol=1e-10)
    late = [torch.linalg.vector_norm(channel(one, x, t)[0].mean(0) - x).item() for t in (40, 80)]
    assert late[1] < 0.75 * late[0]  # like 1/t


def test_ef21_comes_nearer_in_every_round_and_arrives():
    x = rows()
    got, states = channel(codec("top_k", ratio=0.1, feedback="ef21"), x, 10)
    lost = (got - x).square().sum(2)
    assert (lost[1:] <= 0.9 * lost[:-1] + 1e-20).all() and (
        lost[0] <= 0.9 * x.square().sum(1)
    ).all()
    assert torch.allclose(got[-1], x, rtol=1e-14) and lost[-2].min() > 0.1
    assert torch.equal(states["~held.delta"], got[-1])
    for one in every(feedback="ef21"):
        got, _ = channel(one, x, 30)
        assert (got[-1] - x).norm() < 0.9 * (got[0] - x).norm()


def down(one, server, round, ids, receivers):
    """A round's broadcast, its bytes, and the server's state after it, which the method has not changed."""
    plan = Compression(None, one).plan(at(round, ids, receivers, server))
    message = plan.algorithm.broadcast(server)
    return message["w"], plan.bytes_down(message, len(receivers)), plan.remembered(server)


def test_the_reference_reaches_the_model_and_absent_clients_catch_up():
    one, w = codec("top_k", side="down", feedback="none", ratio=0.1), rows(1, 20)[0]
    server = Compression(None, one).wrap(Algorithm(), at(0)).server_init(w, 4) | {
        "w": (moved := w + rows(1, 20, 1)[0])
    }
    q, whole = 2 * 8 + 2, 160  # two values and two indices of five bits
    sent, size, server = down(one, server, 0, (0, 1), (0, 1, 2))
    assert ((sent != w).sum(), size) == (2, 3 * whole)  # nobody had anything
    sizes = []
    for t, (ids, receivers) in enumerate(
        [((0,), (0, 1)), ((), (0, 2)), ((1,), (0, 1, 2, 3)), ((2,), (2,))], 1
    ):
        sent, size, server = down(one, server, t, ids, receivers)
        sizes.append(size)
    # client 2 misses one; in a round without results nothing new is sent; then it has all but the
    # new one; 3 is new
    assert sizes == [2 * q, q, 3 * q + whole, q] and (
        (sent != w).sum(),
        server["~missed"].tolist(),
    ) == (
        8,
        [1, 1, 0, 1],
    )
    for t in range(5, 11):
        sent, size, server = down(one, server, t, (2,), (2,))
    assert torch.allclose(sent, moved, rtol=1e-14)
    assert down(one, server, 11, (0,), (0,))[1] == 8 * q  # its last was in round 3
    for t in range(11, 14):
        _, _, server = down(one, server, t, (0,), (0,))
    # eleven messages are longer than the vector
    assert down(one, server, 14, (1,), (1,))[1] == whole


# ---- whole runs


def scenario(up=None, down=None, availability=None):
    """What surrounds a method on the small federation."""
    found = population_of(DATA, shapes=task_for(DATA).layout.shapes)
    one = compression(up=up or {}, down={"feedback": "none", **(down or {})}, population=found)
    return ScenarioStack(found, [one] if availability is None else [one, availability])


def same(a, b, exact=True):
    """Whether two runs have the same states of server and clients, but for what scenarios keep."""

    def close(x: Tensor, y: Tensor) -> bool:
        return torch.equal(x, y) if exact else torch.allclose(x, y, rtol=1e-9, atol=1e-12)

    shown = [
        {k: v for k, v in (r[-1].server | r[-1].clients).items() if not k.startswith("~")}
        for r in (a, b)
    ]
    return shown[0].keys() == shown[1].keys() and all(
        close(v, shown[1][k]) for k, v in shown[0].items()
    )


@pytest.mark.parametrize("name", ["mimelite", "fednova", "ditto", "qfedavg"])
@pytest.mark.parametrize(
    ("up", "down", "exact"),
    [
        ({"kind": "none", "feedback": "ef"}, {"kind": "none"}, True),
        ({"kind": "none", "feedback": "ef21"}, {}, True),
        ({"kind": "top_k", "ratio": 1}, {}, True),
        ({"kind": "power", "rank": 12}, {"kind": "power", "rank": 12}, False),  # sent as they are
        ({"kind": "random_k", "ratio": 1, "feedback": "ef21"}, {}, False),
        ({}, {"kind": "top_k", "ratio": 1}, False),
    ],
)
def test_compression_that_loses_nothing_changes_nothing(name, up, down, exact):
    algo = make(name)
    plain = snapshots(algo, DATA, participation=4)
    assert same(snapshots(algo, DATA, participation=4, scenario=scenario(up, down)), plain, exact)


UP = {
    "top_k": {"ratio": 0.2},
    "random_k": {"ratio": 0.3},
    "qsgd": {"levels": 3},
    "sign": {},
    "power": {"rank": 1},
}


@pytest.mark.parametrize("name", ["scaffold", "feddyn"])
def test_the_servers_mean_of_client_states_differs_by_the_mean_residual(name):
    up = {"kind": "qsgd", "feedback": "ef", **UP["qsgd"]}
    run = snapshots(
        make(name), DATA, participation=3, rounds=6, scenario=scenario(up, {"kind": "qsgd"})
    )
    for s in run:
        if name == "scaffold":
            held, mean = s.server["c"] + s.clients["~held.c"].mean(0), s.clients["c"].mean(0)
        else:
            held, mean = (
                s.server["drift"] - s.clients["~held.delta"].mean(0),
                s.clients["drift"].mean(0),
            )
        assert torch.allclose(held, mean, rtol=1e-8, atol=1e-10)
    assert s.server["~compression_error"] > 0


@pytest.mark.parametrize("name", ["scaffold", "fednova", "mimelite"])
def test_bytes_of_a_run(name):
    """With every client in both rounds: numbers in full, vectors compressed, and the broadcast in full at first."""
    run = snapshots(
        make(name),
        DATA,
        rounds=2,
        scenario=scenario({"kind": "sign", "feedback": "ef"}, {"kind": "qsgd"}),
    )
    vectors = {"scaffold": (2, 2), "fednova": (1, 1), "mimelite": (2, 2)}[name]  # up and down
    up = vectors[0] * (8 + 3) + (8 if name == "fednova" else 0)  # a scale and 21 signs; a_k
    q = 8 + 11  # a norm and 21 levels of four bits
    assert P == 21 and [s.bytes_up for s in run] == [0, N * up, 2 * N * up]
    assert [s.bytes_down for s in run] == [0, N * vectors[1] * 168, N * vectors[1] * (168 + q)]


def test_a_lost_result_leaves_the_clients_residual_and_costs_a_broadcast():
    lossy = scenario({"kind": "top_k"}, {"kind": "top_k"}, Availability(lost=0.9))
    run = snapshots(make("fedavg"), DATA, rounds=8, scenario=lossy)
    size = codec("top_k").size(P, 8)
    for before, after in pairwise(run):
        absent = np.setdiff1d(np.arange(N), after.cohort)
        assert torch.equal(
            after.clients["~held.delta"][absent], before.clients["~held.delta"][absent]
        )
        assert after.bytes_up - before.bytes_up == len(after.cohort) * size
        down = 168 if before.round == 0 else size if len(after.cohort) else 0
        assert after.bytes_down - before.bytes_down == N * down
    empty = [s for s in run[1:] if not len(s.cohort)]
    assert empty and len(empty) < 8
    assert all(torch.equal(s.server["w"], run[s.round - 1].server["w"]) for s in empty)
    assert all(s.server["~compression_error"].isnan() == (not len(s.cohort)) for s in run[1:])


@pytest.mark.parametrize(
    ("name", "kind"), [("fedavg", "power"), ("ditto", "qsgd"), ("fedcorr", "power")]
)
def test_a_run_does_not_depend_on_resuming_and_chunks(name, kind):
    side = {"kind": kind, **UP[kind]}
    rounds = 9 if name == "fedcorr" else 5  # seven visits, then a stage with states of its own
    given = {
        "rounds": rounds,
        "participation": 3,
        "scenario": scenario({"feedback": "ef21", **side}, side),
    }
    whole = snapshots(make(name), DATA, **given)
    rest = snapshots(make(name), DATA, resume=whole[-2], **given)
    for a, b in ((whole[-1].server, rest[-1].server), (whole[-1].clients, rest[-1].clients)):
        assert a.keys() == b.keys() and all(torch.equal(v, b[k]) for k, v in a.items())
    for how in ({"cohort_size": 1}, {"mode": "compiled"}):
        assert same(whole, snapshots(make(name), DATA, **how, **given), exact=False)


def test_the_error_is_the_mean_over_clients():
    half, found = {"kind": "top_k", "ratio": 0.5}, []
    watch = Observer(lambda number: number == 1, lambda e: found.append(e.uploads["delta"].clone()))
    algo = make("fedavg", weights="uniform")
    run = snapshots(algo, DATA, rounds=2, scenario=scenario(half, half, Availability()))
    plain = snapshots(algo, DATA, rounds=1, observers=[watch])[1]
    # the reference is w^0 in the first round: the local models are the same
    lost = run[1].clients["~held.delta"]
    assert torch.allclose(run[1].server["w"] - plain.server["w"], lost.mean(0), atol=1e-12)
    assert run[1].server["~compression_error"] == pytest.approx(
        (lost.norm(dim=1) / found[0].norm(dim=1)).mean()
    )
    watched = snapshots(
        algo, DATA, rounds=2, scenario=scenario(half, half, Availability()), observers=[watch]
    )
    assert same(run, watched) and watched[2].bytes_up == run[2].bytes_up


# ---- what is refused, and the configuration


def test_vectors_that_the_server_does_not_sum_are_refused():
    own = replace(
        make("fedavg"), finish=lambda msg, client, local, info: ({"other": local["w"]}, client)
    )
    with pytest.raises(
        RequestError, match=r"compression\.up expects the vectors delta, and the method sends other"
    ):
        snapshots(own, DATA, scenario=scenario({"kind": "sign"}))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"up": {"kind": "topk"}}, "compression.up.kind must be one of .*did you mean top_k"),
        ({"down": {"ratio": 1.5}}, "compression.down.ratio must be <= 1"),
        ({"up": {"bucket": 0}}, "compression.up.bucket must be >= 1"),
        ({"down": {"feedback": "ef"}}, "compression.down.feedback must be none"),
        ({"up": {"k": 3}}, "unknown key compression.up.k"),
        (
            {"up": {"kind": "power"}},
            "compression.up.kind=power needs a model with a tensor of two dimensions",
        ),
    ],
)
def test_wrong_values(options, message):
    sides = {"up": {}, "down": {}} | options
    sides["down"] = {"feedback": "none"} | sides["down"]
    with pytest.raises(RequestError, match=message):
        compression(**sides, population=population_of(DATA, shapes=((5,), (3,))))


@pytest.mark.parametrize(("kind", "options"), [("power", {}), ("sign", {"per": "tensor"})])
def test_a_tensor_without_dimensions_is_one_value(kind, options):
    one, x = codec(kind, shapes=(*SHAPES, ()), **options), rows(p=621)
    found, _ = coded(one, x)
    assert torch.equal(found[:, 620].abs(), x[:, 620].abs())
    assert torch.equal(found[:, :620], coded(codec(kind, **options), x[:, :620])[0])


@pytest.mark.parametrize("kind", KINDS)
def test_the_configuration(kind):
    config = compose_run([f"compression={kind}", "compression.down.kind=qsgd", "data.clients=5"])
    made = build(config).scenario.layers[0]
    biased = kind in ("top_k", "sign", "power")
    assert (made.up.kind, made.up.memory, made.down.kind) == (
        kind,
        "ef" if biased else "none",
        "qsgd",
    )
    assert made.needs.keys() == {"up", "down"} | (set() if biased else {"unsent"})
    assert compose_run(["compression=none"]).digest == compose_run([]).digest != config.digest


@pytest.mark.parametrize(
    ("last", "name"), [("defence=median", "Defence"), ("privacy=central", "Privacy")]
)
def test_messages_of_attackers_are_compressed_and_decoded_before_the_rule_and_clipping(last, name):
    asked = [last, "compression=sign", "attack=sign_flip", "algo.weights=uniform", "data.clients=5"]
    layers = build(compose_run(asked)).scenario.layers
    assert [type(layer).__name__ for layer in layers] == ["Attack", "Compression", name]
