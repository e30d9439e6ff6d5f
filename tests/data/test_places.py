"""What is missing of the data of a plan, by the names of files alone."""

import importlib
from pkgutil import iter_modules

import pytest

from fedbench.data import sources
from fedbench.data.files.places import any_of, missing
from fedbench.papers.registry import papers

MODULES = {m.name: importlib.import_module(f"{sources.__name__}.{m.name}") for m in iter_modules(sources.__path__)}
EXPERIMENTS = [s.experiment for p in papers().values() for s in p.setups.values()]


def put(folder, *names):
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()


def test_one_alternative_of_each_group_is_enough(tmp_path):
    places = (*any_of(["a.zip"], ["x", "y"]), *any_of(["b.zip"]))
    assert missing(places, tmp_path) == ["a.zip", "b.zip"]
    put(tmp_path, "x", "b.zip")
    assert missing(places, tmp_path) == ["a.zip"]  # y is missing
    put(tmp_path, "y")
    assert missing(places, tmp_path) == []
    assert missing((), tmp_path) == []


@pytest.mark.parametrize("name", [n for n, m in MODULES.items() if hasattr(m, "OFFICIAL")])
def test_every_source_with_published_files_says_where_they_are(name, tmp_path):
    """Its archives, or the files of the first alternative of each group, are there at once; half of them are not."""
    places = MODULES[name].PLACES
    assert len(missing(places, tmp_path)) == len(places) > 0
    put(tmp_path, *(path for group in places for path in group[0]))
    assert missing(places, tmp_path) == []
    known = {remote.path for remote in MODULES[name].OFFICIAL}
    archives = [path for group in places for paths in group for path in paths if path.endswith((".zip", ".gz"))]
    assert set(archives) <= known
