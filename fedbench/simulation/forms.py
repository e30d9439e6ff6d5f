"""The forms in which the local phases of a run can be carried out on a device; they agree up to rounding."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Form:
    """How local phases are carried out.

    Attributes:
        mode: One client after another ("loop"), clients side by side ("stacked"), the same with small convolutions as
            batched matrix products ("unfold"), or in compiled code ("compiled").
        graphs: Whether local steps are replayed from CUDA graphs.
        channels_last: Whether images are in channels-last memory format; None is the rule of the device.
        workers: Number of threads, each of which has a stream of its own on a GPU.
    """

    mode: Literal["loop", "stacked", "unfold", "compiled"]
    graphs: bool = False
    channels_last: bool | None = None
    workers: int = 1

    def __str__(self) -> str:
        """Return the form in words, such as "loop, graphs, channels last, 2 streams"."""
        layout = {None: "", True: "channels last", False: "channels first"}[self.channels_last]
        threads = f"{self.workers} {'threads' if self.mode == 'compiled' else 'streams'}" if self.workers > 1 else ""
        return ", ".join(word for word in (self.mode, "graphs" if self.graphs else "", layout, threads) if word)
