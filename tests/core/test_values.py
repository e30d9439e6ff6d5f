"""Values as annotations declare them, and the messages about wrong ones."""

from typing import Annotated, Literal

import pytest
from pydantic import Field

from fedbench.core.errors import RequestError
from fedbench.core.options import Count, Positive, Rounds
from fedbench.core.validation import choice, one_of, validate, whole


@pytest.mark.parametrize(
    ("value", "kind", "expected"),
    [
        (1000.0, Count, 1000),
        (2, Positive, 2.0),
        ([5, 10.0], Rounds, (5, 10)),
        ("auto", Literal["auto"] | Count, "auto"),
        (None, Positive | None, None),
    ],
)
def test_a_value_gets_its_declared_type(value, kind, expected):
    read = validate("x", value, kind)
    assert (read, type(read)) == (expected, type(expected))


@pytest.mark.parametrize(
    ("value", "kind", "message"),
    [
        (1e31, Positive, "x must be <= 1e+30, got 1e+31"),
        (float("nan"), Positive, "x must be a finite number, got nan"),
        ("0.5", Positive, "x must be a number, got '0.5'"),
        (True, Count, "x must be an integer, got true"),
        ("fats", Literal["fast"], "x must be fast, got 'fats'; did you mean fast?"),
        (7, Annotated[int, Field(le=3)], "x must be <= 3, got 7"),
        (3, list[int], "x must be a list, got 3"),
        ([1, "b"], list[int], "x must be an integer, got 'b'"),
    ],
)
def test_a_message_has_the_value_and_the_allowed_ones(value, kind, message):
    with pytest.raises(RequestError) as error:
        validate("x", value, kind)
    assert str(error.value) == message


def test_a_remedy_follows():
    with pytest.raises(RequestError, match=r"^seed must be an integer, got 'a'; type a number$"):
        validate("seed", "a", Count, remedy="type a number")


def test_choices_that_are_known_later_only():
    assert choice("metric", "b", ["a", "b"]) == "b"
    message = r"^metric must be one of accuracy, loss; got 'los'; did you mean loss\?$"
    with pytest.raises(RequestError, match=message):
        choice("metric", "los", ["accuracy", "loss"])


def test_one_word_is_no_list():
    assert one_of(["a"]) == "a"
    assert one_of(["a", None]) == "one of a, null"


def test_whole_numbers_are_integers():
    assert [type(whole(value)) for value in (2.0, 2.5, "2.0", True)] == [int, float, str, bool]
