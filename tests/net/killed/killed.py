"""Two methods, one with a state of the server and one with states of the clients, that kill their
process.
"""

import itertools
import os
from dataclasses import replace

from fedbench import Algorithm
from fedbench.algorithms.fedadam import fedadam
from fedbench.algorithms.scaffold import scaffold

METHODS = {"fedadam": fedadam, "scaffold": scaffold}


def killed(method: str, local) -> Algorithm:
    """A method that sends its process the signal KILL_WITH in the update number KILL_AT, if they
    are set.
    """
    algorithm, updates = METHODS[method](local=local), itertools.count()

    def update(server, up, cohort):
        if next(updates) == int(os.environ.get("KILL_AT", "-1")):
            os.kill(os.getpid(), int(os.environ["KILL_WITH"]))
        return algorithm.update(server, up, cohort)

    return replace(algorithm, update=update)
