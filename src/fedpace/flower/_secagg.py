"""SecAgg+ (Bell et al., 2020): how clients mask integer vectors so that only their sum can be read.

Everything of Flower's that is private and that secure aggregation needs is in this module. Two things are not Flower's.
Masks are a stream cipher's: Flower folds every seed into 32 bits (28 for the masks of pairs), which can be guessed. And
vectors are integers that we chose, of any unsigned type; their sums wrap around.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from typing import Any, cast

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.client.mod.secure_aggregation.secaggplus_mod import (
    SecAggPlusState,
    _setup,
    _share_keys,
    _unmask,
    check_stage,
)
from flwr.common.secure_aggregation.crypto.shamir import combine_shares
from flwr.common.secure_aggregation.crypto.symmetric_encryption import decrypt, generate_shared_key
from flwr.common.secure_aggregation.secaggplus_constants import RECORD_KEY_STATE, Key, Stage
from flwr.common.secure_aggregation.secaggplus_utils import share_keys_plaintext_separate
from flwr.supercore.primitives.asymmetric import bytes_to_private_key, bytes_to_public_key
from numpy.typing import NDArray

from fedpace.server import FEWEST

__all__ = ["Key", "Stage", "Vector", "combine_shares", "pair_mask", "setup_config", "shift", "take_part", "to_mask"]

CONFIG, VECTOR = "protocol", "masked"  # records of a message
Vector = Mapping[str, NDArray[Any]]  # arrays of unsigned integers


def take_part(message: Message, context: Context, vector: Callable[[], Vector]) -> RecordDict:
    """A client's answer to one stage of the protocol; ``vector`` is what it would add, asked for when it is time.

    What the client must remember for the next stage is in its context, until the sum is made.
    """
    state = SecAggPlusState(**context.state.config_records.get(RECORD_KEY_STATE, ConfigRecord()))
    asked = message.content.config_records[CONFIG]
    check_stage(state.current_stage, asked)
    stage = state.current_stage = str(asked[Key.STAGE])
    config = ConfigRecord({name: value for name, value in asked.items() if name != Key.STAGE})
    content, found = RecordDict(), {}
    if stage == Stage.SETUP:
        state.nid = message.metadata.dst_node_id
        found = _setup(state, config)
        _refuse_weak(state)
    elif stage == Stage.SHARE_KEYS:
        found = _share_keys(state, config)
    elif stage == Stage.COLLECT_MASKED_VECTORS:
        content[VECTOR] = to_record(_masked(state, config, vector()))
    else:
        _refuse_disclosure(config)
        found, state = _unmask(state, config), SecAggPlusState()  # keys serve once
    context.state[RECORD_KEY_STATE] = ConfigRecord(state.to_dict())
    content[CONFIG] = ConfigRecord(found)
    return content


def setup_config(clients: int, shares: int, threshold: int) -> dict[str, int | float]:
    """What clients are told at first. Flower's quantisation, which we do not use, has to be named."""
    unused = {Key.CLIPPING_RANGE: 0.0, Key.TARGET_RANGE: 0, Key.MOD_RANGE: 0, Key.MAX_WEIGHT: 0.0}
    return {Key.SAMPLE_NUMBER: clients, Key.SHARE_NUMBER: shares, Key.THRESHOLD: threshold, **unused}


def to_record(vector: Vector) -> ArrayRecord:
    """A vector as it travels."""
    return ArrayRecord({name: Array(np.ascontiguousarray(part)) for name, part in vector.items()})


def from_record(record: ArrayRecord) -> dict[str, NDArray[Any]]:
    """A vector that travelled, as copies that may be changed."""
    return {name: array.numpy().copy() for name, array in record.items()}


def to_mask(seed: bytes, like: Vector) -> dict[str, NDArray[Any]]:
    """Integers that look uniform to those who do not know the seed; a seed serves one round."""
    cipher = Cipher(ChaCha20(sha256(seed).digest(), bytes(16)), mode=None).encryptor()
    return {
        name: np.frombuffer(cipher.update(bytes(part.nbytes)), dtype=part.dtype).reshape(part.shape)
        for name, part in like.items()
    }


def pair_mask(private: bytes, public: bytes, like: Vector) -> dict[str, NDArray[Any]]:
    """The mask of a pair of clients, from the private key of the one and the public key of the other."""
    return to_mask(generate_shared_key(bytes_to_private_key(private), bytes_to_public_key(public)), like)


def shift(vector: Vector, by: Vector, *, up: bool) -> None:
    """Add or subtract in place, modulo the range of the integers."""
    for name, part in vector.items():
        (np.add if up else np.subtract)(part, by[name], out=part)


def _masked(state: SecAggPlusState, config: ConfigRecord, vector: Vector) -> Vector:
    """Keep the shares of the others' secrets, then hide the vector behind a mask of its own and one per neighbour."""
    sources = cast(Sequence[int], config[Key.SOURCE_LIST])
    if len(sources) + 1 < state.threshold:
        raise ValueError(f"expected {state.threshold - 1} neighbours or more, found {len(sources)}")
    for source, ciphertext in zip(sources, cast(Sequence[bytes], config[Key.CIPHERTEXT_LIST]), strict=True):
        sender, receiver, seed, key = share_keys_plaintext_separate(decrypt(state.ss2_dict[source], ciphertext))
        if (sender, receiver) != (source, state.nid):
            raise ValueError(f"expected shares from {source} for {state.nid}, found {sender} and {receiver}")
        state.rd_seed_share_dict[source], state.sk1_share_dict[source] = seed, key
    shift(vector, to_mask(state.rd_seed, vector), up=True)
    for source in sources:
        shift(vector, pair_mask(state.sk1, state.public_keys_dict[source][0], vector), up=state.nid > source)
    return vector


def _refuse_weak(state: SecAggPlusState) -> None:
    """With few shares a server could put secrets together that only many clients should disclose."""
    if state.threshold < FEWEST or 2 * state.threshold <= state.share_num:
        expected = f"{FEWEST} or more, and more than half of {state.share_num} shares"
        raise ValueError(f"threshold: expected {expected}, found {state.threshold}")


def _refuse_disclosure(config: ConfigRecord) -> None:
    """Whoever has both secrets of a client, that of its own mask and that of its pairs, reads its vector."""
    both = set(cast(list[int], config[Key.ACTIVE_NODE_ID_LIST])) & set(cast(list[int], config[Key.DEAD_NODE_ID_LIST]))
    if both:
        raise ValueError(f"nodes {sorted(both)} are said to be both present and lost")
