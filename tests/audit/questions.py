"""Random questions to random densities, answered again by the referee's quadrature."""

from __future__ import annotations

from typing import Any

import numpy as np

import ksos
from audit.problems import KERNELS, loud, measure_of
from audit.referee import Finding, density, normal_density, rule_for, rule_of
from ksos.measures import Box

Answer = tuple[str, Any, Any, float]
"""(question, the library's answer, the referee's, by how much they may differ)."""


def questions(seed: int) -> tuple[int, list[Finding]]:
    """About ten questions to one random density on the line or in the plane: how many, and what was
    answered wrongly.
    """
    rng = np.random.default_rng([20, seed])
    d, name = int(rng.choice([1, 2])), str(rng.choice(list(KERNELS)))
    kind = str(
        rng.choice(["lebesgue", "box", "quadrature"] + (["normal"] if name == "gaussian" else []))
    )
    m = int(rng.integers(1, 9 if d == 1 else 6))
    points = np.clip(rng.normal(scale=0.8, size=(m, d)), -1.9, 1.9)
    kernel, measure = KERNELS[name](rng.uniform(0.4, 1.2, size=d)), measure_of(kind, d, rng)
    p = ksos.SoSDensity(
        kernel, points, rng.normal(size=(m, int(rng.integers(1, 4)))), measure, normalize=True
    )
    coarse = (
        {"per_bandwidth": 0.5}
        if d == 1
        else {"per_bandwidth": 1.5, "reach": 1.0 if name == "gaussian" else 1 / 1.6}
    )
    rule = rule_of(p, **coarse)
    masses, sample = rule.weights * density(p, rule.nodes), rng.uniform(-2.0, 2.0, (5, d))
    with loud():
        answers = _moments(p, rule.nodes, masses, sample)
        if kind != "quadrature":
            answers += [
                _box(p, *np.sort(rng.uniform(-2.0, 2.0, (2, d)), axis=0), coarse["per_bandwidth"])
            ]
            answers += _on_a_line(p, rng) if d == 1 else _in_the_plane(p, sample[:1], coarse)
    out = []
    for what, answer, truth, tol in answers:
        answer, truth = np.asarray(answer, float).ravel(), np.asarray(truth, float).ravel()
        if not np.all(np.abs(answer - truth) <= tol * max(1.0, float(np.abs(truth).max()))):
            worst = int(np.argmax(np.abs(answer - truth)))
            out.append(
                Finding(
                    f"question {seed}: {name} {kind} d={d} m={m}",
                    what,
                    float(answer[worst]),
                    float(truth[worst]),
                )
            )
    return len(answers), out


def _moments(p: Any, x: np.ndarray, masses: np.ndarray, sample: np.ndarray) -> list[Answer]:
    mean, estimate = masses @ x, p.expectation(lambda Y: np.cos(np.sum(Y, axis=1)))
    at = density(p, sample)
    return [
        ("mass", p.terms.mass(), masses.sum(), 1e-9),
        ("mean", p.mean(), mean, 1e-8),
        ("cov", p.cov(), ((x - mean) * masses[:, None]).T @ (x - mean), 1e-7),
        ("pdf", p.pdf(sample), at, 1e-10),
        ("logpdf", p.logpdf(sample), np.log(np.maximum(at, np.finfo(np.longdouble).tiny)), 1e-8),
        (
            "expectation",
            float(estimate),
            masses @ np.cos(np.sum(x, axis=1)),
            1e-6 + 10 * estimate.error,
        ),
    ]


def _box(p: Any, low: np.ndarray, high: np.ndarray, per_bandwidth: float) -> Answer:
    inside = np.concatenate([np.asarray(p.support_points, float), [low], [high]])
    rule = rule_for(Box(low, high), inside, per_bandwidth * float(np.min(p.kernel.sigma)), 100.0)
    weights = (
        rule.weights * normal_density(p.measure, rule.nodes)
        if p.measure.name == "normal"
        else rule.weights
    )
    return "probability", p.probability(low, high), weights @ density(p, rule.nodes), 1e-8


def _on_a_line(p: Any, rng: np.random.Generator) -> list[Answer]:
    q, mass = np.array([0.05, 0.5, 0.95]), float(rng.choice([0.5, 0.8, 0.95]))
    rule, level = (
        rule_of(p, per_bandwidth=0.02 if p.kernel.name == "gaussian" else 0.2),
        float(p.hdr_level(mass)),
    )
    values = density(p, rule.nodes)
    held = float((rule.weights * values)[values >= level].sum())
    return [
        ("cdf of ppf", p.cdf(np.asarray(p.ppf(q)).reshape(-1, 1)), q, 1e-8),
        # the referee's rule does not know the ends of the region: each may cost it one node's mass
        ("mass above hdr_level", mass, held, 1e-8 + 8 * float((rule.weights * values).max())),
    ]


def _in_the_plane(p: Any, sample: np.ndarray, coarse: dict[str, float]) -> list[Answer]:
    here, points = float(sample[0, 0]), np.asarray(p.support_points, float)
    away = (
        coarse.get("reach", 1.0)
        * float(np.max(p.kernel.sigma))
        * (7.0 if p.kernel.name == "gaussian" else 55.0)
    )
    line = rule_for(
        p.measure.restrict([1]),
        points[:, 1:],
        coarse["per_bandwidth"] * float(np.min(p.kernel.sigma)),
        away,
    )
    on_line = line.weights @ density(
        p, np.column_stack([np.full(len(line.nodes), here), line.nodes[:, 0]])
    )
    return [
        ("marginal", p.marginal([0]).pdf([[here]]), on_line, 1e-8),
        (
            "conditional",
            p.conditional({0: here}).pdf(sample[:, 1:]),
            density(p, sample) / on_line,
            1e-7,
        ),
    ]
