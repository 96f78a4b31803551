"""Model, data and training: nothing here knows of federated learning."""

from functools import cache

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset


def build_model() -> nn.Module:
    """A small network with BatchNorm."""
    return nn.Sequential(nn.Linear(64, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 10))


@cache
def load_client(client: int, clients: int) -> tuple[TensorDataset, TensorDataset]:
    """Training and test examples of one client: most of its digits are of two classes."""
    images, labels = load_digits(return_X_y=True)
    random = np.random.default_rng(0)
    order = random.permutation(len(labels))
    by_class = order[np.argsort(labels[order], kind="stable")]
    mixed = random.random(len(by_class)) < 0.3
    by_class[mixed] = random.permutation(by_class[mixed])
    own = random.permutation(np.array_split(by_class, clients)[client])
    inputs, targets = torch.tensor(images[own] / 16, dtype=torch.float32), torch.tensor(labels[own])
    cut = len(own) * 4 // 5
    return TensorDataset(inputs[:cut], targets[:cut]), TensorDataset(inputs[cut:], targets[cut:])


def train(model: nn.Module, data: TensorDataset, epochs: int, lr: float) -> float:
    """Plain SGD; the mean loss."""
    optimizer, losses = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9), []
    model.train()
    for _ in range(epochs):
        for inputs, labels in DataLoader(data, batch_size=16, shuffle=True, drop_last=True):
            optimizer.zero_grad()
            loss: Tensor = nn.functional.cross_entropy(model(inputs), labels)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return sum(losses) / len(losses)


@torch.no_grad()
def accuracy(model: nn.Module, data: TensorDataset) -> float:
    """Share of correct answers."""
    inputs, labels = data.tensors
    return float((model.eval()(inputs).argmax(1) == labels).float().mean())
