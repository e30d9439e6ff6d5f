import gc
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

# read when NumPy is imported
os.environ |= {f"{library}_NUM_THREADS": "1" for library in ("OMP", "OPENBLAS", "MKL")}
if "FEDBENCH_TEST_GPU" not in os.environ:
    # device=auto is the CPU; make test-gpu has the tests of a GPU
    os.environ["CUDA_VISIBLE_DEVICES"] = ""

import pytest
import torch
from hypothesis import settings

# Cache compiled modules and rewritten assertions even if the environment disables it: without the
# cache, every process that a test starts compiles them again, which takes a tenth of the time of
# all tests.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# a shell's background jobs and their children ignore it
signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("same", derandomize=True)  # what is red is red because of a change
# other examples: pytest --hypothesis-profile=default --hypothesis-seed=SEED
settings.load_profile("same")
# tools and reference are shared by tests in subdirectories
sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(1, str(Path(__file__).parents[1] / "scripts"))
from command_line import fed, refuse, train  # noqa: E402, F401 (fixtures of many tests)
from tools import two_readings  # noqa: E402


@pytest.fixture(autouse=True, scope="session")
def compiled():
    """Compile before the first test: what the compilation prints is in no test's output."""
    from fedbench.simulation.compiled.library import kernels

    kernels()


@pytest.fixture(autouse=True, scope="session")
def open_streams():
    """Let absl, which dp-accounting logs with, hold no stream of pytest: Hydra has its handler
    close what it holds.
    """
    with suppress(ModuleNotFoundError):
        from absl import logging

        logging.get_absl_handler().python_handler.stream = sys.__stderr__


@pytest.fixture(autouse=True, scope="session")
def no_garbage_of_modules():
    """Leave the modules and the thousands of collected tests out of later collections of garbage:
    0.2 s of each.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def composer():
    """Composes settings of experiments from their keys."""
    from fedbench.config.compose import compose_run
    from fedbench.core.config_values import config_value

    def config(experiment, algo, keys):
        return compose_run(
            [
                f"experiment={experiment}",
                f"algo={algo}",
                *(f"{k}={config_value(v)}" for k, v in keys.items()),
            ]
        )

    return SimpleNamespace(config=config)


@pytest.fixture(scope="module", autouse=True)
def readings():
    """Judge claims under two readings; modules that test readings override this.

    AdaFedAdam has 56 readings, which are most of the time of a report of few runs.
    """
    with two_readings():
        yield


@pytest.fixture
def no_figures(monkeypatch):
    """Draw nothing, which is most of the time that a report takes."""
    monkeypatch.setattr("fedbench.reports.write.paper_figures", lambda *_: [])
    monkeypatch.setattr("fedbench.reports.write.run_figures", lambda *_: [])


@pytest.fixture(autouse=True)
def one_thread():
    """Small operations; and with pytest-xdist the cores are taken by other tests."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


_DATA = os.environ.get("FEDBENCH_DATA")  # read before any test takes the variable away


@pytest.fixture
def real_data(request) -> Path:
    """The directory of the real data sets; a test is skipped where those that its mark ``data``
    names are not there.
    """
    if not _DATA:
        pytest.skip("FEDBENCH_DATA is not set")
    for name in request.node.get_closest_marker("data").args:
        if not (Path(_DATA) / name).exists():
            pytest.skip(f"no {name} in FEDBENCH_DATA")
    return Path(_DATA)
