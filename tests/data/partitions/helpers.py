import numpy as np


def counts(dataset, hands):
    """Examples by client and class."""
    return np.stack([np.bincount(dataset.labels[hand], minlength=len(dataset.classes)) for hand in hands])


def shares(dataset, hands):
    """Each client's share of each class."""
    counted = counts(dataset, hands)
    return counted / counted.sum(axis=0)
