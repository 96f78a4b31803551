"""CIFAR-100."""

from __future__ import annotations

from typing import ClassVar

from fedpace.data.sources._known import KnownImages
from fedpace.data.sources._source import sources

FINE_LABELS = """
apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel can castle
caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur dolphin elephant flatfish
forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion lizard lobster man maple_tree motorcycle
mountain mouse mushroom oak_tree orange orchid otter palm_tree pear pickup_truck pine_tree plain plate poppy porcupine
possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk skyscraper snail snake spider squirrel streetcar
sunflower sweet_pepper table tank telephone television tiger tractor train trout tulip turtle wardrobe whale
willow_tree wolf woman worm
"""


@sources.register("cifar100")
class Cifar100(KnownImages):
    """60,000 RGB photographs of 32 × 32 pixels, 100 classes: the fine labels (Krizhevsky, 2009).

    Parameters: ``size`` to resize to.
    """

    classes: ClassVar[tuple[str, ...]] = tuple(FINE_LABELS.split())
    repository: ClassVar[str] = "uoft-cs/cifar100"
