"""What stands for a module of the user's own in a run's identity, and where its code is imported from."""

import sys

import pytest
import yaml

from fedbench.config.user_sources import marks, source_files, user_code_from


@pytest.fixture
def project(tmp_path):
    """Write files, by name and content, into a directory."""

    def write(**files):
        for name, text in files.items():
            path = tmp_path.joinpath(*name.split("__")).with_suffix(".py")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return tmp_path

    return write


def test_all_python_files_of_the_configuration_directory_count_without_being_imported(project):
    folder = project(
        code_a="raise SystemExit('imported')", code_b="", pkg__sub__c="", **{".venv__lib__d": ""}
    )
    (folder / "notes.txt").write_text("no code")
    with user_code_from(folder):
        assert list(source_files("code_a")) == ["code_a.py", "code_b.py", "pkg/sub/c.py"]
        assert source_files("pkg.sub.c") == source_files("code_a")
    assert "code_a" not in sys.modules


def test_elsewhere_a_module_stands_for_itself_and_a_package_for_its_files(project, monkeypatch):
    folder = project(code_a="", code_b="", pkg__sub__c="", pkg__d="")
    (folder / "pkg/__init__.py").write_text("")
    monkeypatch.syspath_prepend(str(folder))
    assert source_files("code_a") == {"code_a.py": folder / "code_a.py"}
    assert list(source_files("pkg.sub.c")) == ["pkg/__init__.py", "pkg/d.py", "pkg/sub/c.py"]


def test_a_namespace_package_may_have_several_parts(tmp_path, monkeypatch):
    for part in ("one", "two"):
        (tmp_path / part / "space").mkdir(parents=True)
        (tmp_path / part / "space" / f"{part}.py").write_text("")
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
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "twice_there.py").write_text(f"name = {name!r}")
    monkeypatch.syspath_prepend(str(tmp_path / "one"))
    __import__("twice_there")
    monkeypatch.syspath_prepend(str(tmp_path / "two"))
    assert source_files("twice_there") == {"twice_there.py": tmp_path / "two/twice_there.py"}
    del sys.modules["twice_there"]


def test_a_file_of_the_user_never_takes_the_place_of_an_installed_module(tmp_path):
    (tmp_path / "json.py").write_text("raise SystemExit('executed')")
    (tmp_path / "yaml.py").write_text("raise SystemExit('executed')")
    before, kept = list(sys.path), {name: sys.modules.pop(name) for name in ("json", "yaml")}
    try:
        with user_code_from(tmp_path):
            import json

            import yaml

            assert json.loads("[1]") == yaml.safe_load("[1]")
            assert sys.path == [*before, str(tmp_path)]
    finally:
        sys.modules.update(kept)
    assert sys.path == before
