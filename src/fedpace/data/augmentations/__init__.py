"""Augmentations: random changes of training batches. One per file, found by name in ``augmentations``."""

from fedpace.data.augmentations._augmentation import Augmentation, augmentations, augmented
from fedpace.data.augmentations.crop import Crop
from fedpace.data.augmentations.flip import Flip
from fedpace.data.augmentations.own import Own, parse_augmentation, parse_augmentations

__all__ = [
    "Augmentation",
    "Crop",
    "Flip",
    "Own",
    "augmentations",
    "augmented",
    "parse_augmentation",
    "parse_augmentations",
]
