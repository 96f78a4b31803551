"""The embedded digits in four domains: domain shift without a download."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fedpace.core import numpy_stream
from fedpace.data.data import Data
from fedpace.data.examples import Array, Examples
from fedpace.data.sources._images import resized
from fedpace.data.sources._source import ImageSource, sources
from fedpace.data.sources.digits import CLASSES, grey_digits


def _striped(images: Array) -> Array:
    """A background of stripes shines through wherever the digit is darker."""
    stripes = np.where(np.arange(images.shape[1]) % 2, 140, 0).astype(np.uint8)
    return np.maximum(images, stripes[None, :, None, None])


DOMAINS: dict[str, Callable[[Array], Array]] = {
    "plain": lambda images: images,
    "inverted": lambda images: 255 - images,
    "rotated": lambda images: np.rot90(images, axes=(1, 2)),
    "striped": _striped,
}


@sources.register("digit_domains")
class DigitDomains(ImageSource):
    """The 1,797 embedded digits, each in exactly one of four domains: plain, inverted, rotated by 90°, striped.

    No digit is in two domains, so a model tested on an unseen domain has not seen its digits in another. There is no
    test set: partition it with ``leave_one_domain_out``.

    Parameters: ``size`` to resize to.
    """

    def load(self) -> Data:
        """Deal the digits to domains, the same way every time, and shift them."""
        images, labels = grey_digits()
        domains = numpy_stream(0, "digit_domains").permutation(len(images)) % len(DOMAINS)
        for index, shift in enumerate(DOMAINS.values()):
            images[domains == index] = shift(images[domains == index])
        return Data("digit_domains", Examples(resized(images, self.size), labels, CLASSES, domains, tuple(DOMAINS)))
