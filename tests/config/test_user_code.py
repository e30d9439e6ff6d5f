"""Modules of user code: their files in the identity of a run, and where they are imported from."""

import sys

import pytest
import yaml
from command_line import write_files

from fedbench.config.user_sources import marks, source_files, user_code_from


def write_modules(folder, *names):
    write_files(folder, dict.fromkeys(names, ""))
    return folder


def test_all_python_files_of_the_configuration_directory_count_without_being_imported(tmp_path):
    write_modules(tmp_path, "code_b.py", "pkg/sub/c.py", ".venv/lib/d.py", "notes.txt")
    write_files(tmp_path, {"code_a.py": "raise SystemExit('imported')"})
    with user_code_from(tmp_path):
        assert list(source_files("code_a")) == ["code_a.py", "code_b.py", "pkg/sub/c.py"]
        assert source_files("pkg.sub.c") == source_files("code_a")
    assert "code_a" not in sys.modules


def test_elsewhere_a_module_stands_for_itself_and_a_package_for_its_files(tmp_path, monkeypatch):
    write_modules(tmp_path, "code_a.py", "code_b.py", "pkg/__init__.py", "pkg/sub/c.py", "pkg/d.py")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert source_files("code_a") == {"code_a.py": tmp_path / "code_a.py"}
    assert list(source_files("pkg.sub.c")) == ["pkg/__init__.py", "pkg/d.py", "pkg/sub/c.py"]


def test_a_namespace_package_may_have_several_parts(tmp_path, monkeypatch):
    for part in ("one", "two"):
        write_modules(tmp_path, f"{part}/space/{part}.py")
        monkeypatch.syspath_prepend(str(tmp_path / part))
    assert list(source_files("space.one")) == ["space/one.py", "space/two.py"]


def test_what_is_installed_goes_by_its_version():
    assert marks("yaml.loader") == {"PyYAML": yaml.__version__}
    assert marks("textwrap") == marks("sys") == {}  # parts of Python


def test_a_missing_module_is_named():
    with pytest.raises(ModuleNotFoundError) as caught:
        source_files("nowhere.near")
    assert caught.value.name == "nowhere"


def test_the_first_directory_on_the_path_counts_whatever_was_imported_before(tmp_path, monkeypatch):
    write_modules(tmp_path, "one/twice_there.py", "two/twice_there.py")
    monkeypatch.syspath_prepend(str(tmp_path / "one"))
    __import__("twice_there")
    monkeypatch.syspath_prepend(str(tmp_path / "two"))
    assert source_files("twice_there") == {"twice_there.py": tmp_path / "two/twice_there.py"}
    del sys.modules["twice_there"]


def test_a_file_of_the_user_never_takes_the_place_of_an_installed_module(tmp_path):
    names = ("json", "yaml")
    write_files(tmp_path, {f"{name}.py": "raise SystemExit('executed')" for name in names})
    before = list(sys.path)
    kept = {name: sys.modules.pop(name) for name in names}
    try:
        with user_code_from(tmp_path):
            import json

            import yaml

            assert json.loads("[1]") == yaml.safe_load("[1]")
            assert sys.path == [*before, str(tmp_path)]
    finally:
        sys.modules.update(kept)
    assert sys.path == before
