"""The file ``learnt.yaml`` of a report: damaged ones are refused with what they may have."""

import pytest

from fedbench.core.errors import RequestError
from fedbench.report.learnt import Learnt, Sentence, read_learnt, refuse_stale

ONE = "text: It holds., claim: c01, verdict: holds"


def test_no_file_is_nothing_learnt(tmp_path):
    assert read_learnt(tmp_path) == Learnt()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "must be a mapping with sentences, figure; got None"),
        (b"- text", "must be a mapping with sentences, figure; got ['text']"),
        (b"claims: []", "key must be one of sentences, figure; got 'claims'"),
        (b"sentences: 3", "sentences must be a list"),
        (b"sentences:\n- {text: It holds.}", "sentence 1 lacks claim"),
        (b"figure: [figure2]", "figure must be text"),
        (b"sentences: [", "while parsing"),
        (b"\xff\xfe", "can't decode byte"),
    ],
)
def test_a_damaged_file_is_refused_by_name(tmp_path, content, message):
    (tmp_path / "learnt.yaml").write_bytes(content)
    with pytest.raises(RequestError) as error:
        read_learnt(tmp_path)
    assert str(error.value).startswith(f"{tmp_path / 'learnt.yaml'}: ")
    assert message in str(error.value)


def test_all_stale_sentences_are_named_at_once(tmp_path):
    (tmp_path / "learnt.yaml").write_text(
        f"sentences:\n- {{{ONE}}}\n- {{{ONE}, readings: robust}}\n- {{text: Odd., claim: c1, verdict: holds}}\n"
    )
    learnt = read_learnt(tmp_path)
    assert learnt.sentences[0] == Sentence("It holds.", "c01", "holds")
    refuse_stale(Learnt(learnt.sentences[:1]), {"c01": ("holds", "")}, tmp_path)
    with pytest.raises(RequestError) as error:
        refuse_stale(learnt, {"c01": ("holds", "robust")}, tmp_path)
    faults = str(error.value).splitlines()[1:]
    assert [line.partition(":")[0] for line in faults] == [
        "c01 is stated as 'holds', and the runs give 'holds; robust'",
        "c1 is unknown; did you mean c01?",
    ]
