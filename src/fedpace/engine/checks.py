"""Whether clients, their data and the schedule go together, before a round is run."""

from __future__ import annotations

import numpy as np
from torch import nn

from fedpace.core import ConfigError, DataError, Device, Layout, devices
from fedpace.data import Federation
from fedpace.engine.attackers import Attackers
from fedpace.engine.cohort import Cohort
from fedpace.engine.speeds import Speeds
from fedpace.methods import Method, methods
from fedpace.server import Guard, Privacy, Schedule, Secure
from fedpace.tasks import Task
from fedpace.wire import Wire


def check_personal(local: Method, schedule: Schedule, federation: Federation, layout: Layout) -> None:
    """Personal models need tests of their own, and are not what gradients and searches are about."""
    if local.personal and federation.client_tests is None:
        raise ConfigError(
            f"'{local.registered_name()}' gives each client a model of its own, to be measured on its own test "
            "examples: expected data.partition.test_share above 0, found 0"
        )
    for stage in schedule.all:
        whole = stage.search is not None or any(exchange.sends == "gradient" for exchange in stage.exchanges)
        if whole and layout.personal:
            raise ConfigError(
                f"stage '{stage.name}' asks for gradients of the whole model, but with "
                f"'{local.registered_name()}' {', '.join(sorted(layout.personal))} never leave a client"
            )


def check_task(local: Method, task: Task) -> None:
    """Refuse a task that a method cannot learn."""
    reason = local.unfit_for(task)
    if reason is not None:
        name = local.registered_name()
        raise ConfigError(f"'{name}' cannot learn the task '{task.registered_name()}': {reason}; choose another method")


def check_private_steps(local: Method, schedule: Schedule, module: nn.Module) -> None:
    """Refuse steps that tell more of an example than its clipped gradient."""
    if local.private is None:
        return
    if not local.by_examples:
        able = ", ".join(name for name in methods.names() if methods.get(name).by_examples)
        raise ConfigError(
            f"local.private: '{local.registered_name()}' uses examples for more than the gradients of its steps; "
            f"methods that work: {able}"
        )
    if local.precision != "float32":
        raise ConfigError(f"local.private: expected precision = 'float32', found '{local.precision}'")
    if any(isinstance(part, nn.modules.batchnorm._BatchNorm) for part in module.modules()):
        raise ConfigError("local.private: BatchNorm mixes the examples of a batch; expected a model with another norm")
    for stage in schedule.all:
        if stage.search is not None or any(exchange.sends == "gradient" for exchange in stage.exchanges):
            raise ConfigError(
                f"local.private: stage '{stage.name}' asks clients for gradients, which have no noise; expected updates"
            )


def check_device(local: Method, device: Device) -> None:
    """Refuse a device that is not here, and a precision that it does not have."""
    devices.autocast(devices.choose(device), local.precision)


def check_classes(local: Method, federation: Federation) -> list[str]:
    """Refuse data of one class; a warning if that is all that some clients with a model of their own have."""
    if not federation.classes:
        return []
    held, number = np.zeros(len(federation.classes), bool), 0
    for counts in federation.counted():
        has = counts > 0
        held |= has.any(axis=0)
        number += int(np.count_nonzero(has.sum(axis=1) == 1))
    classes = [name for name, found in zip(federation.classes, held, strict=True) if found]
    if len(classes) == 1:
        raise DataError(f"{federation.name}: expected two classes or more, found only '{classes[0]}'")
    if not number or not local.personal:
        return []
    whom = f"{number} of {len(federation)} clients train"
    return [f"{whom} on one class only: to answer it always is all that their models can learn"]


def check_borne(schedule: Schedule, population: int, attackers: Attackers | None) -> None:
    """Refuse a robust rule where most clients lie: it would take the honest ones for the liars."""
    liars = 0 if attackers is None else len(attackers.clients)
    if 2 * liars <= population:
        return
    for rule in (exchange.rule for stage in schedule.all for exchange in stage.exchanges):
        if rule.robust and rule.bears(population) < liars:
            raise ConfigError(
                f"attackers: {liars} of {population} clients lie, more than are honest, and rule "
                f"'{rule.registered_name()}' bears at most {rule.bears(population)}"
            )


def check_trusted(schedule: Schedule, population: int, in_a_round: int, attackers: Attackers | None) -> list[str]:
    """Refuse a rule that trusts nobody, or an attacker; a warning if its client is not in every round."""
    warnings = []
    for stage in schedule.all:
        for rule in (exchange.rule for exchange in stage.exchanges if exchange.rule.trusted is not None):
            trusts = f"stage '{stage.name}': rule '{rule.registered_name()}' trusts client {rule.trusted}"
            if rule.trusted not in range(population):
                raise ConfigError(f"{trusts}: expected one from 0 to {population - 1}")
            if attackers is not None and rule.trusted in attackers.clients:
                honest = next(client for client in range(population) if client not in attackers.clients)
                raise ConfigError(f"{trusts}, who is an attacker: expected an honest one, such as {honest}")
            if in_a_round < population:
                warnings.append(f"{trusts}: rounds without that client take no step")
    return warnings


def check_wire(
    wire: Wire, schedule: Schedule, privacy: Privacy | None, secure: Secure | None, *, everybody: bool
) -> None:
    """Refuse a format that rounds where it saves nothing, or where more is read from a vector than it says.

    ``everybody`` says whether all clients take part in every round.
    """
    name = wire.registered_name()
    if secure is not None and not wire.lossless:
        raise ConfigError(
            "secure: clients add up whole numbers of 8 bytes, to which they round by themselves; expected wire = "
            f"'float32', found '{name}'"
        )
    if privacy is not None and privacy.sampling == "fixed" and wire.keeps_residual and not everybody:
        raise ConfigError(
            f"privacy: with wire = '{name}' a client sends what it lost in earlier rounds, and that fixed cohorts are "
            "drawn anew no longer hides in which; expected sampling = 'poisson', or residual = 'lost' with this wire"
        )
    for stage in schedule.all:
        if any(exchange.counts for exchange in stage.exchanges) and not wire.tells_zero:
            raise ConfigError(
                f"stage '{stage.name}' counts conflict where a client moved, and wire = '{name}' does not tell where "
                "it did not; expected 'int8', 'bf16' or 'float32'"
            )


def check_speeds(speeds: Speeds | None, schedule: Schedule) -> None:
    """Refuse to measure the time of what has no duration."""
    for stage in schedule.all:
        if speeds is not None and stage.search is not None:
            raise ConfigError(
                f"speeds: turns of training have a duration, the probes of stage '{stage.name}' have none; expected no "
                "search, or no speeds"
            )


def check_asynchronous(
    speeds: Speeds | None, cohort: Cohort, schedule: Schedule, guard: Guard, privacy: Privacy | None
) -> None:
    """Refuse what is about clients that begin together, where none waits for the others."""
    if speeds is None:
        raise ConfigError(
            "asynchronous: who arrives when follows from speeds; expected speeds = 'lognormal' or another, found none"
        )
    if cohort != Cohort():
        raise ConfigError("asynchronous: its concurrency says how many clients take part; expected no cohort beside it")
    if privacy is not None:
        raise ConfigError(
            "asynchronous: privacy is accounted for clients that a round draws, not for those that arrive"
        )
    if guard.max_share is not None:
        raise ConfigError(
            "asynchronous: staleness changes weights after guard.max_share; expected max_examples instead"
        )
    for stage in schedule.all:
        if stage.search is not None:
            raise ConfigError(f"asynchronous: stage '{stage.name}' searches where clients are at one θ; expected none")
        if len(stage.exchanges) > 1:
            raise ConfigError(f"asynchronous: a client arrives once; stage '{stage.name}' asks it twice in a round")
        if any(exchange.freezes is not None for exchange in stage.exchanges):
            raise ConfigError(
                f"asynchronous: stage '{stage.name}' freezes coordinates that clients under way still train"
            )
    sent = {stage.name: stage.exchanges[0].sends for stage in schedule.all}
    if len(set(sent.values())) > 1:
        said = ", ".join(f"'{name}' {kind}s" for name, kind in sent.items())
        raise ConfigError(f"asynchronous: a buffer holds updates or gradients, not both; stages ask for {said}")
