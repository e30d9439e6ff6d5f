"""Measure time and memory to prepare and load a data set of FEMNIST's size: 3500 clients, 700 000 images of 28 x 28.

    python scripts/large_data.py [DIRECTORY]

The images are random. Each step runs in a process of its own; its peak memory is the one that the system reports.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

CLIENTS, IMAGES = 3500, 700_000
_STEP = """
import json, resource, sys, time
from pathlib import Path
start = time.perf_counter()
{body}
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
print(json.dumps({{"seconds": time.perf_counter() - start, "peak_bytes": peak}}))
"""
_MAKE = f"""
import numpy as np
rng = np.random.default_rng(0)
owner = np.sort(rng.integers(0, {CLIENTS}, {IMAGES}))
x = rng.integers(0, 256, ({IMAGES}, 1, 28, 28), dtype=np.uint8)
y = rng.integers(0, 62, {IMAGES})
np.savez(sys.argv[1], x=x, y=y, owner=owner)
"""
_LOAD = f"""
from fedbench.runs.build_data import federated
import torch
from fedbench.config.compose import compose_run
file, folder = sys.argv[1:3]
config = compose_run(["data=npz", "data.file='" + file + "'", "data_dir='" + folder + "'"])
start = time.perf_counter()
data = federated(config).to(torch.device("cpu"), torch.float32)
assert (data.num_clients, len(data.y)) == ({CLIENTS}, {IMAGES})
"""


def step(body: str, *args: str) -> dict[str, float]:
    """Run a step in a new process and return its seconds and peak memory."""
    code = _STEP.format(body=body)
    done = subprocess.run([sys.executable, "-c", code, *args], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    """Run the steps and print a line for each."""
    with tempfile.TemporaryDirectory(dir=sys.argv[1] if len(sys.argv) > 1 else None) as folder:
        file = str(Path(folder) / "large.npz")
        step(_MAKE, file)
        for name in ("prepare and load", "load"):
            found = step(_LOAD, file, folder)
            print(f"{name:<18} {found['seconds']:6.2f} s, peak {found['peak_bytes'] / 1e9:.2f} GB", flush=True)


if __name__ == "__main__":
    main()
