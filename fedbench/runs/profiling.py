"""Profiling: a trace of two rounds."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile, schedule


@contextmanager
def traced(path: Path, device: torch.device) -> Iterator[Callable[[], None]]:
    """Trace the third and the fourth of the steps in this block, and print the ten most expensive operations.

    Args:
        path: File of the trace, in the format of chrome://tracing and Perfetto.
        device: The device whose operations are traced in addition to the host's.

    Yields:
        A function to be called after every step.
    """

    def write(p: profile) -> None:
        p.export_chrome_trace(str(path))
        table = p.key_averages().table(sort_by="self_cpu_time_total", row_limit=10, max_name_column_width=40)
        print(f"{table}\ntrace: {path}", file=sys.stderr)

    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if device.type == "cuda" else [])]
    plan = schedule(wait=1, warmup=1, active=2, repeat=1)  # the first step is the initial model
    with profile(activities=activities, schedule=plan, on_trace_ready=write) as p:
        yield p.step
