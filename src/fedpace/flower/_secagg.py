"""SecAgg+ (Bell et al., 2020): how clients mask integer vectors so that only their sum can be read.

Everything of Flower's that is private and that secure aggregation needs is in this module. Two things are not Flower's.
Masks are a stream cipher's: Flower folds every seed into 32 bits (28 for the masks of pairs), which can be guessed. And
vectors are integers that we chose, of any unsigned type; their sums wrap around.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import sha256
from itertools import combinations
from math import comb
from random import SystemRandom
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

from fedpace.flower._arrays import values
from fedpace.server import FEWEST

__all__ = [
    "Key",
    "Stage",
    "Vector",
    "belongs",
    "checked_key",
    "commits",
    "opened_secret",
    "pair_mask",
    "setup_config",
    "shift",
    "take_part",
    "to_mask",
]

CONFIG, VECTOR = "protocol", "masked"  # records of a message
# What we add to Flower's keys of a config:
COMMITMENT = "commitment"  # to the seed of a node's own mask
UNREAD = "unread"  # neighbours whose shares a node could not read
BANNED, SEEDS = "banned", "seeds"  # neighbours that are left out, and what a node has in common with each of them
TRIES = 200  # choices of shares that are tried before a secret counts as lost
Vector = Mapping[str, NDArray[Any]]  # arrays of unsigned integers


def take_part(message: Message, context: Context, vector: Callable[[], Vector], fewest: int = FEWEST) -> RecordDict:
    """A client's answer to one stage of the protocol; ``vector`` is what it would add, asked for when it is time.

    What the client must remember for the next stage is in its context, until the sum is made. It takes part in no sum
    that less than ``fewest`` clients could open.
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
        _refuse_weak(state, fewest)
    elif stage == Stage.SHARE_KEYS:
        found = _share_keys(state, config)
        found[COMMITMENT] = commitment(state.rd_seed)
    elif stage == Stage.COLLECT_MASKED_VECTORS:
        if unread := _read_shares(state, config):
            found[UNREAD] = unread
        content[VECTOR] = to_record(_masked(state, vector()))
    else:
        banned = cast(list[int], config.pop(BANNED, []))
        _refuse_disclosure(config, banned)
        found = _unmask(state, config)
        if banned:
            found[SEEDS] = [_pair_seed(state, node) if node in state.sk1_share_dict else b"" for node in banned]
        state = SecAggPlusState()  # keys serve once
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
    return {name: values(array).copy() for name, array in record.items()}


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


def checked_key(found: object) -> bytes:
    """A public key that everybody can use, or a ValueError."""
    if not isinstance(found, bytes) or bytes_to_public_key(found).curve.name != "secp384r1":
        raise ValueError("expected a public key on the curve secp384r1")
    return found


def belongs(public: bytes, private: bytes) -> bool:
    """Whether these are the two keys of one pair."""
    found = bytes_to_private_key(private).public_key().public_numbers()
    return found == bytes_to_public_key(public).public_numbers()


def commitment(secret: bytes) -> bytes:
    """What says nothing about a secret, but tells whether it was put together rightly."""
    return sha256(b"commitment" + secret).digest()


def commits(to: bytes | None, secret: bytes) -> bool:
    """Whether this is the secret that a node has committed itself to, if it has."""
    return to in (None, commitment(secret))


def opened_secret(shares: Sequence[bytes], threshold: int, is_right: Callable[[bytes], bool]) -> bytes | None:
    """The secret of which these are shares, some of them perhaps wrong; ``None`` if it cannot be opened."""
    for chosen in _choices(shares, threshold):
        try:
            secret = combine_shares(list(chosen))
            if is_right(secret):
                return secret
        except Exception:  # whatever somebody else's bytes make a reader raise
            continue
    return None


def _choices(shares: Sequence[bytes], threshold: int) -> Iterator[Sequence[bytes]]:
    """Enough of the shares: in all ways if they are few, else as chance has it, which meets all right ones soon."""
    if comb(len(shares), threshold) <= TRIES:
        yield from combinations(shares, threshold)
    else:
        for _ in range(TRIES):
            yield SystemRandom().sample(shares, threshold)


def shift(vector: Vector, by: Vector, *, up: bool) -> None:
    """Add or subtract in place, modulo the range of the integers."""
    for name, part in vector.items():
        (np.add if up else np.subtract)(part, by[name], out=part)


def _read_shares(state: SecAggPlusState, config: ConfigRecord) -> list[int]:
    """Keep the shares of the others' secrets; whose shares cannot be read."""
    unread = []
    sources = cast(Sequence[int], config[Key.SOURCE_LIST])
    for source, ciphertext in zip(sources, cast(Sequence[bytes], config[Key.CIPHERTEXT_LIST]), strict=True):
        try:
            sender, receiver, seed, key = share_keys_plaintext_separate(decrypt(state.ss2_dict[source], ciphertext))
            if (sender, receiver) != (source, state.nid):
                raise ValueError(f"expected shares from {source} for {state.nid}, found {sender} and {receiver}")
        except Exception:  # the sender's fault, which must not become ours
            unread.append(source)
        else:
            state.rd_seed_share_dict[source], state.sk1_share_dict[source] = seed, key
    if len(state.sk1_share_dict) < state.threshold:
        raise ValueError(f"expected {state.threshold - 1} neighbours or more, found {len(state.sk1_share_dict) - 1}")
    return unread


def _masked(state: SecAggPlusState, vector: Vector) -> Vector:
    """Hide the vector behind a mask of its own and one for each neighbour whose shares it could read."""
    shift(vector, to_mask(state.rd_seed, vector), up=True)
    for other in state.sk1_share_dict.keys() - {state.nid}:
        shift(vector, to_mask(_pair_seed(state, other), vector), up=state.nid > other)
    return vector


def _pair_seed(state: SecAggPlusState, other: int) -> bytes:
    """The secret that this client and another one have in common."""
    public = bytes_to_public_key(state.public_keys_dict[other][0])
    return generate_shared_key(bytes_to_private_key(state.sk1), public)


def _refuse_weak(state: SecAggPlusState, fewest: int) -> None:
    """With few shares a server could put secrets together that only many clients should disclose."""
    if state.threshold < fewest or 2 * state.threshold <= state.share_num:
        expected = f"{fewest} or more, and more than half of {state.share_num} shares"
        raise ValueError(f"threshold: expected {expected}, found {state.threshold}")


def _refuse_disclosure(config: ConfigRecord, banned: Sequence[int]) -> None:
    """Whoever has both secrets of a client, that of its own mask and that of its pairs, reads its vector."""
    present, lost = (
        set(cast(list[int], config[Key.ACTIVE_NODE_ID_LIST])),
        {*cast(list[int], config[Key.DEAD_NODE_ID_LIST])},
    )
    if both := present & (lost | set(banned)):
        raise ValueError(f"nodes {sorted(both)} are said to be both present and lost")
