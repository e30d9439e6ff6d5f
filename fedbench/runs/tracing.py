"""Traces of the operations in a round, recorded by PyTorch's profiler."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from torch.profiler import profile, schedule


@contextmanager
def traced(path: Path) -> Iterator[Callable[[], None]]:
    """Trace the third and fourth steps in this block, and print the ten slowest operations.

    Args:
        path: Output file of the trace, in the format of chrome://tracing and Perfetto.

    Yields:
        A function to be called after every step.
    """

    def write(profiler: profile) -> None:
        profiler.export_chrome_trace(str(path))
        table = profiler.key_averages().table(
            sort_by="self_cpu_time_total", row_limit=10, max_name_column_width=40
        )
        print(f"{table}\ntrace: {path}", file=sys.stderr)

    plan = schedule(
        wait=1,
        warmup=1,
        active=2,
        repeat=1,
    )  # the first step evaluates the initial model
    with profile(schedule=plan, on_trace_ready=write) as profiler:
        yield profiler.step
