"""What nodes may answer that mean harm, or know no better."""

import json
from io import BytesIO

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict
from hypothesis import strategies as st

from fedpace.flower import InProcessGrid

NUMBERS = [0, -1, 1, 7.5, 10**15, 10**400, 1e39, 1e300, 1e-320, float("nan"), float("inf"), -float("inf")]
SHAPES = [(), (0,), (3, 2), (2, 3), (6,), (10**15,), (-1,), (0, 10**15)]
TYPES = ["float16", "float32", "float64", ">f4", "complex64", "uint16", "int64", "uint64", "bool"]
VALUES = [0.0, 1.0, -1e4, 6e4, 1e19, 1e25, 3e38, -1e300, float("nan"), float("inf")]


def claimed(data, kind="numpy.ndarray"):
    """Bytes that are said to be an array."""
    return Array("float32", (6,), kind, data)


def header(shape, kind):
    """Bytes that claim an array of this shape, and hold a few of its numbers."""
    text = repr({"descr": kind, "fortran_order": False, "shape": shape}).encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + bytes(24)


def filled(shape, kind, value):
    """A whole array of one value."""
    with np.errstate(all="ignore"):
        return Array(np.asarray(np.full(shape, value).astype(kind)))


def archive():
    """What numpy takes for a file of several arrays."""
    file = BytesIO()
    np.savez(file, np.zeros(6, "float32"))
    return file.getvalue()


bad_arrays = st.one_of(
    st.builds(filled, st.sampled_from(SHAPES[:5]), st.sampled_from(TYPES), st.sampled_from(VALUES)),
    st.builds(
        claimed, st.builds(header, st.sampled_from(SHAPES), st.sampled_from(["<f4", "<i8", "|O", "|V0", "<M8[s]"]))
    ),
    st.builds(claimed, st.binary(max_size=20)),
    st.sampled_from(
        [
            claimed(archive()),
            claimed(b"\x93NUMPY\x01\x00\x10\x27" + b"(" * 10_000),
            claimed(header((6,), "<f4"), "pickle"),
        ]
    ),
)
bad_metrics = st.dictionaries(
    st.sampled_from(["num-examples", "loss", "accuracy", "two\nlines"]),
    st.one_of(st.sampled_from(NUMBERS), st.lists(st.sampled_from([1.0, float("nan"), 1e300]), max_size=3)),
)

_leaves = st.sampled_from([None, True, "7", "x", "", *NUMBERS[:5], *NUMBERS[6:]])
_inside = st.lists(_leaves, max_size=2) | st.dictionaries(st.sampled_from(["loss", "count", "correct", "x"]), _leaves)
bad_texts = st.one_of(
    st.lists(
        st.fixed_dictionaries(dict.fromkeys(("examples", "metrics", "failure", "state"), _leaves | _inside)),
        max_size=2,
    ).map(json.dumps),
    (_leaves | _inside).map(json.dumps),
    st.sampled_from(["", "[", "[" * 100_000, '{"a":' * 10_000, '[{"examples": 1' + "0" * 6000 + "}]"]),
)
bad_settings = bad_texts | st.sampled_from([b"", 7, -1, 10**30, 1.5, True, [1, 2], ["a"]])


def silent(message, reply):
    """Nothing."""
    return []


def failing(message, reply):
    """An error of many lines."""
    return [Message(Error(1, "its disk\nis full " * 1000), reply_to=message)]


def repeated(message, reply):
    """The same, again and again."""
    return [reply] * 3


def unasked(message, reply):
    """Something that nobody asked for."""
    found = Message(reply.content, reply_to=message)
    found.metadata.__dict__["_reply_to_message_id"] = "another"
    return [found]


def empty(message, reply):
    """No records."""
    return [Message(RecordDict(), reply_to=message)]


def echo(message, reply):
    """What it was sent."""
    return [Message(message.content, reply_to=message)]


def spoiled(array, which, everything):
    """An answer as it should be, but for some of its arrays."""

    def fault(message, reply):
        content = copied(reply.content)
        for name, record in content.array_records.items():
            chosen = list(record) if everything else list(record)[which % max(len(record), 1) :][:1]
            content[name] = ArrayRecord({**record, **dict.fromkeys(chosen, array)})
        return [Message(content, reply_to=message)]

    return fault


def claiming(metrics):
    """An answer with other metrics."""

    def fault(message, reply):
        content = copied(reply.content)
        for name, record in content.metric_records.items():
            content[name] = MetricRecord({**record, **metrics})
        return [Message(content, reply_to=message)]

    return fault


def saying(value):
    """An answer in whose config every value is another one."""

    def fault(message, reply):
        content = copied(reply.content)
        for name, record in content.config_records.items():
            content[name] = ConfigRecord(dict.fromkeys(record, value))
        return [Message(content, reply_to=message)]

    return fault


def swollen(message, reply):
    """An answer with a second record of each kind."""
    content = copied(reply.content)
    content["more"] = ArrayRecord({"w": filled((2,), "float32", 1.0)})
    content["more metrics"] = MetricRecord({"num-examples": 1})
    return [Message(content, reply_to=message)]


def copied(content):
    """The same records in a dict of their own."""
    return RecordDict(dict(content.items()))


faults = st.one_of(
    st.sampled_from([silent, failing, repeated, unasked, empty, echo, swollen]),
    st.builds(spoiled, bad_arrays, st.integers(0, 5), st.booleans()),
    st.builds(claiming, bad_metrics),
    st.builds(saying, bad_settings),
)


class Hostile(InProcessGrid):
    """Some ``clients`` do in turn each of the ``faults``, whatever they are asked, unless a message is ``spared``."""

    def __init__(self, app, nodes, faults, spared=(), clients=(0,)):
        super().__init__(app, nodes)
        self._faults, self._spared, self._clients, self._done = faults, spared, clients, 0

    def replies(self, message):
        (reply,) = super().replies(message)
        client = self.contexts[message.metadata.dst_node_id].node_config["partition-id"]
        if client not in self._clients or reply.has_error() or message.metadata.message_type in self._spared:
            return [reply]
        self._done += 1
        return self._faults[self._done % len(self._faults)](message, reply)
