"""Data sets that several runs of one process share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedbench.config.schema import RunConfig

if TYPE_CHECKING:
    from fedbench.data.dataset import FederatedDataset

_MOST_BYTES = 2**30


class DataSets:
    """Data sets by configuration. The latest ones are kept as long as they take at most a gigabyte together.

    Runs cannot change what they share, since data sets are immutable.
    """

    def __init__(self) -> None:
        self._kept: dict[str, FederatedDataset] = {}  # the latest last

    def __call__(self, config: RunConfig) -> FederatedDataset:
        """Return the data set of a configuration, on the host.

        Raises:
            RequestError: If files are missing, or the request does not fit the data.
        """
        from fedbench.runs.build_data import federated  # late: a worker is made before torch is imported

        facts = config.identity.facts
        key = repr((config.data, config.data_dir, facts["files"], facts["code"]))
        found = self._kept.pop(key, None) or federated(config)
        self._kept[key] = found
        while len(self._kept) > 1 and sum(d.x.nbytes + d.y.nbytes for d in self._kept.values()) > _MOST_BYTES:
            del self._kept[next(iter(self._kept))]
        return found
