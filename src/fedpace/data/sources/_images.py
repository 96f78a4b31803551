"""Images as arrays."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable
from io import BytesIO
from pathlib import Path

import numpy as np
from PIL import Image
from rich.console import Console
from rich.progress import track

from fedpace.core import DataError
from fedpace.data._limits import MOST_PIXELS, check_unpacked
from fedpace.data.examples import Array

FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
"""What is decoded, whatever a file is called: pillow hands some other formats to programs of the system."""


def pixels(image: Image.Image, size: int | None) -> Array:
    """Height × width × channels (1 or 3) of one image; grey stays grey, everything else becomes RGB."""
    image = image.convert("L" if image.mode in ("L", "1") else "RGB")
    if size is not None and image.size != (size, size):
        image = image.resize((size, size), Image.Resampling.BILINEAR)
    return np.atleast_3d(np.asarray(image))


def resized(images: Array, size: int | None) -> Array:
    """Grey images, n × height × width × 1, resized to ``size`` × ``size``."""
    if size is None:
        return images
    check_unpacked(f"images resized to {size} × {size}", images.nbytes, len(images) * size**2)
    return np.stack([pixels(Image.fromarray(image[:, :, 0]), size) for image in images])


def decode_all(encoded: Iterable[tuple[str, Path | bytes]], total: int, size: int | None) -> Array:
    """All images in one array; each comes with a text that says where it is, for the message if it is unreadable."""
    images: list[Array] = []
    stored = unpacked = 0
    terminal = Console(stderr=True)
    quiet = not sys.stderr.isatty()
    for where, source in track(encoded, "decoding images", total, console=terminal, transient=True, disable=quiet):
        stored += len(source) if isinstance(source, bytes) else source.stat().st_size
        image = _decode(where, source, size)
        unpacked += image.nbytes
        check_unpacked(f"{where} and the images before it", stored, unpacked)
        if images and image.shape[:2] != images[0].shape[:2]:
            raise DataError(
                f"{where}: image of {image.shape[0]} × {image.shape[1]} pixels, but the first has "
                f"{images[0].shape[0]} × {images[0].shape[1]}; set size to resize all of them"
            )
        images.append(image)
    channels = max(image.shape[2] for image in images)  # a few grey images among coloured ones become coloured
    return np.stack([np.broadcast_to(image, (*image.shape[:2], channels)) for image in images])


def _decode(where: str, source: Path | bytes, size: int | None) -> Array:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # refused here, in one line
            opened = Image.open(BytesIO(source) if isinstance(source, bytes) else source, formats=FORMATS)
        with opened as image:
            if image.width * image.height > MOST_PIXELS:
                raise DataError(
                    f"{where}: expected at most {MOST_PIXELS / 1e6:.0f} million pixels, found {image.width} × "
                    f"{image.height}; make the image smaller"
                )
            return pixels(image, size)
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise DataError(f"{where}: expected an encoded image, found something else ({error}); replace it") from None
