"""Fed-GGA: look around θ for a point where the clients' gradients agree better."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Annotated, Literal

import torch
from pydantic import Field, SerializeAsAny, model_validator
from torch import Tensor

from fedpace.core import Layout, Perturbation, SearchReport, Settings, Update, by_name, derive
from fedpace.server.annealing.acceptance import Acceptance, Candidate, Margin, acceptances
from fedpace.server.annealing.score import InterClient, Score, pairwise, scores
from fedpace.server.annealing.walk import Best, SeedPath, Steps, Walk, walks

Search = Generator[Sequence[SeedPath], Iterator[list[Update]], tuple[Tensor, SearchReport | None]]
"""A search under way: it yields paths and is sent, for each of them in order, the clients' gradients at its point.

It ends with the point to go on from, and what was found."""


class StaleSum(Settings):
    """Line 17 of Algorithm 1, literally: θ′ − ``lr`` · Σ gᵢ with the gradients that were taken at the old θ."""

    lr: float = Field(0.01, gt=0)


class Annealing(Settings):
    """``k`` random perturbations of θ, each judged on one batch per client (FedPACE 2.1, Algorithm 1).

    Composed of a perturbation (``rho``, scaling), a ``score``, an ``accept`` rule and a ``walk``; see their classes.
    ``step`` scales the accepted perturbation (the authors' code puts β there). ``after``: clients ``train`` from the
    point that was found, the round ends with ``nothing`` (a defect in the authors' sources), or :class:`StaleSum`.
    ``sketch``: clients send so many numbers instead of each gradient; cosines are then off by about 1/√``sketch``.
    """

    k: int = Field(8, ge=0)
    perturbation: Perturbation = Perturbation()
    score: SerializeAsAny[Annotated[Score, by_name(scores, "inter_client")]] = InterClient()
    accept: SerializeAsAny[Annotated[Acceptance, by_name(acceptances, "margin")]] = Margin()
    walk: SerializeAsAny[Annotated[Walk, by_name(walks, "best")]] = Best()
    step: float = Field(1.0, gt=0)
    after: Literal["train", "nothing"] | StaleSum = "train"
    batch: int = Field(32, ge=1)
    sketch: int | None = Field(None, ge=2)

    @model_validator(mode="after")
    def _has_what_it_adds(self) -> Annealing:
        if self.sketch is not None and isinstance(self.after, StaleSum):
            raise ValueError(f"after = {{lr = ...}} adds whole gradients: expected no sketch, found {self.sketch}")
        return self

    def search(self, vector: Tensor, layout: Layout, seed: int) -> Search:
        """Look around ``vector``, which is itself the point to go on from if nothing is accepted.

        Fewer than two answering clients have no pairs to compare: the search is skipped and there is no report.
        """
        if self.k == 0:
            return vector, None
        (reference_answers,) = yield [()]
        clients = {update.client for update in reference_answers}
        if len(clients) < 2:
            return vector, None
        gradients = _rows(reference_answers)
        reference = Candidate((), self.score.to_beat(gradients), _mean_loss(reference_answers))
        tried: list[Candidate] = []

        def judged(paths: Sequence[SeedPath], answers: Iterator[list[Update]]) -> Iterator[Candidate]:
            for path, found in zip(paths, answers, strict=True):
                same = [update for update in found if update.client in clients]
                complete = len(same) == len(clients)  # a client that failed here would be compared with nobody
                score = self.score.candidate(_rows(same), gradients) if complete else float("nan")
                tried.append(Candidate(path, score, _mean_loss(same) if complete else float("nan")))
                yield tried[-1]

        seeds = [derive(seed, "perturbation", k) for k in range(self.k)]
        taken = yield from _walked(self.walk.search(seeds, reference, self.accept), judged)
        found = vector
        if taken is not None:
            found = self.perturbation.follow(vector, layout, taken.path)
            found = found if self.step == 1.0 else torch.lerp(vector, found, self.step)
        if isinstance(self.after, StaleSum):
            found = found + self.after.lr * gradients.sum(dim=0)  # rows are minus the gradients
        return found, _report(reference, taken, tried, gradients)


Judge = Callable[[Sequence[SeedPath], Iterator[list[Update]]], Iterator[Candidate]]


def _walked(walk: Steps, judge: Judge) -> Generator[Sequence[SeedPath], Iterator[list[Update]], Candidate | None]:
    """Pass a walk's paths on, and what was found there back to it as candidates."""
    try:
        paths = next(walk)
        while True:
            paths = walk.send(judge(paths, (yield paths)))
    except StopIteration as end:
        taken: Candidate | None = end.value
        return taken


def _report(
    reference: Candidate, taken: Candidate | None, tried: Sequence[Candidate], gradients: Tensor
) -> SearchReport:
    """Sum up a search; where nothing was accepted, the best candidate is the one with the highest score."""
    best = taken or max((c for c in tried if c.finite), key=lambda c: c.score, default=reference)
    similarities = pairwise(gradients)
    return SearchReport(
        accepted=taken is not None,
        candidates=len(tried),
        sim0=reference.score,
        sim_best=best.score,
        gain=taken.score - reference.score if taken else 0.0,
        loss0=reference.loss,
        loss_best=best.loss,
        probe_mean=float(similarities.mean()),
        probe_min=float(similarities.min()),
    )


def _rows(updates: Sequence[Update]) -> Tensor:
    return torch.stack([update.vector for update in updates if update.vector is not None])


def _mean_loss(updates: Sequence[Update]) -> float:
    return sum(update.metrics.get("loss", float("nan")) for update in updates) / len(updates)
