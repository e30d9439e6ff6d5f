"""One report that the tests of this folder look at."""

import contextlib
import io
from types import SimpleNamespace

import pytest
from report_runs import fill

from fedbench.papers.readings import ADOPTED
from fedbench.reports.write import write_report


@pytest.fixture(scope="session")
def mixed(tmp_path_factory):
    root = tmp_path_factory.mktemp("mixed") / "results"
    fill(root)
    with (
        contextlib.redirect_stderr(io.StringIO()) as err,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setattr("fedbench.papers.readings.Readings.every", lambda self: [ADOPTED])
        said = write_report(root)[0]
    tables = root / "report" / "tables"
    return SimpleNamespace(
        root=root, report=root / "report", tables=tables, said=said, warned=err.getvalue()
    )
