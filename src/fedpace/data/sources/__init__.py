"""Sources: where data come from. One family per file, found by name in ``sources``."""

from fedpace.data.sources._known import KnownImages
from fedpace.data.sources._source import ImageSource, Source, sources
from fedpace.data.sources._text import TextSource
from fedpace.data.sources.cifar10 import Cifar10
from fedpace.data.sources.cifar100 import Cifar100
from fedpace.data.sources.diabetes import Diabetes
from fedpace.data.sources.digit_domains import DigitDomains
from fedpace.data.sources.digits import Digits
from fedpace.data.sources.fashion_mnist import FashionMnist
from fedpace.data.sources.femnist import Femnist
from fedpace.data.sources.flowers102 import Flowers102
from fedpace.data.sources.folder import Folder
from fedpace.data.sources.heart_disease import HeartDisease
from fedpace.data.sources.leaf import Leaf
from fedpace.data.sources.mnist import Mnist
from fedpace.data.sources.pacs import Pacs
from fedpace.data.sources.parquet import Parquet
from fedpace.data.sources.shakespeare import Shakespeare
from fedpace.data.sources.table import Table
from fedpace.data.sources.text import Text
from fedpace.data.sources.texts import Texts
from fedpace.data.sources.tiny_imagenet import TinyImagenet

__all__ = [
    "Cifar10",
    "Cifar100",
    "Diabetes",
    "DigitDomains",
    "Digits",
    "FashionMnist",
    "Femnist",
    "Flowers102",
    "Folder",
    "HeartDisease",
    "ImageSource",
    "KnownImages",
    "Leaf",
    "Mnist",
    "Pacs",
    "Parquet",
    "Shakespeare",
    "Source",
    "Table",
    "Text",
    "TextSource",
    "Texts",
    "TinyImagenet",
    "sources",
]
