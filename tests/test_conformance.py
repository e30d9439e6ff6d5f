"""The adapters to peers: short files of today's Python that name what they were run with."""

import ast
import re
from pathlib import Path

import check_vectors
import pytest

FOLDER = Path(check_vectors.__file__).parent / "conformance"
FILES = sorted(FOLDER.glob("*.py"))
# the version of a package, or a commit
PEER = re.compile(r"^Peer: .*(\d+\.\d+\.\d+|commit [0-9a-f]{7,40})", re.MULTILINE)


def docstring(path: Path) -> str:
    """Return the docstring of a file that parses."""
    return ast.get_docstring(ast.parse(path.read_text())) or ""


def functions(path: Path) -> set[str]:
    """Return the names at the top of a file that functions or values have."""
    names = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef):
            names.add(node.name)
        for target in getattr(node, "targets", []):
            names |= {name.id for name in ast.walk(target) if isinstance(name, ast.Name)}
    return names


ADAPTERS = [path for path in FILES if "check_vectors.py" in docstring(path)]


def test_there_are_adapters_and_every_one_has_a_version():
    assert len(ADAPTERS) >= 4
    assert [path.name for path in ADAPTERS if not PEER.search(docstring(path))] == []


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_file_is_short_and_explains_itself(path):
    assert docstring(path)
    assert len(path.read_text().splitlines()) <= 120


@pytest.mark.parametrize("path", ADAPTERS, ids=lambda path: path.name)
def test_the_command_in_an_adapter_names_its_file_a_method_and_a_function(path):
    command = re.search(
        r"check_vectors\.py (\w+) (\S+)(?:[\s\\]+--function (\w+))?", docstring(path)
    )
    assert command is not None
    method, file, function = command.groups()
    assert file == f"scripts/conformance/{path.name}"
    assert (check_vectors.VECTORS / f"{method}.json").exists()
    assert (function or "train") in functions(path)


def test_a_case_that_an_implementation_has_no_option_for_is_left_out(tmp_path, capsys):
    file = tmp_path / "mine.py"
    file.write_text(
        "def train(data, w0, schedule, hyperparameters):\n"
        "    if hyperparameters['momentum'] == 0:\n"
        "        raise NotImplementedError('no plain steps')\n"
        "    return []\n"
    )
    assert check_vectors.main(["fedavg", str(file), "--variant", "default"]) == 0
    assert "default (softmax, all clients): not compared: no plain steps" in capsys.readouterr().out
    assert check_vectors.main(["fedavg", str(file)]) > 0
