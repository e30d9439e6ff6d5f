"""Parts of a model: sets of its tensors, chosen by words or by patterns of their names."""

from collections.abc import Collection, Sequence
from fnmatch import fnmatchcase

from torch import nn

from fedbench.core.errors import RequestError
from fedbench.core.user_code import is_own
from fedbench.models.base import traits_of

WORDS = ("head", "body", "norm")
_NORMS = (
    nn.GroupNorm,
    nn.LayerNorm,
    nn.modules.batchnorm._NormBase,
)
_SHOWN = 6  # maximum number of names in a message


def tensors_of(
    model: nn.Module,
    chosen: Sequence[str],
    key: str,
    statistics: Collection[str] = (),
) -> frozenset[str]:
    """Return the names of the tensors that words and patterns choose.

    ``head`` is the last linear layer, ``body`` all other parameters, and ``norm`` the parameters
    and statistics of all normalisation layers. Patterns are those of ``fnmatch``, case-sensitive,
    on full names.

    Args:
        model: The model.
        chosen: The words and patterns.
        key: Configuration key of the choice, for messages.
        statistics: Names of the running statistics that may be chosen, besides the parameters.

    Raises:
        RequestError: If a word or pattern names nothing, or the model does not declare its head.
    """
    parameters = [name for name, _ in model.named_parameters()]
    names = [*parameters, *statistics]
    selected: set[str] = set()
    for word in chosen:
        if word in ("head", "body"):
            head = _head(model, parameters, f"{key}={word}")
            some = head if word == "head" else set(parameters) - head
        elif word == "norm":
            some = _norms(model) | set(statistics)
        else:
            some = {name for name in names if fnmatchcase(name, word)}
        if not some and word == "norm":
            raise RequestError(
                f"{key}=norm: {type(model).__name__} has no normalisation; use a model that has, "
                "such as model=mlp model.norm=batch or model=resnet18_gn"
            )
        if not some:
            shown = ", ".join(names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")
            raise RequestError(
                f"{key}: {word} names no parameter of {type(model).__name__}, which has {shown}; "
                f"give one of the words {', '.join(WORDS)}, or a pattern such as {names[0]}"
            )
        selected |= some
    return frozenset(selected)


def head_of(model: nn.Module) -> str | None:
    """Return the name of the last linear layer, or None if a user's model does not declare it.

    The name of a model that is a single layer is empty.
    """
    head = traits_of(model).head
    if head is not None and not isinstance(dict(model.named_modules()).get(head), nn.Linear):
        raise RequestError(
            f"{type(model).__name__}.traits has head={head!r}, which is no linear layer of it"
        )
    if head is None and not is_own(type(model).forward):
        linear = [name for name, module in model.named_modules() if isinstance(module, nn.Linear)]
        head = linear[-1]
    return head


def places_of(model: nn.Module, names: Sequence[str]) -> dict[str, slice]:
    """Return the places of tensors, and of "head", in the vector of the tensors ``names``.

    There is no "head" if the model does not declare it, or if it is not among the tensors as a
    whole.
    """
    sizes = {name: p.numel() for name, p in model.named_parameters()}
    places = {}
    start = 0
    for name in names:
        places[name] = slice(start, start + sizes[name])
        start += sizes[name]
    if head_of(model) is not None:
        head = _head(model, list(sizes), "head")
        if head <= places.keys():  # a layer's parameters are next to each other
            first = min(places[name].start for name in head)
            last = max(places[name].stop for name in head)
            places["head"] = slice(first, last)
    return places


def _head(
    model: nn.Module,
    names: Sequence[str],
    request: str,
) -> set[str]:
    """Return the names of the head's parameters."""
    head = head_of(model)
    if head is None:
        raise RequestError(
            f"{request}: {type(model).__name__} does not declare its head; set traits = "
            "ModelTraits(head=NAME), the name of its last linear layer"
        )
    prefix = f"{head}." if head else ""
    return {name for name in names if name.startswith(prefix)}


def _norms(model: nn.Module) -> set[str]:
    """Return the names of the parameters of normalisation layers."""
    names = set()
    for place, module in model.named_modules():
        if isinstance(module, _NORMS):
            names |= {f"{place}.{name}".lstrip(".") for name, _ in module.named_parameters()}
    return names
