"""PFLlib's local steps on tiny data, written anew from its published code, and what they lead to.

``python -m tests.methods.record_pfllib`` writes ``pfllib.safetensors``: data, orders of examples, first parameters,
and for each method the vectors after every round. PFLlib is on no package index, and none of its code is here: each
function says in plain loops over parameters what the file of PFLlib that it names does, and uses nothing of fedpace.

Two clients take part in all rounds, their sizes are multiples of the batch, and there are no normalisation layers: most
of what we do otherwise on purpose (docs/methods/personal.md) then makes no difference. Functions say where it would.
"""

from pathlib import Path

import torch
from safetensors.torch import save_file
from torch.nn import functional as F

FILE = Path(__file__).with_name("pfllib.safetensors")
SIZES, FEATURES, WIDTH, CLASSES = (48, 32), 5, 4, 3
LR, BATCH, EPOCHS, ROUNDS = 0.1, 8, 2, 3
MU, ALPHA, LAM, SHARE = 0.3, 0.6, 1.0, 0.5
BASE, HEAD = slice(0, 2), slice(2, 4)  # of a model's four parameters
CLIENTS = range(len(SIZES))
WEIGHTS = [size / sum(SIZES) for size in SIZES]


# What is given ------------------------------------------------------------------------------------------------------


def drawn():
    """Data of two clients that share one of three classes, orders, Gumbel noise and first parameters."""
    generator = torch.Generator().manual_seed(0)
    given = {"test": torch.randn(6, FEATURES, generator=generator)}
    for client, size in enumerate(SIZES):
        inputs = torch.randn(size, FEATURES, generator=generator) + 0.3 * client
        given |= {f"inputs.{client}": inputs, f"labels.{client}": (inputs[:, 0] + inputs[:, 1] > 0).long() + client}
        for turn in range(ROUNDS + 1):  # after the last round clients are measured
            orders = [torch.randperm(size, generator=generator) for _ in range(2 * EPOCHS + 1)]
            sample = int(SHARE * size)
            first = int(torch.randint(size - sample + 1, (), generator=generator))
            given |= {
                f"order.{client}.{turn}.head": orders[0],
                f"order.{client}.{turn}.train": torch.cat(orders[1:]),
                f"order.{client}.{turn}.ala": torch.arange(first, first + sample),
            }
            shape = (EPOCHS * size // BATCH, BATCH, 2, WIDTH)
            given[f"noise.{client}.{turn}"] = -torch.empty(shape).exponential_(generator=generator).log()
    shapes = {"start": [(WIDTH, FEATURES), (WIDTH,), (CLASSES, WIDTH), (CLASSES,)]}
    shapes["policy"] = [(2 * WIDTH, WIDTH), (2 * WIDTH,), (2 * WIDTH,), (2 * WIDTH,)]
    for name, parameters in shapes.items():
        for i, shape in enumerate(parameters):
            given[f"{name}.{i}"] = 0.5 * torch.randn(shape, generator=generator)
    return given


class World:
    """What is given, as the loops want it."""

    def __init__(self, given):
        self._given = given

    def model(self, name="start"):
        return leaves([self._given[f"{name}.{i}"] for i in range(4)])

    def data(self, client):
        return self._given[f"inputs.{client}"], self._given[f"labels.{client}"]

    def batches(self, client, turn, phase="train", size=BATCH, epochs=EPOCHS):
        inputs, labels = self.data(client)
        order = self._given[f"order.{client}.{turn}.{phase}"][: epochs * len(labels)]
        return [(inputs[rows], labels[rows]) for rows in order.split(size)]

    def noise(self, client, turn):
        return self._given[f"noise.{client}.{turn}"]

    @property
    def test(self):
        return self._given["test"]


# What all methods use -----------------------------------------------------------------------------------------------


def leaves(parameters):
    """Copies that gradients are taken of."""
    return [p.detach().clone().requires_grad_() for p in parameters]


def flat(parameters):
    return torch.cat([p.detach().flatten() for p in parameters])


def features(base, inputs):
    return torch.relu(inputs @ base[0].T + base[1])


def answers(head, seen):
    return seen @ head[0].T + head[1]


def scores(model, inputs):
    return answers(model[HEAD], features(model[BASE], inputs))


def loss_of(model, batch):
    return F.cross_entropy(scores(model, batch[0]), batch[1])


def descend(parameters, loss, rate=LR):
    """A step of plain SGD, and the gradients."""
    gradients = torch.autograd.grad(loss, parameters)
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.data -= rate * gradient
    return gradients


def weighted(models, weights=WEIGHTS):
    """servers/serverbase.py: zeros, to which each model is added by its share of the examples."""
    total = [torch.zeros_like(p) for p in models[0]]
    for model, weight in zip(models, weights, strict=True):
        for sum_, parameter in zip(total, model, strict=True):
            sum_ += weight * parameter.detach()
    return leaves(total)


def rounds(start, turn):
    """Every client's turn from the server's parameters, then their average; the server's after each round."""
    server, found = start, {}
    for number in range(ROUNDS):
        server = weighted([turn(client, number, leaves(server)) for client in CLIENTS])
        found[f"shared.{number}"] = flat(server)
    return server, found


# The methods --------------------------------------------------------------------------------------------------------


def fedavg(world):
    """clients/clientavg.py."""

    def turn(client, number, model):
        for batch in world.batches(client, number):
            descend(model, loss_of(model, batch))
        return model

    return rounds(world.model(), turn)[1]


def proximal(world):
    """clients/clientprox.py, optimizers/fedoptimizer.py: to each gradient μ times the way from the start."""

    def turn(client, number, model):
        start = leaves(model)
        for batch in world.batches(client, number):
            gradients = torch.autograd.grad(loss_of(model, batch), model)
            for here, there, gradient in zip(model, start, gradients, strict=True):
                here.data -= LR * (gradient + MU * (here.data - there.data))
        return model

    return rounds(world.model(), turn)[1]


def scaffold(world):
    """clients/clientscaffold.py and servers/serverscaffold.py: clients count alike."""
    server, found = world.model(), {}
    common = [torch.zeros_like(p) for p in server]
    controls = [[torch.zeros_like(p) for p in server] for _ in CLIENTS]
    for number in range(ROUNDS):
        new_server, new_common = leaves(server), [c.clone() for c in common]
        for client in CLIENTS:
            model, batches = leaves(server), world.batches(client, number)
            for batch in batches:
                gradients = torch.autograd.grad(loss_of(model, batch), model)
                for here, gradient, c, own in zip(model, gradients, common, controls[client], strict=True):
                    here.data -= LR * (gradient + c - own)
            for i, (x, y) in enumerate(zip(server, model, strict=True)):
                way = (x.data - y.data) / (len(batches) * LR)
                controls[client][i] = controls[client][i] - common[i] + way
                new_server[i].data += (y.data - x.data) / len(SIZES)
                new_common[i] += (way - common[i]) / len(SIZES)
        server, common = new_server, new_common
        found[f"shared.{number}"] = flat(server)
    return found | {f"control.{client}": flat(controls[client]) for client in CLIENTS} | {"common": flat(common)}


def per_fedavg(world):
    """clients/clientperavg.py: both halves of a double batch; servers/serverperavg.py: the whole pass twice."""

    def turn(client, number, model):
        for inputs, labels in world.batches(client, number, size=2 * BATCH, epochs=2 * EPOCHS):
            adapted = leaves(model)
            descend(adapted, loss_of(adapted, (inputs[:BATCH], labels[:BATCH])))
            gradients = torch.autograd.grad(loss_of(adapted, (inputs[BATCH:], labels[BATCH:])), adapted)
            for parameter, gradient in zip(model, gradients, strict=True):
                parameter.data -= LR * gradient
        return model

    server, found = rounds(world.model(), turn)
    for client in CLIENTS:
        adapted = leaves(server)
        descend(adapted, loss_of(adapted, world.batches(client, ROUNDS)[0]))
        found[f"scores.{client}"] = scores(adapted, world.test).detach()
    return found


def lg_fedavg(world):
    """clients/clientlg.py: the server's parameters are the head."""
    bases = [world.model()[BASE] for _ in CLIENTS]

    def turn(client, number, head):
        for batch in world.batches(client, number):
            descend([*bases[client], *head], loss_of([*bases[client], *head], batch))
        return head

    head, found = rounds(world.model()[HEAD], turn)
    for client, base in enumerate(bases):
        found[f"personal.{client}"] = flat(base)
        found[f"scores.{client}"] = scores([*base, *head], world.test).detach()
    return found


def apfl(world):
    """clients/clientapfl.py."""
    own, alphas = [world.model() for _ in CLIENTS], [ALPHA for _ in CLIENTS]

    def turn(client, number, model):
        v, alpha = own[client], alphas[client]
        for batch in world.batches(client, number):
            common, personal = descend(model, loss_of(model, batch)), descend(v, loss_of(v, batch))
            slope = 0.02 * alpha
            for here, there, mine, theirs in zip(v, model, personal, common, strict=True):
                slope += float(((here.data - there.data) * (alpha * mine + (1 - alpha) * theirs)).sum())
            alpha = min(max(alpha - LR * slope, 0.0), 1.0)
        for here, there in zip(v, model, strict=True):
            here.data = (1 - alpha) * there.data + alpha * here.data
        alphas[client] = alpha
        return model

    found = rounds(world.model(), turn)[1]
    for client in CLIENTS:
        found[f"v.{client}"], found[f"alpha.{client}"] = flat(own[client]), torch.tensor(alphas[client])
        found[f"scores.{client}"] = scores(own[client], world.test).detach()
    return found


def fedrod(world):
    """clients/clientrod.py: the personal head steps on what was seen before the step of base and generic head."""
    heads = [world.model()[HEAD] for _ in CLIENTS]

    def turn(client, number, model):
        counts = torch.zeros(CLASSES)
        for label in world.data(client)[1].tolist():
            counts[label] += 1
        for inputs, labels in world.batches(client, number):
            seen = features(model[BASE], inputs)
            generic = answers(model[HEAD], seen)
            descend(model, F.cross_entropy(generic + counts.log(), labels))
            both = generic.detach() + answers(heads[client], seen.detach())
            descend(heads[client], F.cross_entropy(both, labels))
        return model

    server, found = rounds(world.model(), turn)
    seen = features(server[BASE], world.test)
    for client, head in enumerate(heads):
        found[f"personal.{client}"] = flat(head)
        found[f"scores.{client}"] = (answers(server[HEAD], seen) + answers(head, seen)).detach()
    return found


def fedrep(world):
    """clients/clientrep.py: an epoch of the head, then the epochs of the base."""
    heads = [world.model()[HEAD] for _ in CLIENTS]

    def turn(client, number, base):
        for batch in world.batches(client, number, "head", epochs=1):
            descend(heads[client], loss_of([*base, *heads[client]], batch))
        for batch in world.batches(client, number):
            descend(base, loss_of([*base, *heads[client]], batch))
        return base

    base, found = rounds(world.model()[BASE], turn)
    for client, head in enumerate(heads):
        found[f"personal.{client}"] = flat(head)
        found[f"scores.{client}"] = scores([*base, *head], world.test).detach()
    return found


def divided(policy, seen, context, noise):
    """servers/servercp.py, ConditionalSelection: a linear layer, LayerNorm, ReLU, then a noisy softmax of pairs."""
    raw = (seen * context) @ policy[0].T + policy[1]
    centred = raw - raw.mean(1, keepdim=True)
    normed = centred / (centred.square().mean(1, keepdim=True) + 1e-5).sqrt() * policy[2] + policy[3]
    pairs = torch.relu(normed).view(len(seen), 2, WIDTH) + noise
    return (pairs.exp() / pairs.exp().sum(1, keepdim=True)).unbind(1)


def discrepancy(x, y):
    """clients/clientcp.py, MMD: the mean of K(x, x) + K(y, y) − 2K(x, y) over all pairs, K a sum of four Gaussians."""

    def kernel(a, b):
        squares = (a[:, None] - b[None]).square().sum(-1)
        return sum(torch.exp(-0.5 * squares / width) for width in (10, 15, 20, 50))

    return (kernel(x, x) + kernel(y, y) - 2 * kernel(x, y)).mean()


def fedcp(world):
    """clients/clientcp.py; the first context is that of the first head, as ours, instead of a random one.

    The server's parameters are policy, global head and base. PFLlib's answers are noisy, ours are not: none here.
    """
    heads = [world.model()[HEAD] for _ in CLIENTS]

    def turn(client, number, shared):
        policy, common, base, own = shared[:4], shared[4:6], shared[6:], heads[client]
        received, context = leaves(base), own[0].detach().sum(0, keepdim=True)
        context = context / context.norm()
        for (inputs, labels), noise in zip(world.batches(client, number), world.noise(client, number), strict=True):
            seen = features(base, inputs)
            personal, general = divided(policy, seen, context, noise)
            loss = F.cross_entropy(answers(own, seen * personal) + answers(common, seen * general), labels)
            loss = loss + LAM * discrepancy(seen, features(received, inputs).detach())
            descend([*base, *own, *policy], loss)
        for general, personal in zip(common, own, strict=True):
            general.data = 0.5 * personal.data + 0.5 * general.data
        return shared

    found = rounds([*world.model("policy"), *world.model()[HEAD], *world.model()[BASE]], turn)[1]
    return found | {f"personal.{client}": flat(head) for client, head in enumerate(heads)}


def fedala(world):
    """clients/clientala.py and utils/ALA.py. The last two tensors are mixed; examples for W are in PFLlib's order."""
    models, weights = [world.model() for _ in CLIENTS], [None for _ in CLIENTS]

    def mix(client, number, server):
        local = models[client]
        if float((server[0].data - local[0].data).sum()) == 0:
            return
        first, here = weights[client] is None, leaves(server)
        if first:
            weights[client] = [torch.ones_like(p) for p in local[HEAD]]
        top = list(zip(here[HEAD], local[HEAD], server[HEAD], weights[client], strict=True))

        def place():
            for t, mine, theirs, weight in top:
                t.data = mine.data + (theirs.data - mine.data) * weight

        place()
        losses = []
        while True:
            for batch in world.batches(client, number, "ala"):
                loss = loss_of(here, batch)
                for (_, mine, theirs, weight), gradient in zip(top, torch.autograd.grad(loss, here[HEAD]), strict=True):
                    weight -= gradient * (theirs.data - mine.data)
                    weight.clamp_(0, 1)
                place()
            losses.append(loss.item())
            if not first or (len(losses) > 10 and torch.tensor(losses[-10:]).std(correction=0) < 0.1):
                break
        models[client] = here

    def turn(client, number, server):
        mix(client, number, server)
        for batch in world.batches(client, number):
            descend(models[client], loss_of(models[client], batch))
        return models[client]

    server, found = rounds(world.model(), turn)
    for client in CLIENTS:
        found |= {f"local.{client}": flat(models[client]), f"W.{client}": flat(weights[client])}
    for client in CLIENTS:
        mix(client, ROUNDS, server)  # as it is sent, before clients are measured
        found[f"scores.{client}"] = scores(models[client], world.test).detach()
    return found


def prototypes_of(base, data):
    """The mean features of each class that a client has, by label."""
    seen, labels = features(base, data[0]).detach(), data[1]
    return {int(label): seen[labels == label].mean(0) for label in labels.unique()}


def statistics(base, data):
    """clients/clientpac.py, statistics_extraction: V and h."""
    seen, labels = features(base, data[0]).detach(), data[1]
    variance, moments = 0.0, torch.zeros(CLASSES, WIDTH)
    for label, mean in prototypes_of(base, data).items():
        own = seen[labels == label]
        share = len(own) / len(labels)
        moments[label] = share * mean
        variance += share * float((own.T @ own / len(own)).trace()) - share**2 * float(mean.square().sum())
    return variance / len(labels), moments


def head_shares(variances, moments, own):
    """servers/serverpac.py, solve_quadratic, for two clients: the least aᵀPa with a ≥ 0 and a₀ + a₁ = 1."""
    away = [(moments[own] - other).flatten() for other in moments]
    form = torch.tensor([[float(a @ b) for b in away] for a in away]) + torch.tensor(variances).diag()
    first = (form[1, 1] - form[0, 1]) / (form[0, 0] + form[1, 1] - 2 * form[0, 1])
    shares = [min(max(float(first), 0.0), 1.0), min(max(1 - float(first), 0.0), 1.0)]
    assert min(shares) > 1e-3  # or else PFLlib would set it to zero
    return shares


def fedpac(world):
    """clients/clientpac.py and servers/serverpac.py; heads keep the order of their clients, which PFLlib's may lose."""
    base, heads, common, found = world.model()[BASE], [world.model()[HEAD] for _ in CLIENTS], {}, {}
    for number in range(ROUNDS):
        looked = [statistics(base, world.data(client)) for client in CLIENTS]
        bases = []
        for client, head in enumerate(heads):
            here = leaves(base)
            for batch in world.batches(client, number, "head", epochs=1):
                descend(head, loss_of([*here, *head], batch))
            for inputs, labels in world.batches(client, number):
                seen = features(here, inputs)
                loss = F.cross_entropy(answers(head, seen), labels)
                if common:
                    wanted = torch.stack([common[label] for label in labels.tolist()])
                    loss = loss + LAM * F.mse_loss(wanted, seen)
                descend(here, loss)
            bases.append(here)
        local = [prototypes_of(here, world.data(client)) for client, here in enumerate(bases)]
        common = {label: torch.stack([own[label] for own in local if label in own]).mean(0) for label in range(CLASSES)}
        base = weighted(bases)
        variances, moments = ([pair[i] for pair in looked] for i in range(2))
        found |= {f"personal.{client}": flat(head) for client, head in enumerate(heads)}
        heads = [weighted(heads, head_shares(variances, moments, client)) for client in CLIENTS]
        found[f"shared.{number}"] = flat(base)
    found["prototypes"] = torch.stack([common[label] for label in range(CLASSES)])
    for client, head in enumerate(heads):
        found[f"head.{client}"] = flat(head)
        found[f"scores.{client}"] = scores([*base, *head], world.test).detach()
    return found


METHODS = [fedavg, proximal, scaffold, per_fedavg, lg_fedavg, apfl, fedrod, fedrep, fedcp, fedala, fedpac]


def recorded():
    """All that is given and all that is found, by names like ``fedrep.personal.0``."""
    given = drawn()
    found = {f"{method.__name__}.{name}": tensor for method in METHODS for name, tensor in method(World(given)).items()}
    small = {name: tensor.to(torch.uint8) for name, tensor in given.items() if tensor.dtype == torch.int64}
    return {name: tensor.contiguous() for name, tensor in (given | small | found).items()}


if __name__ == "__main__":
    save_file(recorded(), FILE)
