import os
import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))  # tools and reference are shared by tests in subdirectories


@pytest.fixture(autouse=True)
def one_thread():
    """Small operations; and with pytest-xdist the cores are taken by other tests."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")  # read before any test takes the variable away
def real_data() -> Path:
    """The directory of the real data sets; the test is skipped where there is none."""
    where = os.environ.get("FEDBENCH_DATA")
    if not where:
        pytest.skip("FEDBENCH_DATA is not set")
    return Path(where)
