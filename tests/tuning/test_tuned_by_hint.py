"""The key that was called ``objective`` is now ``tuned_by``."""

import pytest

import fedbench
from fedbench.core.errors import RequestError


@pytest.mark.parametrize("name", ["val_loss", "val_accuracy_worst30"])
def test_the_earlier_key_of_the_metric_is_named(name):
    with pytest.raises(RequestError, match=rf"objective={name} is unknown.* tuned_by={name}$"):
        fedbench.tune("algo=fedavg", objective=name)
    with pytest.raises(RequestError, match="objective=mixup is unknown") as caught:
        fedbench.tune("algo=fedavg", objective="mixup")
    assert "tuned_by" not in str(caught.value)
