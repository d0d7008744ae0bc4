"use strict";

/* Densities from their numbers: p(x) = ‖c + Fᵀk(x)‖²·ρ(x). With z = A(x − x̃_i), a Gaussian kernel is k_i(x) = exp(−‖z‖²); the Laplace and
   Matérn kernels are products over the features, k_i(x) = Π_j e^{−|z_j|} Σ_n q_n |z_j|ⁿ. ρ is 1 or a sum of normal laws. */
const ksosDensity = (() => {
  const NOTHING = 740; // exp(−740) is the smallest number there is

  /** A x for a matrix A in rows. */
  function times(A, x) {
    return A.map((row) => row.reduce((sum, a, k) => sum + a * x[k], 0));
  }

  /** The kernel as a function of the d coordinates z − c, c being a part of a list. */
  function kernelOf(polynomial) {
    if (polynomial === null) {
      return (z, list, offset, d) => {
        let t = 0;
        for (let j = 0; j < d; j++) t += (z[j] - list[offset + j]) ** 2;
        return t > NOTHING ? 0 : Math.exp(-t);
      };
    }
    return (z, list, offset, d) => {
      let [t, k] = [0, 1];
      for (let j = 0; j < d; j++) {
        const r = Math.abs(z[j] - list[offset + j]);
        t += r;
        k *= polynomial.reduceRight((sum, q) => sum * r + q, 0);
      }
      return t > NOTHING ? 0 : k * Math.exp(-t);
    };
  }

  /** ρ(x), as a function. */
  function reference(laws) {
    if (laws === null) return () => 1;
    return (x) => laws.reduce((sum, law) => {
      const z = times(law.root, x.map((v, k) => v - law.mean[k]));
      return sum + law.height * Math.exp(-z.reduce((t, v) => t + v * v, 0));
    }, 0);
  }

  /** What does not depend on x. */
  function prepared(model) {
    const [m, rank, d] = [model.support.length, model.factor[0].length, model.root.length];
    return {
      m, rank, d, kernel: kernelOf(model.polynomial), rho: reference(model.laws), root: model.root,
      centers: Float64Array.from(model.support.flatMap((x) => times(model.root, x))),
      F: Float64Array.from(model.factor.flat()),
      c: model.constant === null ? new Float64Array(rank) : Float64Array.from(model.constant),
    };
  }

  function squares(values) {
    let sum = 0;
    for (let r = 0; r < values.length; r++) sum += values[r] * values[r];
    return sum;
  }

  /** The function x ↦ p(x) of a model; x is an array of d numbers. */
  function evaluator(model) {
    const { m, rank, d, kernel, rho, root, centers, F, c } = prepared(model);
    const values = new Float64Array(rank);
    return (x) => {
      const z = times(root, x);
      values.set(c);
      for (let i = 0; i < m; i++) {
        const k = kernel(z, centers, i * d, d);
        if (k === 0) continue;
        for (let r = 0, at = i * rank; r < rank; r++) values[r] += k * F[at + r];
      }
      return squares(values) * rho(x);
    };
  }

  /** n points from low to high. */
  function axis([low, high], n) {
    return Float64Array.from({ length: n }, (_, i) => low + ((high - low) * i) / (n - 1));
  }

  /** p on the grid of the axes, the first one fastest. */
  function onGrid(model, axes) {
    if (axes.length === 1) {
      const p = evaluator(model);
      return axes[0].map((x) => p([x]));
    }
    return model.root[0][1] === 0 && model.root[1][0] === 0 ? onProductGrid(model, axes) : onEveryPoint(model, axes);
  }

  function onEveryPoint(model, [xs, ys]) {
    const p = evaluator(model);
    const out = new Float64Array(xs.length * ys.length);
    for (let j = 0, at = 0; j < ys.length; j++) for (let i = 0; i < xs.length; i++, at++) out[at] = p([xs[i], ys[j]]);
    return out;
  }

  /** The same where features do not mix: k = k₁(x)·k₂(y), and the kernels of a row of the grid are computed once. */
  function onProductGrid(model, [xs, ys]) {
    const { m, rank, kernel, rho, root, centers, F, c } = prepared(model);
    const kernels = (values, k) => {
      const out = new Float64Array(values.length * m);
      for (let a = 0; a < values.length; a++) for (let i = 0; i < m; i++) out[a * m + i] = kernel([root[k][k] * values[a]], centers, 2 * i + k, 1);
      return out;
    };
    const [alongX, alongY] = [kernels(xs, 0), kernels(ys, 1)];
    const [row, values, out] = [new Float64Array(m * rank), new Float64Array(rank), new Float64Array(xs.length * ys.length)];
    for (let b = 0, at = 0; b < ys.length; b++) {
      for (let i = 0, n = 0; i < m; i++) for (let r = 0; r < rank; r++, n++) row[n] = alongY[b * m + i] * F[n];
      for (let a = 0; a < xs.length; a++, at++) {
        values.set(c);
        for (let i = 0, n = 0; i < m; i++) {
          const k = alongX[a * m + i];
          if (k === 0) n += rank;
          else for (let r = 0; r < rank; r++, n++) values[r] += k * row[n];
        }
        out[at] = squares(values);
        if (model.laws !== null) out[at] *= rho([xs[a], ys[b]]);
      }
    }
    return out;
  }

  /** The levels above which values of a grid hold shares of their sum: near the exact ones, and at once. */
  function roughLevels(values, masses) {
    const sorted = Float64Array.from(values).sort().reverse();
    const total = sorted.reduce((sum, v) => sum + v, 0);
    return masses.map((mass) => {
      let sum = 0;
      return sorted.find((v) => (sum += v) >= mass * total) || 0;
    });
  }

  return { evaluator, axis, onGrid, roughLevels };
})();
