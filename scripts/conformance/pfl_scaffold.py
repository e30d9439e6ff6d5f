"""pfl-research's SCAFFOLD with two changes, which show what differs.

Peer: pfl-research (pfl) 0.6.0, run as in pfl_research.py.

    python scripts/check_vectors.py scaffold scripts/conformance/pfl_scaffold.py \
      --function mended --tolerance 1e-6
"""

from copy import deepcopy
from unittest import mock

from conformance.pfl_research import InMemoryUserStateStorage, scaffold
from pfl.internal.bridge.pytorch import scaffold as bridge

STEP = bridge._control_variate_train_step


def subtracted(*arguments, local_c, server_c):
    """Train a step along g - (c - c_k), where pfl-research has g + (c - c_k)."""
    STEP(*arguments, local_c=server_c, server_c=local_c)


class Copies(InMemoryUserStateStorage):
    """A storage that copies what it keeps, where pfl-research's keeps the tensors themselves."""

    def save_state(self, state, user_id, key=None):
        """Keep a copy of a state."""
        super().save_state(deepcopy(state), user_id, key)


def subtracting(data, w0, schedule, o):
    """Return the states of SCAFFOLD with these steps; its c is then the paper's -c."""
    with mock.patch.object(bridge, "_control_variate_train_step", subtracted):
        states = scaffold(data, w0, schedule, o)
    for state in states:
        state["server"]["c"] = -state["server"]["c"]
    return states


def mended(data, w0, schedule, o):
    """Return the states with these steps and this storage."""
    return subtracting({**data, "storage": Copies()}, w0, schedule, o)
