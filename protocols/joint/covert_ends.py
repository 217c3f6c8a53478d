"""The two ends of drawing circuits under covert security, message by message (`covert`)."""

from collections.abc import Generator
from typing import Final, NamedTuple

import numpy as np

from tallyroom.protocols.algebra.ring import Vector
from tallyroom.protocols.errors import PeerError
from tallyroom.protocols.garbling import base_ot
from tallyroom.protocols.garbling.batch import BatchShape
from tallyroom.protocols.garbling.ot_extension import bits_of
from tallyroom.protocols.garbling.primitives import BLOCK_BYTES, COLUMNS
from tallyroom.protocols.garbling.session import Evaluator, Garbler
from tallyroom.protocols.identity.signing import SigningIdentity, check_signed
from tallyroom.protocols.identity.vouchers import SIGNATURE_BYTES
from tallyroom.protocols.joint.covert import (
    GARBLER,
    HASH_BYTES,
    KEYS_BYTES,
    LINK,
    Accusation,
    Bytes,
    CaughtError,
    Drawn,
    EvaluatorCopy,
    GarblerCopy,
    Statement,
    answers_of,
    commitment,
    delta_of,
    digest,
    key_hashes,
    keys_digest,
    said_bytes,
    split,
    told_in,
    xor,
)
from tallyroom.protocols.randomness import KEY_BYTES, Randomness

Saying = Generator[Bytes, Bytes, Vector]
Answering = Generator[Bytes, Bytes, tuple[Bytes, Vector]]

_NOTHING: Final[Bytes] = np.empty(0, dtype=np.uint8)
_HASHES_BYTES: Final = COLUMNS * 2 * HASH_BYTES
_USAGE_SECRET: Final = b"tallyroom covert v1 secret"


# --- the evaluator ---


class _Choice(NamedTuple):
    """Of one copy to keep, and the seeds of all others."""

    kept: int
    point: bytes
    said: Bytes
    keys: Bytes
    scalars: Bytes

    def __repr__(self) -> str:
        return "<_Choice>"


def evaluate(
    drawn: Drawn,
    name: bytes,
    back: Garbler,
    first: Bytes,
    randomness: Randomness,
    signing: SigningIdentity,
) -> Saying:
    """The evaluator's end. `back` is open or being opened by `first`, which is said first.

    Raises `CaughtError` where the garbler deviated and it can be proved, else `PeerError`.
    """
    source, copies = randomness.derive(f"covert {drawn.block}"), range(drawn.copies)
    seeds = [source.derive(f"seed {copy}").bytes(KEY_BYTES) for copy in copies]
    commitments = tuple(commitment(copy, seed) for copy, seed in enumerate(seeds))
    body = yield np.concatenate([first, _row(*commitments)])
    if body.size <= base_ot.POINT_BYTES:
        raise _wrong("no transfers of seeds")
    choice = _choose(drawn, source, body)
    pairs = back.offer_keys(body[None, base_ot.POINT_BYTES :], COLUMNS * drawn.copies)
    ours = [EvaluatorCopy(drawn, name, copy, seed) for copy, seed in enumerate(seeds)]
    own = np.stack([each.pairs for each in ours])
    hashes = [each.hashes for each in ours]
    wrapped = (own ^ pairs.reshape(own.shape)).reshape(-1)
    said = np.concatenate([choice.said, wrapped, _row(*hashes)])
    requests: list[list[Bytes]] = []
    for part in range(len(drawn.parts)):
        if part:
            _check_empty(body)
        requests.append([each.request(part) for each in ours])
        body = yield np.concatenate([said, *requests[-1]])
        said = _NOTHING
    if body.size <= said_bytes(drawn) + SIGNATURE_BYTES:
        raise _wrong("no statement")
    told, signature, certificate = _parted(body.tobytes(), said_bytes(drawn), SIGNATURE_BYTES)
    points = choice.said[: drawn.copies * base_ot.POINT_BYTES].tobytes()
    statement = Statement(
        name,
        drawn.block,
        commitments,
        choice.point,
        split(points, base_ot.POINT_BYTES, drawn.copies),
        tuple(keys_digest(each) for each in hashes),
        *told_in(told, drawn),
    )
    check_signed(GARBLER, statement.signed, signature, certificate, signing.authority)
    _check_heard(statement, ours)
    for copy in copies:
        if copy == choice.kept:
            continue
        seed = xor(statement.seeds[copy], choice.keys[copy].tobytes())
        asked = [row[copy] for row in requests]
        if answers_of(drawn, name, copy, seed, own[copy], asked) != statement.heard[copy]:
            scalar = choice.scalars[copy].tobytes()
            raise CaughtError(
                Accusation(statement.signed, signature, certificate, copy, scalar, seeds[copy])
            )
    requests.clear()
    kept = choice.kept
    witness = xor(statement.witnesses[kept], choice.keys[kept].tobytes())
    said, shares = _row(bytes([kept]), witness), []
    for part, count in enumerate(drawn.parts):
        body = yield said
        if body.size != BatchShape(drawn.circuit, drawn.form, count).answer_bytes:
            raise _wrong("an answer of another length")
        shares.append(ours[kept].finish(part, body))
        if ours[kept].transcript(part) != statement.heard[kept][part][HASH_BYTES:]:
            raise _wrong("answers otherwise than it signed")
        said = _NOTHING
    return np.concatenate(shares)


def _choose(drawn: Drawn, source: Randomness, heard: Bytes) -> _Choice:
    """What was heard decides as well, so that nobody is told of two choices for one."""
    word = source.derive(f"kept {digest(heard.tobytes()).hex()}").words(1)[0]
    kept = int(word % drawn.copies)
    chosen = np.array([[copy == kept for copy in range(drawn.copies)]], dtype=np.uint8)
    point = np.ascontiguousarray(heard[None, : base_ot.POINT_BYTES])
    scalars = base_ot.draw_scalars(source, "choices", LINK, drawn.copies + base_ot.PROOF_SCALARS)
    scalars = base_ot.bind_scalars(scalars, point)
    said, keys = base_ot.receiver_points(LINK, point, chosen, scalars)
    return _Choice(kept, point.tobytes(), said[0], keys[0], scalars[0])


def _check_heard(statement: Statement, ours: list[EvaluatorCopy]) -> None:
    """That the garbler signed what it was asked, in all copies, so that what is wrong with it does
    not depend on the choice. Raises `PeerError`."""
    for each, heard in zip(ours, statement.heard, strict=True):
        for part, transcripts in enumerate(heard):
            if transcripts[:HASH_BYTES] != each.transcript(part):
                raise _wrong("signed that it heard what was not said")


# --- the garbler ---


def garble(
    drawn: Drawn,
    name: bytes,
    back: Evaluator,
    body: Bytes,
    randomness: Randomness,
    signing: SigningIdentity,
    kind: type[GarblerCopy] = GarblerCopy,
) -> Answering:
    """The garbler's end, from what it hears first. Raises `PeerError`."""
    copies = range(drawn.copies)
    if body.size != HASH_BYTES * drawn.copies:
        raise _wrong("not commitments to seeds")
    commitments = split(body.tobytes(), HASH_BYTES, drawn.copies)
    secret = randomness.derive(f"covert {drawn.block}").bytes(KEY_BYTES)
    # Bound to what was heard: to another evaluator, other seeds.
    source = Randomness(digest(_USAGE_SECRET, secret, *commitments)[:KEY_BYTES])
    seeds = [source.derive(f"seed {copy}").bytes(KEY_BYTES) for copy in copies]
    witnesses = [source.derive(f"witness {copy}").bytes(KEY_BYTES) for copy in copies]
    scalars = base_ot.draw_scalars(source, "point", LINK, 1)
    point = base_ot.sender_points(scalars)[0]
    chosen = bits_of(np.stack([_row(delta_of(seed)) for seed in seeds]))
    offer, held = back.choose_keys(chosen.reshape(1, -1))
    body = yield np.concatenate([point, offer[0]])

    each = (KEYS_BYTES, _HASHES_BYTES)
    widths = (base_ot.reply_bytes(drawn.copies), *(drawn.copies * width for width in each))
    if body.size < sum(widths):
        raise _wrong("no keys")
    choices, wrapped, hashes, requests = np.split(body, np.cumsum(widths))
    pairs = base_ot.sender_keys(LINK, scalars, choices[None])[0]
    keys = _keys(drawn, chosen, wrapped, hashes, held)
    ours = [kind(drawn, name, copy, seed, keys[copy]) for copy, seed in enumerate(seeds)]
    for part, count in enumerate(drawn.parts):
        if part:
            requests = yield _NOTHING
        width = BatchShape(drawn.circuit, drawn.form, count).request_bytes
        if requests.size != width * drawn.copies:
            raise _wrong("not a request for each copy")
        for copy, request in enumerate(requests.reshape(drawn.copies, width)):
            ours[copy].answer(part, np.ascontiguousarray(request))

    points = choices[: drawn.copies * base_ot.POINT_BYTES].tobytes()
    statement = Statement(
        name,
        drawn.block,
        commitments,
        point.tobytes(),
        split(points, base_ot.POINT_BYTES, drawn.copies),
        tuple(keys_digest(each.tobytes()) for each in hashes.reshape(drawn.copies, -1)),
        tuple(xor(seeds[copy], pairs[copy, 0].tobytes()) for copy in copies),
        tuple(xor(witnesses[copy], pairs[copy, 1].tobytes()) for copy in copies),
        tuple(tuple(each.heard) for each in ours),
    )
    signature = signing.sign(statement.signed)
    body = yield _row(statement.said, signature, signing.certificate)

    if body.size != 1 + KEY_BYTES or body[0] >= drawn.copies:
        raise _wrong("no copy was chosen")
    kept = int(body[0])
    if body[1:].tobytes() != witnesses[kept]:
        raise _wrong("has no witness that it does not know the copy it chose")
    *before, last = ours[kept].rows
    for row in before:
        _check_empty((yield row))
    return last, np.concatenate(ours[kept].shares)


def _keys(drawn: Drawn, chosen: Bytes, wrapped: Bytes, hashes: Bytes, held: Bytes) -> Bytes:
    """One key of each pair, (copies, 128, 16), by the bits of each Δ. Raises `PeerError` unless
    they are those that were hashed.

    An evaluator may wrap another key than it hashed, and is refused if a bit of Δ chooses it: who
    guesses some bits learns them, as in the extension, and the rest stay secret.
    """
    picked = (np.arange(drawn.copies)[:, None], np.arange(COLUMNS)[None], chosen)
    keys: Bytes = wrapped.reshape(drawn.copies, COLUMNS, 2, BLOCK_BYTES)[picked]
    keys = keys ^ held.reshape(keys.shape)
    stated = hashes.reshape(drawn.copies, COLUMNS, 2, HASH_BYTES)[picked]
    if stated.tobytes() != key_hashes(keys.reshape(-1, BLOCK_BYTES)):
        raise _wrong("keys that are not those that it hashed")
    return keys


def _wrong(reason: str) -> PeerError:
    return PeerError("the other server", reason)


def _row(*parts: bytes) -> Bytes:
    return np.frombuffer(b"".join(parts), dtype=np.uint8)


def _parted(data: bytes, *widths: int) -> tuple[bytes, ...]:
    edges = np.cumsum([0, *widths]).tolist()
    return tuple(data[a:b] for a, b in zip(edges, [*edges[1:], len(data)], strict=True))


def _check_empty(body: Bytes) -> None:
    if body.size:
        raise _wrong("an answer where there is nothing to say")
