"use strict";

/* Densities from their numbers: p(x) = ‖c + Fᵀk(x)‖²·ρ(x) with k_i(x) = exp(−‖A(x − x̃_i)‖²); ρ is 1 or a sum of normal laws. */
const ksosDensity = (() => {
  const NOTHING = 740; // exp(−740) is the smallest number there is

  /** A x for a matrix A in rows. */
  function times(A, x) {
    return A.map((row) => row.reduce((sum, a, k) => sum + a * x[k], 0));
  }

  function squaredDistance(z, list, offset, d) {
    let sum = 0;
    for (let k = 0; k < d; k++) {
      const t = z[k] - list[offset + k];
      sum += t * t;
    }
    return sum;
  }

  /** The function x ↦ p(x) of a model; x is an array of d numbers. */
  function evaluator(model) {
    const d = model.root.length;
    const rank = model.factor[0].length;
    const m = model.support.length;
    const centres = Float64Array.from(model.support.flatMap((x) => times(model.root, x)));
    const F = Float64Array.from(model.factor.flat());
    const c = model.constant === null ? null : Float64Array.from(model.constant);
    const values = new Float64Array(rank);
    return (x) => {
      const z = times(model.root, x);
      if (c === null) values.fill(0);
      else values.set(c);
      for (let i = 0; i < m; i++) {
        const t = squaredDistance(z, centres, i * d, d);
        if (t > NOTHING) continue;
        const k = Math.exp(-t);
        for (let r = 0, at = i * rank; r < rank; r++) values[r] += k * F[at + r];
      }
      let p = 0;
      for (let r = 0; r < rank; r++) p += values[r] * values[r];
      if (model.laws === null) return p;
      let rho = 0;
      for (const law of model.laws) {
        rho += law.height * Math.exp(-squaredDistance(times(law.root, x.map((v, k) => v - law.mean[k])), new Float64Array(d), 0, d));
      }
      return p * rho;
    };
  }

  /** n points from low to high. */
  function axis([low, high], n) {
    return Float64Array.from({ length: n }, (_, i) => low + ((high - low) * i) / (n - 1));
  }

  /** p on the grid of the axes, the first one fastest. */
  function onGrid(model, axes) {
    const p = evaluator(model);
    if (axes.length === 1) return axes[0].map((x) => p([x]));
    const [xs, ys] = axes;
    const out = new Float64Array(xs.length * ys.length);
    for (let j = 0, at = 0; j < ys.length; j++) for (let i = 0; i < xs.length; i++, at++) out[at] = p([xs[i], ys[j]]);
    return out;
  }

  /** The level above which values of a grid hold a share of their sum: near the exact one, and at once. */
  function roughLevel(values, mass) {
    const sorted = Float64Array.from(values).sort().reverse();
    const total = sorted.reduce((sum, v) => sum + v, 0);
    let sum = 0;
    for (const v of sorted) {
      sum += v;
      if (sum >= mass * total) return v;
    }
    return 0;
  }

  return { evaluator, axis, onGrid, roughLevel };
})();
