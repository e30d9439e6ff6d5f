"""The plan of a round: who sees which example when."""

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tools import UNEQUAL, federation

from fedbench.core.randomness import Purpose
from fedbench.simulation import local_work
from fedbench.simulation.local_work import LocalWork, Plan, chunks


def steps_of(plan, data, seed=0, round=0):
    """Return the rows that each client sees per step; rows are identified by their first feature, which is unique."""
    place = {v: i for i, v in enumerate(data.x[:, 0].tolist())}
    seen = {int(k): [] for k in plan.ids}
    for batch, active in plan.batches(seed, round):
        assert batch.x.shape[0] == active
        assert torch.allclose(batch.weight.sum(1), torch.ones(active, dtype=batch.weight.dtype))
        for k, x, y, weight in zip(plan.ids, batch.x, batch.y, batch.weight, strict=False):
            real = weight > 0
            rows = [place[v] for v in x[real, 0].tolist()]
            assert torch.equal(y[real], data.y[rows])
            assert (weight[real] == 1 / int(real.sum())).all()
            seen[int(k)].append(rows)
    return seen


def plan_for(data, work, ids=None, seed=0, round=0):
    ids = np.arange(data.num_clients) if ids is None else np.array(ids)
    tau = work.tau(ids, data.train.counts[ids], seed, round)
    order = np.lexsort((ids, -tau))
    return Plan(ids[order], tau[order], data, work)


def owned(data, k):
    return data.train.split()[k].tolist()


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(1, 25), min_size=1, max_size=6),
    st.one_of(st.none(), st.integers(1, 12)),
    st.integers(1, 3),
)
def test_every_epoch_shows_every_example_once(sizes, batch_size, epochs):
    data = federation(sizes=sizes)
    seen = steps_of(plan_for(data, LocalWork(0.1, batch_size, (epochs, epochs))), data)
    for k, n in enumerate(sizes):
        size = batch_size or n
        per_epoch = -(-n // size)
        assert len(seen[k]) == epochs * per_epoch  # the last short batch is kept
        for e in range(epochs):
            epoch = seen[k][e * per_epoch : (e + 1) * per_epoch]
            assert [len(b) for b in epoch] == [size] * (n // size) + (
                [n % size] if n % size else []
            )
            assert sorted(sum(epoch, [])) == owned(data, k)


def test_steps_in_place_of_epochs():
    data = federation()
    seen = steps_of(plan_for(data, LocalWork(0.1, 10, steps=5)), data)
    for k, n in enumerate(UNEQUAL):
        assert len(seen[k]) == 5
        per_epoch = -(-n // 10)
        for start in range(0, 5, per_epoch):
            rows = sum(seen[k][start : start + per_epoch], [])
            if start + per_epoch <= 5:
                assert sorted(rows) == owned(data, k)
            else:  # the epoch that the number of steps cuts off: no row twice
                assert len(rows) == len(set(rows) & set(owned(data, k))) == 10 * (5 - start)


def test_full_batches_are_in_stored_order():
    data = federation()
    seen = steps_of(plan_for(data, LocalWork(0.1, None, (2, 2))), data)
    assert all(seen[k] == [owned(data, k)] * 2 for k in range(len(UNEQUAL)))


def test_the_order_does_not_depend_on_who_else_is_there():
    """A pure function of (seed, round, client, epoch): alone, in a chunk, or in the whole cohort."""
    data = federation()
    work = LocalWork(0.1, 10, (2, 2))
    everybody = steps_of(plan_for(data, work), data, seed=3, round=5)
    for ids in ([4], [1, 4], [0, 2, 4, 6]):
        part = steps_of(plan_for(data, work, ids), data, seed=3, round=5)
        assert all(part[k] == everybody[k] for k in ids)


def test_seed_round_and_epoch_change_the_order():
    data = federation(sizes=(40,))
    work = LocalWork(0.1, 10, (2, 2))
    runs = [steps_of(plan_for(data, work), data, s, r)[0] for s, r in ((0, 0), (1, 0), (0, 1))]
    assert runs[0] != runs[1]
    assert runs[0] != runs[2]
    assert runs[0][:4] != runs[0][4:]


def test_orders_are_uniform():
    """Three examples have six orders; 1200 rounds, χ² with 5 degrees of freedom at 0.1 %."""
    data = federation(sizes=(3,))
    plan = plan_for(data, LocalWork(0.1, 1))
    orders = [tuple(b[0] for b in steps_of(plan, data, 0, t)[0]) for t in range(1200)]
    counts = np.unique(np.array(orders), axis=0, return_counts=True)[1]
    assert len(counts) == 6
    assert ((counts - 200) ** 2 / 200).sum() < 20.5


def test_drawn_epochs_are_keyed_by_client_and_round():
    data = federation(sizes=(10,) * 200)
    ids = np.arange(200)
    work = LocalWork(0.1, 10, (1, 3))
    tau = work.tau(ids, data.train.counts, 0, 0)
    assert set(tau) == {1, 2, 3}
    assert np.array_equal(tau[50:60], work.tau(ids[50:60], data.train.counts[50:60], 0, 0))
    assert not np.array_equal(tau, work.tau(ids, data.train.counts, 0, 1))


def test_gathering_in_blocks_changes_nothing(monkeypatch):
    data = federation()
    plan = plan_for(data, LocalWork(0.1, 10, (2, 2)))
    whole = steps_of(plan, data)
    monkeypatch.setattr(local_work, "_BLOCK_BYTES", 1)  # every step on its own
    assert steps_of(plan, data) == whole


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 9), st.integers(1, 300)), min_size=1, max_size=50),
    st.integers(1, 12),
)
def test_chunks_hold_everybody_once_and_similar_work(work, size):
    tau, widths = np.array(work).T
    parts = chunks(np.arange(len(work)), tau, widths, size)
    assert sorted(np.concatenate(parts)) == list(range(len(work)))
    for part in parts:
        assert 1 <= len(part) <= size
        assert (np.diff(tau[part]) <= 0).all()
        assert widths[part].max() <= 1.25 * widths[part].min() + 8


def test_one_client_with_most_data_pads_nobody():
    """Full batches of one client with 5000 examples and 50 with 10 take 5500 places, not 51 x 5000."""
    data = federation(sizes=(5000, *[10] * 50))
    work = LocalWork(0.1, None)
    ids = np.arange(51)
    n = data.train.counts
    parts = chunks(ids, work.tau(ids, n, 0, 0), work.widths(n), 1000)
    places = sum(int(np.prod(Plan(p, np.ones(len(p), dtype=int), data, work).shape)) for p in parts)
    assert places == n.sum()


def test_keys_of_training_steps_differ_by_step_client_round_and_purpose():
    """And are the same however the cohort is cut."""
    data, work = federation(sizes=(12, 30, 21)), LocalWork(0.1, 10, (2, 2), random=True)

    def keys(ids, round=0, purpose=Purpose.BATCHES, seed=0):
        plan = plan_for(data, work, ids, seed, round)
        found = {}
        for step, (batch, k) in enumerate(plan.batches(seed, round, purpose)):
            found |= {(int(plan.ids[c]), step): int(batch.key[c]) for c in range(k)}
        return found

    whole = keys([0, 1, 2])
    assert len(whole) == len(set(whole.values())) == 2 * (2 + 3 + 3)
    assert {**keys([0]), **keys([1]), **keys([2])} == whole
    for other in (
        keys([0, 1, 2], round=1),
        keys([0, 1, 2], purpose=Purpose.PERSONAL),
        keys([0, 1, 2], seed=1),
    ):
        assert other.keys() == whole.keys()
        assert not set(other.values()) & set(whole.values())
    assert next(iter(plan_for(data, LocalWork(0.1, 10)).batches(0, 0)))[0].key is None
