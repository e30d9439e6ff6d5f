"""The comments of the config tree: read per key, written into YAML text, and the page that is made of them."""

import runpy
import textwrap

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from tools import ROOT

from fedbench.config.comments import Key, annotate, comments, read
from fedbench.config.overrides import CONFIG_DIR, options
from fedbench.core.errors import RequestError


def written(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(text))
    return path


def test_a_comment_is_on_the_line_of_the_key_below_it_or_above_it(tmp_path):
    file = read(written(tmp_path / "a.yaml", """\
        # @package _global_
        # What the file is for,
        # in two lines
        defaults:
          - _self_ # not a key
        one: 1 # at the end
        # above two
        two: "a # b" # after a quoted value
        # which goes on here

        # above three, after a blank line
        three: # of the section
          four: [1, 2] # of a list
          # and its second line
          five: ${oc.env:X,'~/y'}
          six:
          seven: # with no value
        # eight
        eight: a
    """))  # fmt: skip
    assert (file.about, file.is_global) == ("What the file is for, in two lines", True)
    assert file.keys == (
        Key("one", "1", "at the end above two"),  # a line below a comment continues it
        Key("two", '"a # b"', "after a quoted value which goes on here"),
        Key("three", "", "above three, after a blank line of the section"),
        Key("three.four", "[1, 2]", "of a list and its second line"),
        Key("three.five", "${oc.env:X,'~/y'}", ""),
        Key("three.six", "", ""),
        Key("three.seven", "", "with no value eight"),
        Key("eight", "a", ""),
    )


def tree(root):
    written(
        root / "config.yaml", "rounds: 100 # how many\nlocal: # a client\n  lr: 0.1 # its rate\n"
    )
    written(
        root / "algo/base.yaml", "# The base\n_target_: a.b\nq: 1 # fairness\nL: null # 1 / lr\n"
    )
    written(
        root / "algo/fair.yaml", "# A fair one\ndefaults:\n  - base\n  - _self_\nq: 2 # paper\n"
    )
    written(root / "data/set.yaml", "# A set\nclients: 3 # all\nsource:\n  x: image # column\n")
    written(root / "data/partition/iid.yaml", "# Equal parts\n_target_: c.d\n")
    written(root / "experiment/p/_all.yaml", "# @package _global_\nlocal:\n  lr: 0.5 # Table 1\n")
    written(root / "experiment/p/t1.yaml", """\
        # @package _global_
        # Table 1
        defaults:
          - /experiment/p/_all@_here_
          - _self_
          - override /data: set
        rounds: 7 # one epoch
        presets:
          fair: { q: 3 } # tuned
          base: { q: 4 } # not chosen
    """)  # fmt: skip
    return root


def test_the_comments_of_the_chosen_files_by_key(tmp_path):
    choices = {"algo": "fair", "data": "set", "data/partition": "iid", "model": None}
    found = comments(choices, [tree(tmp_path)])
    assert found == {
        "rounds": "how many", "local": "a client", "local.lr": "its rate", "algo": "A fair one",
        "algo.q": "paper", "algo.L": "1 / lr", "data": "A set", "data.clients": "all",
        "data.source.x": "column", "data.partition": "Equal parts",
    }  # fmt: skip


def test_the_comment_of_an_experiment_counts_where_it_has_one(tmp_path):
    found = comments({"experiment": "p/t1", "algo": "fair", "data": "set"}, [tree(tmp_path)])
    assert (found["rounds"], found["local.lr"], found["algo"]) == (
        "one epoch",
        "Table 1",
        "A fair one",
    )
    assert not [key for key in found if key.startswith("presets")]


def test_files_are_looked_for_in_every_root(tmp_path):
    written(tmp_path / "own/algo/mine.yaml", "# My own\n_target_: mine.mine\n")
    roots = [tree(tmp_path / "theirs"), tmp_path / "own"]
    assert comments({"algo": "mine"}, roots)["algo"] == "My own"
    with pytest.raises(RequestError, match=r"^algo/other\.yaml is not in .*theirs, .*own$"):
        comments({"algo": "other"}, roots)


def test_short_comments_end_the_line_and_long_ones_stand_above_it():
    text = "a: 1\nb:\n  c: 'two\n\n    lines'\n  d:\n  - x\n"
    long = "word " * 40
    shown = annotate(
        text, {"a": "one", "b": "a section", "b.c": "several lines", "b.d": long, "e": "not there"}
    )
    assert shown.splitlines()[:3] == ["a: 1  # one", "b:  # a section", "  # several lines"]
    assert [line for line in shown.splitlines() if line.startswith("  # word")] == [
        "  # " + " ".join(["word"] * 23), "  # " + " ".join(["word"] * 17)
    ]  # fmt: skip
    assert yaml.safe_load(shown) == yaml.safe_load(text)


TEXT = st.text(st.sampled_from("ab #:-'\"\\\n\x85\u2028é|>{[,"), max_size=8)
VALUES = st.none() | st.integers() | TEXT | st.lists(TEXT, max_size=2)
SECTIONS = st.dictionaries(st.sampled_from(["d", "e", "f"]), VALUES, max_size=3)


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(st.sampled_from(["a", "b", "c"]), VALUES | SECTIONS, min_size=1), TEXT)
def test_annotated_text_has_the_same_value(config, comment):
    text = yaml.safe_dump(config, sort_keys=False, allow_unicode=True)
    names = [
        *config,
        *(f"{k}.{inner}" for k, v in config.items() if isinstance(v, dict) for inner in v),
    ]
    assert yaml.safe_load(annotate(text, dict.fromkeys(names, comment))) == yaml.safe_load(text)


@pytest.mark.parametrize("algo", options("algo"))
def test_every_option_of_an_algorithm_is_explained_unless_its_name_says_it(algo):
    file = read(CONFIG_DIR / "algo" / f"{algo}.yaml")
    assert file.about
    plain = {"weights", "server_lr", "beta1", "beta2", "eps", "loss_at", "_target_", "server"}
    assert not [k.name for k in file.keys if not k.comment and k.name.split(".")[-1] not in plain]


def test_the_page_is_what_the_script_makes():
    page = runpy.run_path(str(ROOT / "scripts" / "config_reference.py"))["page"]
    assert (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8") == page(), (
        "run `make docs`"
    )
