import numpy as np


def counts(examples, hands):
    """Examples by client and class."""
    return np.stack([np.bincount(examples.labels[hand], minlength=len(examples.classes)) for hand in hands])


def shares(examples, hands):
    """Each client's share of each class."""
    counted = counts(examples, hands)
    return counted / counted.sum(axis=0)
