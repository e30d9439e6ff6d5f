"""Every data set has a licence, if only "not stated", and a reference."""

import pytest
import yaml
from tools import ROOT

from fedbench.config.descriptions import citation

CONFIGS = sorted((ROOT / "conf" / "data").glob("*.yaml"))


def source(path):
    """The source of a data set, whose config file may start from another one."""
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    if "source" not in content:
        return source(path.with_name(f"{content['defaults'][0]}.yaml"))
    return content["source"]["_target_"]


@pytest.mark.parametrize(
    "path",
    CONFIGS,
    ids=lambda p: p.stem,
)
def test_a_data_set_has_a_licence_and_a_reference(path):
    found = citation(source(path))
    assert found is not None
    assert found.licence
    assert found.reference


def test_there_is_no_citation_without_a_data_set():
    known = yaml.safe_load((ROOT / "conf" / "citations.yaml").read_text(encoding="utf-8"))
    used = {source(p).removeprefix("fedbench.data.sources.") for p in CONFIGS}
    assert all(name in used or f"{name}.load" in used for name in known)


def test_functions_of_one_module_and_functions_elsewhere():
    assert "Caldas" in citation("fedbench.data.sources.synthetic.leaf").reference
    assert "Li et al." in citation("fedbench.data.sources.synthetic.fedprox").reference
    assert citation("mine.load") is None
    assert citation("load") is None
