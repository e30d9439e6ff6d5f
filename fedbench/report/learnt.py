"""What was learnt from a published report: sentences, each with the claim that it rests on and the verdict it states.

They are in the file ``learnt.yaml`` of the report, since they hold for its runs only::

    figure: figure3                      # the picture of the report that says most
    sentences:
    - text: AdaFedAdam is ahead of ...
      claim: c13
      verdict: holds
      readings: 'depends on: weighting'  # as in tables/<paper>_claims.csv; left out where it is empty
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from fedbench.core.errors import RequestError, nearest
from fedbench.core.trees import from_yaml
from fedbench.papers.parsing import Entry, parse

FILE = "learnt.yaml"


@dataclass(frozen=True)
class Sentence(Entry):
    """A sentence.

    Attributes:
        claim: Id of the claim that it rests on.
        verdict: The verdict that it states.
        readings: What the readings of the claim amount to, in the words of the tables; empty if it has none.
    """

    text: str
    claim: str
    verdict: str
    readings: str = ""


@dataclass(frozen=True)
class Learnt(Entry):
    """What was learnt.

    Attributes:
        figure: Name of the picture that says most, such as ``figure2_distribution``; None for none.
    """

    sentences: tuple[Sentence, ...] = ()
    figure: str | None = field(default=None)


Verdicts = Mapping[str, tuple[str, str]]  # verdict and readings of a claim


def read_learnt(folder: Path) -> Learnt:
    """Return what was learnt from a published report; nothing if it has no such file.

    Raises:
        RequestError: If the file is invalid.
    """
    file = folder / FILE
    if not file.exists():
        return Learnt()
    try:
        found = parse(Learnt, from_yaml(file.read_text(encoding="utf-8")))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise RequestError(f"{file}: {error}") from error
    return found


def refuse_stale(learnt: Learnt, verdicts: Verdicts, folder: Path) -> None:
    """Refuse sentences that state another verdict than the runs give.

    Args:
        learnt: The sentences.
        verdicts: The verdicts by claim.
        folder: Directory of the report.

    Raises:
        RequestError: With all such sentences.
    """
    faults = []
    for s in learnt.sentences:
        if s.claim not in verdicts:
            faults.append(f"{s.claim} is unknown{nearest(s.claim, [*verdicts])}: {s.text}")
        elif (stated := verdict_text(s.verdict, s.readings)) != (found := verdict_text(*verdicts[s.claim])):
            faults.append(f"{s.claim} is stated as {stated!r}, and the runs give {found!r}: {s.text}")
    if faults:
        raise RequestError("\n".join([f"{folder / FILE}: correct these sentences, or remove them", *faults]))


def verdict_text(verdict: str, readings: str) -> str:
    """Return a verdict with what its readings amount to: 'holds; depends on: weighting'."""
    return f"{verdict}; {readings}" if readings and readings != verdict else verdict
