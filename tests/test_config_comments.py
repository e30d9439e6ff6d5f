"""The comments of the config tree: read per key, and the page that is made of them."""

import runpy
import textwrap

import pytest
from config_comments import Key, read
from tools import ROOT

from fedbench.config.overrides import CONFIG_DIR, options


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
    assert file.about == "What the file is for, in two lines"
    assert file.is_global
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
