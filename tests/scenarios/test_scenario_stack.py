"""What surrounds a method: states of its own next to the method's, in every path that a message takes."""

from dataclasses import dataclass, replace

import pytest
import torch
from tools import federation, make, population_of, snapshots

from fedbench.scenarios.layers import Layer, hidden, sending, shown
from fedbench.scenarios.scenario_stack import ScenarioStack
from fedbench.simulation.local_work import LocalWork

DATA = federation()
WORK = LocalWork(lr=0.1, batch_size=10)


@dataclass(frozen=True)
class Counting(Layer):
    """Counts in a state of each client how often it has sent something, and checks who sends."""

    whole: bool  # whether messages are delivered together

    def wrap(self, algo, plan):
        def send(server, uploads, states, ids):
            assert set(ids.tolist()) <= set(plan.ids.tolist())
            return uploads, states | {
                "~sent": states["~sent"] + 1,
                "~last": ids.double().view(-1, 1),
            }

        def client_init(w):
            return algo.client_init(w) | {
                "~sent": torch.zeros(1),
                "~last": torch.zeros(1, dtype=torch.float64),
            }

        if self.whole:
            algo = replace(algo, deliver=lambda server, uploads, states, cohort: (uploads, states))
        return sending(replace(algo, client_init=client_init), send)


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("name", ["fedavg", "scaffold", "ditto", "mimelite", "fedcada", "pfedme"])
def test_states_of_a_layer_are_kept_next_to_the_methods(name, whole):
    scenario = ScenarioStack(population_of(DATA), [Counting(whole)])
    plain = snapshots(make(name), DATA, work=WORK, participation=4, rounds=4)
    found = snapshots(make(name), DATA, work=WORK, participation=4, rounds=4, scenario=scenario)
    last, other = found[-1], plain[-1]
    times = torch.tensor([float(sum(k in s.cohort for s in found[1:])) for k in range(7)])
    assert torch.equal(last.clients["~sent"][:, 0], times)
    assert torch.equal(
        last.clients["~last"][:, 0], torch.arange(7.0, dtype=torch.float64) * (times > 0)
    )
    assert {*hidden(last.clients)} == {"~sent", "~last"}
    for mine, theirs in ((shown(last.clients), other.clients), (last.server, other.server)):
        assert mine.keys() == theirs.keys()
        assert all(torch.equal(mine[k], theirs[k]) for k in mine)
    assert (last.bytes_up, last.bytes_down, last.client_steps) == (
        other.bytes_up,
        other.bytes_down,
        other.client_steps,
    )
