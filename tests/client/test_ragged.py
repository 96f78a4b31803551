"""Texts of different length in one batch: what pads them does not count."""

import numpy as np
import pytest
import torch
from torch import nn

from fedpace.client import Context
from fedpace.data import load
from fedpace.methods import LocalSGD
from fedpace.tasks import Classification, NextToken, Regression

from .helpers import Bench


def model(tokens):
    torch.manual_seed(0)
    return nn.Sequential(nn.Embedding(tokens, 4), nn.Linear(4, tokens))


def test_batches_pad_targets_as_the_task_says():
    shard = load(["hello world", "good bye"], length=6).partition("iid", clients=1).clients[0]
    bench = Bench(model(shard.pool.outputs))
    context = Context(bench.model, bench.buffers, 0, 7, task=NextToken())
    (inputs, targets), *_ = LocalSGD(epochs=1, batch=8).batches(shard, context)
    lengths = shard.pool.inputs.lengths[shard.indices]
    assert inputs.shape == targets.shape == (len(shard), lengths.max())
    assert sorted((targets != -100).sum(1).tolist()) == sorted(lengths.tolist())
    assert (inputs[targets == -100] == 0).all()
    assert (targets[targets != -100] > 0).all()


def test_padding_changes_no_training():
    shard = load(["hello world", "good bye"], length=6).partition("iid", clients=1).clients[0]
    bench = Bench(model(shard.pool.outputs))
    context = Context(bench.model, bench.buffers, 0, 7, task=NextToken())
    inputs, targets = shard.batch(slice(None), padding=NextToken.padding)
    rows = [
        (row[None, wanted != -100], wanted[None, wanted != -100]) for row, wanted in zip(inputs, targets, strict=True)
    ]
    counts = np.array([wanted.numel() for _, wanted in rows])
    with torch.no_grad():
        whole = float(context.task.loss(bench.module(inputs), targets))
        losses = np.array([float(context.task.loss(bench.module(row), wanted)) for row, wanted in rows])
    assert whole == pytest.approx((losses * counts).sum() / counts.sum())


def test_every_task_says_how_targets_are_padded():
    assert [task.padding for task in (Classification(), Regression(), NextToken())] == [0, 0, -100]
