"""Fed-Heart-Disease (Ogier du Terrail et al., NeurIPS 2022, FLamby): four clinics are the clients.

The patients are those of UCI's Heart Disease data (Detrano et al., 1989). A file has 14 numbers per
patient, separated by commas, without a header; ``?`` is a missing value.
"""

from pathlib import Path

import numpy as np

from fedbench.core.errors import RequestError, install_hint
from fedbench.core.files import reading
from fedbench.core.options import Seed
from fedbench.data.examples import Examples, Part, are_finite, join
from fedbench.data.files.fetch import published

FILES = (published("heart_disease"),)

_COLUMNS = 14  # the last one is the diagnosis
_DROPPED = (10, 11, 12)  # slope, vessels and thal, which most centres did not record
_NUMBERS = [0, 1, 3, 4, 5, 7, 8, 9]
_INDICATORS = ((2, (2, 3, 4)), (6, (1, 2)))  # column and categories; the first category has none
_TEST_SHARE = 1 - 0.66
_FEWEST = 4  # patients of a centre, of whom two are left for training


def load(
    data_dir: Path,
    seed: int,
    *,
    split_seed: Seed | None = 43,
    pooled_test: bool = False,
    download: bool = True,
) -> Examples:
    """Read patients of four centres, as FLamby does: x [T, 13], y [T] 1 if the patient is ill.

    Patients with a missing value in a column that is used are left out. The inputs are eight
    numbers, and indicators of chest pain (2, 3, 4) and of the electrocardiogram (1, 2). A centre
    holds out 34 % of its patients for testing; they are drawn class by class if both classes have
    more than two patients. Inputs are standardised with the mean and the standard deviation of the
    centre's training patients.

    Deviation: FLamby adds 1e-9 to every standard deviation, so that a feature which is constant
    in training becomes 1e9 for a test patient who differs; here it becomes the difference. This
    does not occur with FLamby's split.

    Args:
        data_dir: Directory of all data sets, with heart_disease/, unless it is downloaded.
        seed: Random seed of the data.
        split_seed: Seed of the test patients, in every centre the same; FLamby's is 43. If None,
            ``seed``.
        pooled_test: Whether test patients are standardised with the training patients of all
            centres, as in FLamby's pooled test set.
        download: Whether downloads are allowed.

    Raises:
        RequestError: If files are missing or do not have this format, or scikit-learn is not
            installed.
    """
    files = FILES[0].find(data_dir, download=download)
    drawn = seed if split_seed is None else split_seed
    centres = []
    for path in files:
        form = f"must have {_COLUMNS} numbers per line and {_FEWEST} complete lines"
        with reading(path, form):
            x, y = _patients(path)
            centres.append((x, y, _test_patients(y, drawn)))

    pooled = np.concatenate([x[~tested] for x, _, tested in centres])
    parts = []
    for path, (x, y, tested) in zip(files, centres, strict=True):
        train = x[~tested]
        reference = pooled if pooled_test else train
        name = path.name.split(".")[1]
        parts.append(Part(name, False, _standardised(train, train), y[~tested]))
        parts.append(Part(name, True, _standardised(x[tested], reference), y[tested]))
    return join(parts, classes=2, **FILES[0].origin(files))


def _patients(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Return the inputs [n, 13] and labels [n] of a centre's patients without missing values."""
    rows = np.loadtxt(
        path,
        delimiter=",",
        converters=lambda text: np.nan if text == "?" else float(text),
        encoding="utf-8",
        ndmin=2,
    )
    if rows.shape[1] != _COLUMNS:
        raise ValueError(f"the first line has {rows.shape[1]}")
    used = np.delete(rows, _DROPPED, axis=1)
    rows = rows[np.isfinite(used).all(axis=1)]

    inputs = [rows[:, _NUMBERS]]
    for column, categories in _INDICATORS:
        inputs.append(rows[:, [column]] == categories)
    x = np.hstack(inputs)
    if len(x) < _FEWEST or not are_finite(x):
        raise ValueError(f"{len(x)} complete lines, or numbers beyond 32 bits")
    return x, (rows[:, -1] > 0).astype(np.int64)


def _test_patients(y: np.ndarray, seed: int) -> np.ndarray:
    """Return the mask [n] of the test patients, drawn by scikit-learn."""
    try:
        # imported late, because it takes seconds
        from sklearn.model_selection import train_test_split
    except ModuleNotFoundError as error:
        raise RequestError(
            f"data=heart_disease needs the package scikit-learn; run: {install_hint('heart')}"
        ) from error
    patients = np.arange(len(y))
    _, test = train_test_split(
        patients,
        test_size=_TEST_SHARE,
        random_state=seed,
        stratify=_strata(y),
    )
    return np.isin(patients, test)


def _strata(y: np.ndarray) -> np.ndarray | None:
    """Return the labels if both classes have more than two patients, and None otherwise."""
    counts = np.bincount(y, minlength=2)
    return y if counts.min() > 2 else None


def _standardised(x: np.ndarray, reference: np.ndarray) -> np.ndarray:
    """Return inputs less the mean, in units of the unbiased deviation, of ``reference``."""
    deviation = reference.std(axis=0, ddof=1)
    deviation[deviation == 0] = 1
    standardised: np.ndarray = (x - reference.mean(axis=0)) / deviation
    return standardised
