"""One report that the tests of this folder look at, and a browser."""

import contextlib
import io
import os
import shutil
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


FLAGS = (
    "--no-sandbox --disable-gpu --disable-background-networking --disable-component-update "
    "--disable-sync --no-first-run"
)


@pytest.fixture(scope="module")
def browser():
    """A headless Chromium, without which the test is skipped."""
    sync = pytest.importorskip("playwright.sync_api", reason="needs the package playwright")
    chromium = os.environ.get("CHROMIUM") or shutil.which("chromium")
    if not chromium:
        pytest.skip("needs a Chromium in the path or named by $CHROMIUM")
    with sync.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=chromium, args=FLAGS.split())
        yield started
        started.close()
