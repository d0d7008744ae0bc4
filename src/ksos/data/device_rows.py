"""A survey of samples that lie on a GPU: their hashes are computed there, and only the rows that it
keeps come to the host.
"""

from __future__ import annotations

from dataclasses import replace

from ksos.data.subsample import ODD, Survey
from ksos.ground.arrays import Array, bits, namespace, to_numpy

__all__ = ["device_hashes", "surveyed"]

_SIGN = -(2**63)


def surveyed(survey: Survey, X: Array, masses: Array) -> Survey:
    """``survey`` and more samples (n, d) of these masses: the same value as after
    ``survey.update``.

    Rows beyond the hashes that are kept change nothing but the count. One hash more than there is
    room for shows that there are more.
    """
    xp, order, counted = (
        namespace(X),
        device_hashes(X) ^ _SIGN,
        masses > 0.0,
    )  # without the sign, integers are in the order of their bits
    count, room = int(xp.sum(xp.astype(counted, xp.int64))), survey.room
    if survey.overflown:
        last: Array | int | None = _signed(int(survey.hashes[-1])) ^ _SIGN
    else:
        lowest = xp.sort(xp.unique_values(order[counted]))
        last = lowest[room] if lowest.shape[0] > room else None
    if last is not None:
        counted = counted & (order <= last)
    (chosen,) = xp.nonzero(counted)
    if not chosen.shape[0]:
        return replace(survey, count=survey.count + count)
    found = survey.update(to_numpy(xp.take(X, chosen, axis=0)), to_numpy(xp.take(masses, chosen)))
    return replace(found, count=survey.count + count)


def device_hashes(X: Array) -> Array:
    """The 64 bits of ``row_hashes`` as signed integers, whose products and sums wrap around in the
    same way.
    """
    columns = bits(X + 0.0)
    hashes = columns[:, 0] ^ columns[:, 0]
    for k in range(X.shape[1]):
        hashes = (hashes ^ columns[:, k]) + _signed(int(ODD[0]))
        for shift, factor in ((30, ODD[1]), (27, ODD[2])):
            hashes = (hashes ^ _shifted(hashes, shift)) * _signed(int(factor))
        hashes = hashes ^ _shifted(hashes, 31)
    return hashes


def _shifted(hashes: Array, shift: int) -> Array:
    """To the right, with zeros from the left."""
    return (hashes >> shift) & ((1 << (64 - shift)) - 1)


def _signed(number: int) -> int:
    """The signed integer of the same 64 bits."""
    return number - 2**64 if number >= 2**63 else number
