"""What surrounds a method: states of its own next to the method's, in every path that a message
takes.
"""

from dataclasses import dataclass, replace

import pytest
import torch
from snapshot_checks import costs, method_states
from tools import federation, make, population_of, snapshots

from fedbench.scenarios.layers import Layer, hidden, sending
from fedbench.scenarios.scenario_stack import ScenarioStack

DATA = federation()


@dataclass(frozen=True)
class Counting(Layer):
    """Counts in a state of each client how often it has sent something, and checks who sends."""

    whole: bool  # whether messages are delivered together

    def wrap(self, algo, plan):
        def send(server, uploads, states, ids):
            assert set(ids.tolist()) <= set(plan.ids.tolist())
            sent = states["~sent"] + 1
            return uploads, states | {"~sent": sent, "~last": ids.double().view(-1, 1)}

        def client_init(w):
            zero = torch.zeros(
                1,
                dtype=torch.float64,
            )
            return algo.client_init(w) | {"~sent": zero, "~last": zero}

        def deliver(server, uploads, states, cohort):
            return uploads, states

        if self.whole:
            algo = replace(algo, deliver=deliver)
        return sending(replace(algo, client_init=client_init), send)


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("name", ["fedavg", "scaffold", "ditto", "mimelite", "fedcada", "pfedme"])
def test_states_of_a_layer_are_kept_next_to_the_methods(name, whole):
    counting = ScenarioStack(population_of(DATA), [Counting(whole)])
    how = {"participation": 4, "rounds": 4}
    plain = snapshots(
        make(name),
        DATA,
        **how,
    )[-1]
    seen = snapshots(
        make(name),
        DATA,
        scenario=counting,
        **how,
    )
    states = hidden(seen[-1].clients)
    times = [sum(k in s.cohort for s in seen[1:]) for k in range(7)]
    assert states.keys() == {"~sent", "~last"}
    assert states["~sent"][:, 0].tolist() == times
    assert states["~last"][:, 0].tolist() == [k if times[k] else 0 for k in range(7)]
    assert method_states(seen[-1]) == method_states(plain)
    assert costs(seen[-1]) == costs(plain)
