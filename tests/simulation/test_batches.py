"""The plan of a round: the examples of every client in every step."""

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tools import UNEQUAL, federation

from fedbench.core.randomness import Purpose
from fedbench.simulation import local_work
from fedbench.simulation.local_work import BatchLayout, LocalWork, chunks

TWO_EPOCHS = LocalWork(0.1, 10, (2, 2))


def plan_for(data, work, ids=None, seed=0, round=0):
    ids = np.arange(data.num_clients) if ids is None else np.array(ids)
    tau = work.tau(
        ids,
        data.train.counts[ids],
        seed,
        round,
    )
    order = np.lexsort((ids, -tau))
    return BatchLayout(ids[order], tau[order], data, work)


def steps_of(data, work, ids=None, seed=0, round=0):
    """Return the rows of every step of every client; the first feature of a row is unique."""
    plan = plan_for(data, work, ids, seed, round)
    row_of = {value: row for row, value in enumerate(data.x[:, 0].tolist())}
    seen = {int(k): [] for k in plan.ids}
    for batch, active in plan.batches(seed, round):
        assert len(batch.x) == active
        for k, x, y, weight in zip(plan.ids, batch.x, batch.y, batch.weight, strict=False):
            real = weight > 0
            rows = [row_of[value] for value in x[real, 0].tolist()]
            assert torch.equal(y[real], data.y[rows])
            assert torch.allclose(weight[real], torch.tensor(1 / len(rows)).to(weight))
            seen[int(k)].append(rows)
    return seen


def owned(data, k):
    return data.train.split()[k].tolist()


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.integers(1, 25),
        min_size=1,
        max_size=6,
    ),
    st.one_of(st.none(), st.integers(1, 12)),
    st.integers(1, 3),
)
def test_every_epoch_shows_every_example_once(sizes, batch_size, epochs):
    data = federation(sizes=sizes)
    seen = steps_of(
        data,
        LocalWork(
            0.1,
            batch_size,
            (epochs, epochs),
        ),
    )
    for k, n in enumerate(sizes):
        size = batch_size or n
        starts = range(0, n, size)
        assert len(seen[k]) == epochs * len(starts)
        for epoch in np.split(
            np.array(
                seen[k],
                dtype=object,
            ),
            epochs,
        ):
            # the last short batch is kept
            assert [len(batch) for batch in epoch] == [min(size, n - start) for start in starts]
            assert sorted(np.concatenate(epoch)) == owned(data, k)


def test_steps_in_place_of_epochs():
    """Five steps of 10 of 23 examples: an epoch of three, and two without repeats."""
    data = federation()
    seen = steps_of(data, LocalWork(0.1, 10, steps=5))
    assert [len(seen[k]) for k in range(7)] == [5] * 7
    assert sorted(np.concatenate(seen[1][:3])) == owned(data, 1)
    rest = np.concatenate(seen[1][3:])
    assert len(set(rest)) == 20
    assert set(rest) < set(owned(data, 1))


def test_full_batches_are_in_stored_order():
    data = federation()
    seen = steps_of(
        data,
        LocalWork(
            0.1,
            None,
            (2, 2),
        ),
    )
    assert all(seen[k] == [owned(data, k)] * 2 for k in range(len(UNEQUAL)))


def test_the_order_depends_on_the_client_alone():
    """It is a function of (seed, round, client, epoch), whichever clients participate."""
    data = federation()
    everybody = steps_of(data, TWO_EPOCHS, seed=3, round=5)
    for ids in ([4], [1, 4], [0, 2, 4, 6]):
        part = steps_of(
            data,
            TWO_EPOCHS,
            ids,
            seed=3,
            round=5,
        )
        assert part == {k: everybody[k] for k in ids}


def test_seed_round_and_epoch_change_the_order():
    data = federation(sizes=(40,))
    seeds_and_rounds = ((0, 0), (1, 0), (0, 1))
    first, *others = (
        steps_of(
            data,
            TWO_EPOCHS,
            None,
            *given,
        )[0]
        for given in seeds_and_rounds
    )
    assert first not in others
    assert first[:4] != first[4:]


def test_orders_are_uniform():
    """Three examples have six orders; 1200 rounds, χ² with 5 degrees of freedom at 0.1 %."""
    data = federation(sizes=(3,))
    work = LocalWork(0.1, 1)
    orders = [steps_of(data, work, round=t)[0] for t in range(1200)]
    counts = np.unique(
        np.array(orders),
        axis=0,
        return_counts=True,
    )[1]
    assert len(counts) == 6
    assert ((counts - 200) ** 2 / 200).sum() < 20.5


def test_drawn_epochs_are_keyed_by_client_and_round():
    counts = np.full(200, 10)
    ids = np.arange(200)
    work = LocalWork(0.1, 10, (1, 3))
    tau = work.tau(ids, counts, 0, 0)
    assert set(tau) == {1, 2, 3}
    assert np.array_equal(
        tau[50:60],
        work.tau(
            ids[50:60],
            counts[50:60],
            0,
            0,
        ),
    )
    assert not np.array_equal(tau, work.tau(ids, counts, 0, 1))


def test_gathering_in_blocks_changes_nothing(monkeypatch):
    data = federation()
    whole = steps_of(data, TWO_EPOCHS)
    monkeypatch.setattr(local_work, "_BLOCK_BYTES", 1)  # every step on its own
    assert steps_of(data, TWO_EPOCHS) == whole


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(1, 4), st.integers(1, 80)),
        max_size=60,
    ),
    st.integers(1, 9),
)
def test_chunks_are_those_of_a_loop_over_clients(clients, size):
    """A batch exceeds the smallest of its chunk by at most a quarter plus 8 examples."""
    tau, widths = np.array(clients, dtype=np.int64).reshape(-1, 2).T
    groups = []
    for k in sorted(range(len(clients)), key=lambda k: (-tau[k], -widths[k], k)):
        inside = [widths[j] for j in [*groups[-1], k]] if groups else []
        if not groups or max(inside) > 1.25 * min(inside) + 8:
            groups.append([])
        groups[-1].append(k)
    want = [part for g in groups for part in np.array_split(g, -(-len(g) // size))]
    parts = chunks(
        np.arange(len(clients)),
        tau,
        widths,
        size,
    )
    assert [part.tolist() for part in parts] == [part.tolist() for part in want]


def keys_of(ids, round=0, purpose=Purpose.BATCHES, seed=0):
    """Return the keys of training steps by (client, step)."""
    data = federation(sizes=(12, 30, 21))
    plan = plan_for(
        data,
        LocalWork(0.1, 10, (2, 2), random=True),
        ids,
        seed,
        round,
    )
    keys = {}
    for step, (batch, active) in enumerate(plan.batches(seed, round, purpose)):
        for k, key in zip(plan.ids[:active], batch.key[:active], strict=True):
            keys[k, step] = int(key)
    return keys


def test_keys_of_training_steps_differ_by_step_client_round_and_purpose():
    """And are the same however the cohort is cut."""
    whole = keys_of([0, 1, 2])
    used = set(whole.values())
    assert len(whole) == len(used) == 2 * (2 + 3 + 3)
    assert keys_of([0]) | keys_of([1]) | keys_of([2]) == whole
    for change in ({"round": 1}, {"purpose": Purpose.PERSONAL}, {"seed": 1}):
        other = keys_of([0, 1, 2], **change)
        assert other.keys() == whole.keys()
        assert used.isdisjoint(other.values())


def test_steps_without_random_layers_have_no_keys():
    batch, _ = next(iter(plan_for(federation(), TWO_EPOCHS).batches(0, 0)))
    assert batch.key is None
