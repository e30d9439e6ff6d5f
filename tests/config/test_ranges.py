"""What the functions that fedbench's own configurations name declare of their options, by value."""

import re

import yaml
from tools import CONF

from fedbench.config.targets import function_of
from fedbench.core.errors import RequestError
from fedbench.core.options import checked

# what a message says that an option must be: the options of every function; true or false, and words, are left out
NUMBERS = """
a number >= 0: adafed.gamma adafedadam.alpha afl.lr_lambda ditto.lam drfa.gamma fedcorr.beta fedexp.eps
    fedmdfg.armijo fedprox.mu fedsam.rho fedspeed.rho mofedsam.rho naive_adaptive.eps qfedavg.q
a number > 0: adafed.server_lr adafedadam.eps,server_lr fafed.rho fedadagrad.server_lr,tau fedadam.server_lr,tau
    fedams.server_lr,tau fedavg.server_lr fedavgm.server_lr fedcada.eps,server_lr fedcm.server_lr feddyn.alpha
    fedfv.server_lr fedmdfg.server_lr fedmgda.server_lr fedprox.server_lr fedsam.server_lr fedspeed.prox
    fedsps.c,gamma_b fedyogi.server_lr,tau local_adam.eps mimelite.eps,server_lr mofedsam.server_lr
    pfedme.beta,lam,personal_lr propfair.M,eps,server_lr scaffold.server_lr term.server_lr
a number >= 0 and < 1: adafedadam.beta1,beta2 drfa.floor fafed.beta fedadagrad.beta1 fedadam.beta1,beta2
    fedams.beta1,beta2 fedavgm.beta fedcada.beta1,beta2 fedfa.gamma_c,gamma_s fednova.server_momentum
    fedyogi.beta1,beta2 gifair.share local_adam.beta1,beta2 mimelite.beta1,beta2 naive_adaptive.beta
a number >= 0 and <= 1: apfl.alpha fafed.alpha fedcm.alpha fedcorr.confidence_thres,relabel_ratio fedfa.alpha,beta
    fedfv.alpha fedheal.beta fedmgda.eps fedspeed.alpha mofedsam.alpha stem.alpha
null or an integer >= 1: ditto.personal_epochs
null or a number > 0: ditto.personal_lr fafed.decay_w qfedavg.L stem.decay_w
a number > 0 and <= 1: drfa.decay
start, end, random or an integer >= 0: drfa.snapshot
a number: fafed.ext fedheal.threshold fedsps.l_star term.t
null or a number >= 0: fedadagrad.v0 fedadam.v0 fedfa.server_lr fedyogi.v0
null or a number > 0 and <= 1: fedcorr.frac2
null or an integer >= 0: fedcorr.iterations,rounds1
an integer >= 1: fedcorr.neighbours fedfa.b pfedme.inner
a number > 0 and < 1: fedfa.c
an integer >= 0: fedfv.tau fedmdfg.s
a number >= 0 and <= 90: fedmdfg.theta
"""
OTHERS = """
fedcorr.server
"""  # what these may be is not declared: their functions check them


def by_function(found):
    """{what: [function.option,option ...]} of the options {(function, option): what}."""
    lines = {}
    for (function, option), what in sorted(found.items()):
        lines.setdefault(what, {}).setdefault(function, []).append(option)
    return {what: [f"{f}.{','.join(options)}" for f, options in by.items()] for what, by in lines.items()}


def sections(tree):
    """Every section of a configuration that names a function."""
    if not isinstance(tree, dict):
        return []
    return [s for part in tree.values() for s in sections(part)] + ([tree] if "_target_" in tree else [])


def refusal(function, option):
    """What an option must be, as a message says; None where its annotation declares nothing."""
    try:
        checked(function, {option: {"no": "value"}})
    except RequestError as error:
        return re.fullmatch(rf"{option} must be (.*)[,;] got .*", str(error))[1]


def declared():
    found = {}
    for file in sorted(CONF.glob("algo/*.yaml")):
        for section in sections(yaml.safe_load(file.read_text())):
            function = function_of(section.pop("_target_"), file.stem)
            name = function.__module__.rpartition(".")[2] if function.__name__ == "load" else function.__name__
            found |= {(name, option): refusal(function, option) for option in section}
    return found


def test_the_range_of_every_number_and_what_is_not_declared():
    found = declared()
    numbers = {k: what for k, what in found.items() if what and re.search(r"\b(number|integer)\b", what)}
    assert by_function(numbers) == {what: names.split() for what, names in yaml.safe_load(NUMBERS).items()}
    assert by_function({k: what for k, what in found.items() if what is None}) == {None: OTHERS.split()}
