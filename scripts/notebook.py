"""Run the notebook of the documentation again and store what it prints: ``python scripts/notebook.py``."""

from __future__ import annotations

from pathlib import Path

import nbformat
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).parents[1] / "docs" / "notebooks" / "first_results.ipynb"


def main() -> None:
    """Run all cells in a fresh kernel and write the notebook back, without times, which would differ every time."""
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    NotebookClient(notebook, record_timing=False).execute()
    notebook.metadata.language_info = {"name": "python"}
    nbformat.write(notebook, NOTEBOOK)


if __name__ == "__main__":
    main()
