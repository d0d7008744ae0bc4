"""The choice between the ways to sample."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ksos._memory import available_memory, require_memory
from ksos._validation import as_choice
from ksos.density.moments import node_masses
from ksos.density.sampling.cost import inversion_seconds, rejection_seconds, rejection_setup_seconds
from ksos.density.sampling.envelopes import Envelope, envelope, envelope_bytes
from ksos.density.sampling.inversion import draw_by_inversion
from ksos.density.sampling.rejection import draw_by_rejection
from ksos.measures import Discrete

if TYPE_CHECKING:
    from ksos.density.sos import SoSDensity

__all__ = ["METHODS", "draw", "faster_envelope"]

METHODS = ("auto", "inversion", "rejection")
_MEMORY_SHARE = 0.25  # of the available memory: "auto" takes no more for an envelope


def draw(density: SoSDensity, size: int, rng: np.random.Generator, method: str = "auto") -> np.ndarray:
    """``size`` independent samples of ``density``, shape (size, d); ``method`` is one of :data:`METHODS`."""
    method = as_choice(method, "method", METHODS)
    m = density.support_points.shape[0]
    if method == "rejection":
        require_memory(envelope_bytes(m), f"the envelope of a density with {m} support points", "compress it, or use method='inversion'")
        given = envelope(density)
        if given is None:
            raise ValueError(f"no envelope of a density on {density.measure!r} is known: method='rejection' needs one; use 'inversion'")
        return draw_by_rejection(given, size, rng)
    if isinstance(density.measure, Discrete):  # the distribution function of the nodes' numbers is inverted
        nodes = rng.choice(density.measure.points.shape[0], size=size, p=node_masses(density))
        return density.measure.points[nodes]
    faster = faster_envelope(density, size) if method == "auto" else None
    return draw_by_inversion(density, size, rng) if faster is None else draw_by_rejection(faster, size, rng)


def faster_envelope(density: SoSDensity, size: int) -> Envelope | None:
    """The envelope, if ``size`` samples are predicted to come faster by rejection from it than by inversion; None otherwise."""
    inversion = inversion_seconds(density, size)
    if rejection_setup_seconds(density) > inversion or envelope_bytes(density.support_points.shape[0]) > _MEMORY_SHARE * available_memory():
        return None
    candidate = envelope(density)
    return candidate if candidate is not None and rejection_seconds(candidate, size) < inversion else None
