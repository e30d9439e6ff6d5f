"""One report that the tests of this folder look at."""

import contextlib
import io
from pathlib import Path
from types import SimpleNamespace

import pytest
from report_runs import fill
from tools import two_readings

from fedbench.reports.write import write_report


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.whole)


@pytest.fixture(scope="session")
def mixed(tmp_path_factory):
    root = tmp_path_factory.mktemp("mixed") / "results"
    fill(root)
    # a fixture of the session is made before the module's, which has two readings
    with contextlib.redirect_stderr(io.StringIO()) as err, two_readings():
        said = write_report(root)[0]
    tables = root / "report" / "tables"
    return SimpleNamespace(
        root=root, report=root / "report", tables=tables, said=said, warned=err.getvalue()
    )
