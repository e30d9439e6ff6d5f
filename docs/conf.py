"""Configuration of the documentation site (ADR 0015); ``make site`` builds it into build/site."""

import re
import shutil
from importlib.metadata import version as installed_version
from pathlib import Path

from sphinx.application import Sphinx

project = "fedbench"
author = "The fedbench authors"
version = release = installed_version("fedbench-harness")

extensions = ["sphinx.ext.autodoc", "sphinx.ext.napoleon", "myst_nb", "sphinx_copybutton"]
source_suffix = {".md": "myst-nb", ".ipynb": "myst-nb"}
# links such as performance.md#many-runs work on the site as they do in a repository browser
myst_heading_anchors = 4
nb_execution_mode = "off"  # tests/docs runs the notebook; the site shows what it printed then

add_module_names = False
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"

html_theme = "furo"
html_title = f"fedbench {release}"
html_copy_source = False
html_show_sourcelink = False
html_show_copyright = False

# on the site as published/, without the runs
_PUBLISHED = Path(__file__).parent.parent / "results" / "published"
_FILES = {"(../CONTRIBUTING.md": "(contributing.md", "(../CHANGELOG.md": "(changelog.md"}
_REPORT = re.compile(r"\[([^]]*)\]\(\.\./results/published/((?:\w+/)?index\.html(?:#[\w-]+)?)\)")


def _links_on_the_site(app: Sphinx, page: str, source: list[str]) -> None:
    """Point links to files next to docs/ to where the site has them."""
    for written, target in _FILES.items():
        source[0] = source[0].replace(written, target)
    source[0] = _REPORT.sub(r'<a href="published/\2">\1</a>', source[0])


def _published_reports(app: Sphinx, error: Exception | None) -> None:
    """Copy the published reports, whose front page links to them."""
    if error is None:
        leave_out = shutil.ignore_patterns("evidence")
        shutil.copytree(
            _PUBLISHED, Path(app.outdir) / "published", ignore=leave_out, dirs_exist_ok=True
        )


def setup(app: Sphinx) -> None:
    """Register the rewriting of links and the copy of the reports."""
    app.connect("source-read", _links_on_the_site)
    app.connect("build-finished", _published_reports)
