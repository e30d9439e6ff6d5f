"""What the functions of methods, scenarios, data and models declare of their options: every range and every word."""

import re

import yaml
from tools import CONF

from fedbench.config.targets import function_of
from fedbench.core.errors import RequestError
from fedbench.core.validation import checked
from fedbench.scenarios.compression import Codec

GROUPS = ("algo", "attack", "availability", "compression", "data", "defence", "model", "privacy")
# what a message says that an option must be: the options of every function
DECLARED = """
a number: clients.power consecutive_classes.mu fafed.ext fedheal.threshold fedsps.l_star term.t
a number > 0: Attack.loss_scale Defence.nu Privacy.clip_start adafed.server_lr adafedadam.eps,server_lr
    bernoulli_dirichlet.alpha clients.a,b,concentration cyclic.period dirichlet.alpha dirichlet_min_share.alpha
    dirichlet_mixture.alpha dirichlet_sample.alpha fafed.rho fedadagrad.server_lr,tau fedadam.server_lr,tau
    fedams.server_lr,tau fedavg.server_lr fedavgm.server_lr fedcada.eps,server_lr fedcm.server_lr feddyn.alpha
    fedfv.server_lr fedmdfg.server_lr fedmgda.server_lr fedprox.server_lr fedsam.server_lr fedspeed.prox
    fedsps.c,gamma_b fedyogi.server_lr,tau local_adam.eps mimelite.eps,server_lr mofedsam.server_lr
    pfedme.beta,lam,personal_lr propfair.M,eps,server_lr scaffold.server_lr stragglers.deadline term.server_lr
a number > 0 and < 1: Privacy.quantile fedfa.c
a number > 0 and <= 1: Codec.ratio bernoulli_dirichlet.p clients.mean cyclic.mean drfa.decay shakespeare.split
a number >= 0: Privacy.clip_lr adafed.gamma adafedadam.alpha afl.lr_lambda consecutive_classes.sigma
    dirichlet_min_share.min_share dirichlet_mixture.size_sigma ditto.lam drfa.gamma fedcorr.beta fedexp.eps
    fedmdfg.armijo fedprox.mu fedsam.rho fedspeed.rho lognormal_sizes.sigma mofedsam.rho naive_adaptive.eps
    power_law_sizes.exponent qfedavg.q stragglers.jitter,sigma two_classes_power_law.sigma
a number >= 0 and < 1: LSTM.dropout adafedadam.beta1,beta2 bernoulli.p clients.p drfa.floor fafed.beta
    fedadagrad.beta1 fedadam.beta1,beta2 fedams.beta1,beta2 fedavgm.beta fedcada.beta1,beta2 fedfa.gamma_c,gamma_s
    fednova.server_momentum fedyogi.beta1,beta2 gifair.share local_adam.beta1,beta2 mimelite.beta1,beta2
    naive_adaptive.beta
a number >= 0 and <= 0.5: cyclic.amplitude
a number >= 0 and <= 1: apfl.alpha cyclic.spread fafed.alpha fedcm.alpha fedcorr.confidence_thres,relabel_ratio
    fedfa.alpha,beta fedfv.alpha fedheal.beta fedmgda.eps fedspeed.alpha mofedsam.alpha similarity.similarity
    stem.alpha stragglers.share
a number >= 0 and <= 5: synthetic.fedprox.size_sigma
a number >= 0 and <= 90: fedmdfg.theta
an integer >= 0: consecutive_classes.more fedfv.tau fedmdfg.s synthetic.leaf.generator_seed
an integer >= 1: Codec.levels,rank ConvNet.hidden,kernel Defence.bucket,iterations,steps LSTM.hidden,layers
    LeNet.kernel bernoulli_dirichlet.min_size clothing1m.size consecutive_classes.classes_per_client,least
    cyclic.block,groups dirichlet.min_size dirichlet_mixture.min_size dirichlet_sample.examples,min_size
    fedcorr.neighbours fedfa.b k_classes.classes_per_client lognormal_sizes.min_size pfedme.inner
    power_law_sizes.min_size sent140.length,min_tweets shakespeare.min_samples shards.shards_per_client
    synthetic.fedprox.clients synthetic.leaf.clients two_classes_power_law.least wikitext2.clients,columns,length
auto or a number: Attack.zeta
auto or a number >= 0: Attack.scale
auto or an integer >= 0: Defence.f
frozen, trained or an integer >= 1: LSTM.embedding
median or a number > 0: Defence.radius
null or a number > 0: ditto.personal_lr fafed.decay_w qfedavg.L stem.decay_w
null or a number > 0 and < 1: Privacy.delta
null or a number > 0 and <= 1: fedcorr.frac2
null or a number > 0 and <= 1000: Privacy.epsilon
null or a number >= 0: Privacy.count_noise fedadagrad.v0 fedadam.v0 fedfa.server_lr fedyogi.v0
    synthetic.fedprox.alpha,beta
null or a number >= 0 and <= 1: clients.floor
null or a number >= 0 and <= 1e+06: Privacy.noise
null or an integer >= 0: Attack.source,target fedcorr.iterations,rounds1
null or an integer >= 1: Codec.bucket Defence.m clothing1m.images ditto.personal_epochs huggingface.size
    imagefolder.size leaf_json.classes npz.classes shakespeare.clients synthetic.fedprox.most wikitext2.first
one of -1, 1: fedfa.server_sign
one of 1, 2: fedams.option scaffold.option
one of 1, 2, 4, 8, 16, 32, 64: resnet.groups
one of 18, 50: resnet.depth
one of 3x3, 7x7: resnet.stem
one of after, before: fedfa.acc_at
one of auto, leaf, nist: femnist.form
one of auto, none, ef, ef21: Codec.feedback
one of before, after: adafed.loss_at
one of before, last: gifair.rank_at
one of beta, size, labels: clients.by
one of byclass, balanced, letters: emnist.split
one of channel, pixel, none: fmnist.standardise mnist.standardise
one of code, paper: fedfv.history
one of cohort, all: fedspeed.server
one of data, uniform: dirichlet_mixture.prior
one of delta, gradient: fedmdfg.source
one of drop, partial: stragglers.late
one of fine, coarse: cifar100.labels
one of fixed, search: fedmdfg.step
one of groups, sine: cyclic.pattern
one of huber, scaled: propfair.tail
one of l2, max: Codec.norm
one of lambda, uniform: drfa.snapshot_weights
one of mean, median, trimmed_mean, krum, multi_krum, geometric_median, centered_clipping, bulyan, norm_clip:
    Defence.rule
one of momentum, adam: mimelite.base
one of noisy, clean: clothing1m.train
one of none, bucketing, nnm, both: Defence.before
one of none, flip, next, pair, random: Attack.data
one of none, mean: adafed.normalize_loss
one of none, sign_flip, gaussian, alie, ipm, scale: Attack.message
one of none, top_k, random_k, qsgd, sign, power: Codec.kind
one of one, certainty, certainty_after_6: adafedadam.step_scale
one of paper, code, stateless: fafed.variant
one of persist, reset: local_adam.state
one of plain, adaptive, none: fafed.init_step
one of plain, none: stem.init_step
one of plus, square, sin, sqrt, identity, adam: fedcada.adjust
one of poisson, fixed: Privacy.sampling
one of random, id, label: cyclic.assign
one of ratio, loss: adafedadam.inverse_rate
one of renormalise, zero: clients.weights stragglers.weights
one of renormalise, zero, inverse: bernoulli.weights
one of round, step: fedcada.counter
one of server, local: gifair.form
one of server, mean: feddyn.deploy
one of size, uniform: apfl.weights ditto.weights fedadagrad.weights fedadam.weights fedams.weights fedavg.weights
    fedavgm.weights fedcada.weights fedcm.weights fedexp.weights fedmgda.prior fednova.weights fedprox.weights
    fedsam.weights fedyogi.weights gifair.weights local_adam.weights mimelite.weights mofedsam.weights pfedme.weights
    propfair.weights term.weights
one of speed, share: stragglers.kind
one of test, valid, null: wikitext2.held_out
one of train, out: cinic10.valid
one of uniform, size: drfa.init feddyn.weights
one of vector, tensor: Codec.per
one of warm, reset: pfedme.start
one of whole, tensor: fedheal.distance
start, end, random or an integer >= 0: drfa.snapshot
true or false: Attack.add Codec.warm LSTM.every afl.average,partial apfl.adaptive consecutive_classes.as_published
    dirichlet.balance fedadam.bias_correction,eps_inside fedams.bias_correction fedavgm.nesterov fedcorr.mixup
    fedexp.average,eps_per_client fedmdfg.force fedmgda.normalize femnist.pool mnist.pool sent140.lowercase
"""
OTHERS = """
Attack.clients,ids ConvNet.channels LSTM.dense LeNet.channels,hidden MLP.hidden Privacy.clip emnist.classes
fedcorr.server fmnist.classes half_classes.classes huggingface.mean,owner,root,std,test,train,x,y
imagefolder.mean,root,std indices.file leaf_json.shape,test,train npz.file,mean,std sent140.glove
shakespeare.json_test,json_train
"""  # what these may be is not declared: their functions check them


def by_function(found):
    """{what: [function.option,option ...]} of the options {(function, option): what}."""
    lines = {}
    for (function, option), what in sorted(found.items(), key=lambda item: (str(item[1]), item[0])):
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


def read(file):
    """The keys of a file, with those of the files of its group that it starts from."""
    own = yaml.safe_load(file.read_text()) or {}
    first = [name for name in own.pop("defaults", ()) if isinstance(name, str) and name != "_self_"]
    return {key: value for name in first for key, value in read(file.with_name(f"{name}.yaml")).items()} | own


def declared():
    found = {}
    files = [file for group in GROUPS for file in CONF.glob(f"{group}/**/*.yaml")]
    for file in files:
        for section in sections(read(file)):
            function = function_of(section.pop("_target_"), file.stem)
            name = function.__name__
            if ".sources." in function.__module__:  # where most are called load
                name = f"{function.__module__.rpartition('.')[2]}.{name}".removesuffix(".load")
            if name == "compression":  # either side has the options of a codec
                function, name, section = Codec, "Codec", section["up"]
            found |= {(name, option): refusal(function, option) for option in section}
    return found


def test_what_every_option_may_be():
    found = by_function(declared())
    assert found.pop(None) == OTHERS.split()
    assert found == {what: names.split() for what, names in yaml.safe_load(DECLARED).items()}
