"""Flat vectors and their layout, named seeds, typed settings and errors: what every room stands on."""

from typing import TYPE_CHECKING

from fedpace._lazy import on_first_use

if TYPE_CHECKING:
    from fedpace.core import devices
    from fedpace.core._sketch import sketch
    from fedpace.core.devices import Device, Precision
    from fedpace.core.errors import (
        ClientError,
        ConfigError,
        DataError,
        FedpaceError,
        ModelError,
        PartitionError,
        RunFolderError,
        did_you_mean,
        same_name,
    )
    from fedpace.core.files import (
        Disk,
        Durability,
        Writer,
        digest,
        folder_written_aside,
        write_text,
        writing,
        written_aside,
    )
    from fedpace.core.flat import Buffers, FlatModule
    from fedpace.core.inputs import Inputs, call, call_with, part
    from fedpace.core.layout import Layout
    from fedpace.core.memory import freed_kept, keep_freed
    from fedpace.core.metric import ACCURACY, Metric
    from fedpace.core.perturbation import Perturbation, Scaling, scalings
    from fedpace.core.plain_json import parse_json
    from fedpace.core.records import (
        Agreement,
        Dropped,
        RoundRecord,
        RoundReport,
        SearchReport,
        Seconds,
        Similarity,
    )
    from fedpace.core.seeds import Randomness, derive, numpy_stream, seed_of, torch_stream
    from fedpace.core.server_side import ServerSide
    from fedpace.core.settings import Named, Registry, Settings, by_name, first_error, import_path, parse
    from fedpace.core.text import (
        for_figure,
        for_html,
        for_markdown,
        for_terminal,
        one_line,
        printable,
        shown,
        slug,
        without_markup,
    )
    from fedpace.core.trust import is_import_path, refuse_import_paths, refuse_links, trusted_files
    from fedpace.core.update import Tensors, Update, with_prefix
    from fedpace.core.weights import Weights, weight_of
else:
    __getattr__, __dir__ = on_first_use(__name__)

__all__ = [
    "ACCURACY",
    "Agreement",
    "Buffers",
    "ClientError",
    "ConfigError",
    "DataError",
    "Device",
    "Disk",
    "Dropped",
    "Durability",
    "FedpaceError",
    "FlatModule",
    "Inputs",
    "Layout",
    "Metric",
    "ModelError",
    "Named",
    "PartitionError",
    "Perturbation",
    "Precision",
    "Randomness",
    "Registry",
    "RoundRecord",
    "RoundReport",
    "RunFolderError",
    "Scaling",
    "SearchReport",
    "Seconds",
    "ServerSide",
    "Settings",
    "Similarity",
    "Tensors",
    "Update",
    "Weights",
    "Writer",
    "by_name",
    "call",
    "call_with",
    "derive",
    "devices",
    "did_you_mean",
    "digest",
    "first_error",
    "folder_written_aside",
    "for_figure",
    "for_html",
    "for_markdown",
    "for_terminal",
    "freed_kept",
    "import_path",
    "is_import_path",
    "keep_freed",
    "numpy_stream",
    "one_line",
    "parse",
    "parse_json",
    "part",
    "printable",
    "refuse_import_paths",
    "refuse_links",
    "same_name",
    "scalings",
    "seed_of",
    "shown",
    "sketch",
    "slug",
    "torch_stream",
    "trusted_files",
    "weight_of",
    "with_prefix",
    "without_markup",
    "write_text",
    "writing",
    "written_aside",
]
