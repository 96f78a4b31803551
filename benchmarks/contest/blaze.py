"""BlazeFL's FedAvg. The option says how clients train: ``serial``, ``threads`` or ``processes``."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import torch
from benchmarks.contest.gate import Gate
from benchmarks.contest.setups import EVALUATION_BATCH, Job
from blazefl.contrib import (
    FedAvgBaseClientTrainer,
    FedAvgBaseServerHandler,
    FedAvgPartitionType,
    FedAvgProcessPoolClientTrainer,
    FedAvgThreadPoolClientTrainer,
)
from blazefl.core import IPCMode, ModelSelector, PartitionedDataset
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

ENDLESS = 10**6


@dataclass
class Selector(ModelSelector[str]):
    """Copies of the one module."""

    job: Job

    def select_model(self, model_name: str) -> nn.Module:
        """A copy costs less than new weights."""
        return deepcopy(prototype(self.job))


@lru_cache(maxsize=1)
def prototype(job: Job) -> nn.Module:
    """The module, made once."""
    return job.set_up.module()


@dataclass
class Clients(PartitionedDataset[FedAvgPartitionType]):
    """Slices of the tensors, in loaders as BlazeFL's examples have them."""

    job: Job

    def get_dataset(self, type_: FedAvgPartitionType, cid: int | None) -> Dataset:
        """A client's examples, or the test set."""
        where = self.job.test if cid is None else self.job.of_client(cid)
        return TensorDataset(*(whole[where] for whole in self.job.tensors()))

    def set_dataset(self, type_: FedAvgPartitionType, cid: int | None, dataset: Dataset) -> None:
        """Nothing of it changed."""

    def get_dataloader(
        self, type_: FedAvgPartitionType, cid: int | None, batch_size: int | None, generator: torch.Generator | None
    ) -> DataLoader:
        """Shuffled batches."""
        return DataLoader(self.get_dataset(type_, cid), batch_size=batch_size, shuffle=True, generator=generator)


@dataclass
class Settings:
    """What all of BlazeFL's trainers take."""

    job: Job
    keywords: dict[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        set_up = self.job.set_up
        self.keywords = {
            "model_selector": Selector(self.job),
            "model_name": set_up.name,
            "dataset": Clients(self.job),
            "device": "cpu",
            "num_clients": set_up.clients,
            "seed": 0,
        }

    def handler(self) -> FedAvgBaseServerHandler:
        """The server."""
        ratio = (self.job.set_up.cohort + 0.5) / self.job.set_up.clients  # rounded down by BlazeFL
        return FedAvgBaseServerHandler(
            **self.keywords, global_round=ENDLESS, sample_ratio=min(ratio, 1.0), batch_size=EVALUATION_BATCH
        )

    def trainer(self) -> Any:
        """The clients."""
        set_up = self.job.set_up
        settings = {**self.keywords, "epochs": 1, "batch_size": set_up.batch, "lr": set_up.learning_rate}
        if self.job.option == "serial":
            return FedAvgBaseClientTrainer(**settings)
        settings["num_parallels"] = self.job.workers
        if self.job.option == "threads":
            return FedAvgThreadPoolClientTrainer(**settings)
        place = Path(mkdtemp(dir=self.job.folder))
        return FedAvgProcessPoolClientTrainer(
            **settings, share_dir=place / "share", state_dir=place / "states", ipc_mode=IPCMode.SHARED_MEMORY
        )


def run(job: Job, gate: Gate) -> None:
    """The loop of BlazeFL's examples."""
    settings = Settings(job)
    handler, trainer = settings.handler(), settings.trainer()
    while True:
        gate()
        trainer.local_process(handler.downlink_package(), handler.sample_clients())
        for package in trainer.uplink_package():
            handler.load(package)
        if job.set_up.evaluated:
            handler.get_summary()
