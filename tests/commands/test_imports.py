"""What commands import: what takes long is left to those that need it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

PUBLISHED = Path(__file__).parents[2] / "results" / "published"
SLOW = [
    "hydra", "importlib.metadata", "matplotlib", "omegaconf", "pandas", "pyarrow", "requests", "rich", "scipy",
    "sklearn", "sympy", "torch", "torchvision", "wandb",
]  # fmt: skip


@pytest.mark.parametrize(
    ("args", "needed"),
    [
        (["--help"], ["importlib.metadata"]),
        (["list"], []),
        (["list", "table"], []),
        (["list", "algo"], ["importlib.metadata", "torch"]),
        (["reproduce", "--plan", "adafedadam/table5"], ["hydra", "importlib.metadata", "omegaconf"]),
        (
            ["reproduce", "--plan", "results_dir=cloned"],  # with thousands of published runs
            ["hydra", "importlib.metadata", "omegaconf", "pyarrow"],
        ),
        (
            ["data=synthetic_leaf", "data.clients=4", "rounds=1"],
            ["hydra", "importlib.metadata", "omegaconf", "pandas", "pyarrow", "torch"],
        ),
    ],
    ids=lambda v: " ".join(v),
)
def test_a_command_imports_what_it_needs(tmp_path, args, needed):
    (tmp_path / "cloned").mkdir()
    (tmp_path / "cloned" / "published").symlink_to(PUBLISHED)
    code = (
        "import json, sys\nfrom fedbench.cli import main\n"
        f"status = main({args!r})\n"
        f"print(json.dumps([m for m in {SLOW!r} if m in sys.modules]))\nsys.exit(status)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=True)
    assert json.loads(done.stdout.splitlines()[-1]) == sorted(needed)
