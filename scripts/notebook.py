"""Run the notebook of the documentation again and store its outputs.

python scripts/notebook.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).parents[1] / "docs" / "notebooks" / "first_results.ipynb"


def main() -> None:
    """Run all cells in a fresh kernel and write the notebook back, without times and progress."""
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    with tempfile.TemporaryDirectory() as folder:  # for the runs
        place = {"metadata": {"path": folder}}
        NotebookClient(notebook, resources=place, record_timing=False).execute()
    for cell in notebook.cells:
        if cell.cell_type != "code":
            continue
        outputs = cell.outputs
        # progress differs every time
        cell.outputs = [output for output in outputs if output.output_type != "stream"]
    notebook.metadata.language_info = {"name": "python"}
    nbformat.write(notebook, NOTEBOOK)


if __name__ == "__main__":
    main()
