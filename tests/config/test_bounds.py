"""Configurations that are too large are refused, and by what they would become."""

import pytest

from fedbench.config.bounds import fault_of, refuse_expansion, refuse_long_override
from fedbench.config.compose import Composer
from fedbench.config.overrides import parse_overrides
from fedbench.core.errors import RequestError
from fedbench.tuning.space import search_space

LAUGHS = "a0: &a0 [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"a{i}: &a{i} [{','.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 12)
)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("z: " + "x" * 5_000_000, "has 5000003 bytes; a config file has at most 1048576"),
        ("z: " + "x" * 70_000, "has a value of 70000 characters"),
        ("z: [" + "1," * 200_000 + "]", "has more than 20000 values"),
        (LAUGHS, "has more than 20000 values; an alias counts as what it names"),
        ("z: " + "[" * 50, "has more than 40 sections or lists in each other"),
        ("z: " + "9" * 5000, "has a number of 5000 digits"),
        ("z: &a [*a]", "has the alias \\*a inside of what it names"),
    ],
)
def test_files(tmp_path, text, fault):
    file = tmp_path / "algo" / "own.yaml"
    file.parent.mkdir()
    file.write_text(text)
    with pytest.raises(RequestError, match=f"own.yaml {fault}"):
        Composer(tmp_path).config(["experiment=smoke", "algo=own"])


@pytest.mark.parametrize("where", ["own", "searched", "by reference"])
@pytest.mark.parametrize("text", [LAUGHS, "z: " + "x" * 5_000_000], ids=["laughs", "large"])
def test_files_are_limited_wherever_they_lie(tmp_path, where, text):
    """Also in a group of one's own, which only a defaults list names."""
    group = "mine" if where == "by reference" else "algo"
    (tmp_path / "algo").mkdir()
    (tmp_path / group).mkdir(exist_ok=True)
    (tmp_path / group / "bad.yaml").write_text(text)
    (tmp_path / "algo" / "entry.yaml").write_text("defaults:\n  - /mine@_here_: bad\n  - fedavg\n")
    own = tmp_path if where in ("own", "by reference") else None
    typed = [] if own else [f"hydra.searchpath=[file://{tmp_path}]"]
    choice = "algo=entry" if where == "by reference" else "algo=bad"
    with pytest.raises(RequestError, match=rf"{group}/bad.yaml has .*; shorten it"):
        Composer(own).config(["experiment=smoke", choice, *typed])


def test_a_searched_directory_is_not_dropped_without_a_word(tmp_path):
    with pytest.raises(RequestError, match=r"^hydra.searchpath=.*x.* cannot be combined with --config-dir"):
        Composer(tmp_path).config(["experiment=smoke", "hydra.searchpath=[x]"])


def test_a_bad_file_that_is_not_read_stops_nothing(tmp_path):
    (tmp_path / "algo").mkdir()
    (tmp_path / "algo" / "bad.yaml").write_text(LAUGHS)
    assert Composer(tmp_path).config(["experiment=smoke", "algo=fedavg"]).names.algo == "fedavg"


def test_searched_directories_keep_their_form():
    (o,) = parse_overrides(["hydra.searchpath=[file:///a b,'c d',pkg://e.f]"])
    assert o.text == "hydra.searchpath=['bounded:///a b','bounded://c d','pkg://e.f']"
    with pytest.raises(RequestError, match="hydra.searchpath must be a list of directories"):
        parse_overrides(["hydra.searchpath=x"])


def test_groups_of_a_searched_directory_are_listed(tmp_path):
    (tmp_path / "algo").mkdir()
    (tmp_path / "algo" / "own.yaml").write_text("# @package algo\ndefaults: [fedavg]\n")
    with pytest.raises(RequestError, match="did you mean own"):
        Composer(tmp_path).config(["experiment=smoke", "algo=owm"])
    assert Composer(tmp_path).config(["experiment=smoke", "algo=own"]).algo.target.endswith("fedavg.fedavg")


def test_a_search_space_is_limited(tmp_path):
    (tmp_path / "tune").mkdir()
    (tmp_path / "tune" / "fedavg.yaml").write_text(LAUGHS)
    with pytest.raises(RequestError, match=r"tune/fedavg.yaml has more than 20000 values"):
        search_space("fedavg", tmp_path, [])


def test_values_are_counted_with_their_aliases(tmp_path):
    """19 999 values: the document's mapping, nine keys and lists, and 9 times what the anchor names."""
    for size, refused in ((1999, False), (2300, True)):
        file = tmp_path / f"{size}.yaml"
        file.write_text("a: &a [" + ",".join("1" * size) + "]\n" + "".join(f"b{i}: *a\n" for i in range(8)))
        assert bool(fault_of(file)) == refused


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ({"a": {"w0": "x" * 10, **{f"w{i}": f"${{a.w{i - 1}}}" * 9 for i in range(1, 12)}}}, "a has interpolations"),
        ({"a": {"w0": "x" * 10, **{f"w{i}": f"${{.w{i - 1}}}" * 9 for i in range(1, 12)}}}, "a has interpolations"),
        ({"a": {f"w{i}": f"${{.w{i + 1}}}" for i in range(300)}}, "a has interpolations of 300 steps"),
        ({"a": "${${b}}", "b": "a"}, "cannot be computed"),
    ],
)
def test_interpolations(tree, message):
    with pytest.raises(RequestError, match=message):
        refuse_expansion(tree)


def test_ordinary_interpolations_are_accepted():
    refuse_expansion({"a": {"b": "${c}", "d": "${oc.decode:${oc.env:X,1}}"}, "c": "${.e}", "e": "plain a.b"})


def test_overrides():
    for text in ("rounds=" + "9" * 70_000, "keep_clients=[" + "1," * 3000 + "]", "x" * 400 + "=1"):
        with pytest.raises(RequestError, match="at most"):
            refuse_long_override(text)
    refuse_long_override("seed=" + ",".join(map(str, range(1000))))


def test_one_bad_file_is_named_and_the_others_are_listed(tmp_path, fed):
    folder = tmp_path / "own" / "data"
    folder.mkdir(parents=True)
    (folder / "good.yaml").write_text("# a good one\nx: 1\n")
    (folder / "broken.yaml").write_text("x: [}")
    (folder / "bytes.yaml").write_bytes(b"# \xff")
    (folder / "long.yaml").write_text("x: " + "1" * 2**20)
    _, out, _ = fed("--config-dir", str(tmp_path / "own"), "list", "data")
    out = "\n".join(out)
    assert "good  " in out and "a good one" in out
    for name in ("broken", "bytes", "long"):
        assert f"cannot be read: {folder / name}.yaml" in out
