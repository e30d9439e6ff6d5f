"""torchvision where its compiled part loads, and where it does not."""

import subprocess
import sys

import pytest

USE = """
import torch
from fedbench.core.torchvision_compat import torchvision
vision = torchvision()
assert vision is torchvision()
net = vision.models.vgg11(num_classes=3)
assert vision.transforms.Resize(8)(torch.zeros(3, 32, 32)).shape == (3, 8, 8)
print(vision.__version__, vision.datasets.MNIST.__name__, sum(p.numel() for p in net.parameters()) > 0)
"""

# a torchvision whose library loads: loading declares the operators, and its import registers a shape function for one
LOADS = """
import sys
import torch

declared = []


def load_library(path):
    library = torch.library.Library("torchvision", "FRAGMENT")
    library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    library.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    declared.append(library)


torch.ops.load_library = load_library
sys.path.insert(0, sys.argv[1])
from fedbench.core import torchvision_compat as vision

module = vision.torchvision()
assert module.marker == "the package on the path"
assert len(declared) == 1  # by the library
assert not vision._declared  # and not once more by us
"""

# the same package where the library cannot be loaded
BREAKS = """
import sys
import torch


def load_library(path):
    raise OSError("undefined symbol")


torch.ops.load_library = load_library
sys.path.insert(0, sys.argv[1])
try:
    import torchvision
except RuntimeError as error:
    assert "operator torchvision::nms does not exist" in str(error)
else:
    raise SystemExit("the trap is gone")
sys.modules.pop("torchvision", None)
from fedbench.core import torchvision_compat as vision

assert vision.torchvision().marker == "the package on the path"
assert len(vision._declared) == 1
"""


def fake_torchvision(folder):
    package = folder / "torchvision"
    package.mkdir()
    (package / "_C.so").write_bytes(b"")
    (package / "__init__.py").write_text(
        "import torch\n"
        "@torch.library.register_fake('torchvision::nms')\n"
        "def nms(dets, scores, iou_threshold):\n"
        "    return dets.new_empty(0)\n"
        "marker = 'the package on the path'\n"
    )
    return str(folder)


def python(code, *args):
    return subprocess.run([sys.executable, "-c", code, *args], capture_output=True, text=True)


@pytest.mark.slow
def test_data_sets_models_and_transforms_work_here():
    done = python(USE)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[1:] == ["MNIST", "True"]


@pytest.mark.slow
def test_where_the_compiled_part_loads_nothing_is_declared(tmp_path):
    done = python(LOADS, fake_torchvision(tmp_path))
    assert done.returncode == 0, done.stderr


def test_where_it_does_not_load_the_operators_are_declared(tmp_path):
    done = python(BREAKS, fake_torchvision(tmp_path))
    assert done.returncode == 0, done.stderr + done.stdout


def test_it_is_not_imported_before_it_is_needed():
    done = python("import sys, fedbench.runs.build; sys.exit('torchvision' in sys.modules)")
    assert done.returncode == 0
