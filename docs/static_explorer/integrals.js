"use strict";

/* Integrals of a density in the page: Gauss–Legendre rules on panels of one bandwidth, which are exact to about 1e-8 for Gaussian kernels. */
const ksosIntegrals = (() => {
  const { axis, evaluator, onGrid } = ksosDensity;
  const FAR = 6.5; // bandwidths from the last support point: beyond, a density is below 1e-36 of its size
  const NODES = [0.1834346424956498, 0.525532409916329, 0.7966664774136267, 0.9602898564975363];
  const WEIGHTS = [0.362683783378362, 0.3137066458778873, 0.2223810344533745, 0.1012285362903763];
  const CELLS = 160, HEADROOM = 1.3; // of the envelope that samples are drawn from

  /** The bandwidth of each feature: the roots of the diagonal of S = (AᵀA)⁻¹. */
  function widths({ root }) {
    if (root.length === 1) return [1 / root[0][0]];
    const [[a, b], [c, d]] = root;
    const volume = Math.abs(a * d - b * c);
    return [Math.hypot(b, d) / volume, Math.hypot(a, c) / volume];
  }

  /** Where the density is, feature by feature: [low, high]. */
  function ends(model) {
    return widths(model).map((width, k) => {
      const at = model.support.map((x) => x[k]);
      return [Math.min(...at) - FAR * width, Math.max(...at) + FAR * width];
    });
  }

  /** Nodes and weights of the rule on [low, high], panel by panel, eight nodes each. */
  function rule([low, high], width) {
    const panels = Math.max(1, Math.ceil((high - low) / width));
    const half = (high - low) / (2 * panels);
    const [x, w] = [new Float64Array(8 * panels), new Float64Array(8 * panels)];
    for (let p = 0, n = 0; p < panels; p++) {
      const middle = low + (2 * p + 1) * half;
      for (let k = 0; k < 4; k++) {
        for (const sign of [-1, 1]) {
          x[n] = middle + sign * half * NODES[k];
          w[n++] = half * WEIGHTS[k];
        }
      }
    }
    return { x, w, panels, half };
  }

  const dot = (a, b) => a.reduce((sum, v, k) => sum + v * b[k], 0);

  /** ∫p over the box from low to high. */
  function probability(model, low, high) {
    const far = ends(model);
    const cut = far.map(([from, to], k) => [Math.max(from, low[k]), Math.min(to, high[k])]);
    if (cut.some(([from, to]) => !(from < to))) return 0;
    const rules = cut.map((range, k) => rule(range, widths(model)[k]));
    const values = onGrid(model, rules.map(({ x }) => x));
    if (rules.length === 1) return dot(values, rules[0].w);
    const [{ w, x: xs }, { w: across }] = rules;
    return across.reduce((sum, v, j) => sum + v * dot(values.subarray(j * xs.length, (j + 1) * xs.length), w), 0);
  }

  /** The distribution of one of two features given the other: its density on a line over ``range``, its mean and its quantiles. */
  function conditional(model, given, value, range, n, masses) {
    const other = 1 - given;
    const p = evaluator(model);
    const along = (t) => p(given === 0 ? [value, t] : [t, value]);
    const [from, to] = ends(model)[other];
    const width = widths(model)[other];
    const whole = rule([from, to], width);
    const values = whole.x.map(along);
    const total = dot(values, whole.w);
    if (!(total > 0)) throw new Error("the density vanishes at this value; condition on another one");
    const parts = Array.from({ length: whole.panels }, (_, k) => dot(values.subarray(8 * k, 8 * k + 8), whole.w.subarray(8 * k, 8 * k + 8)));
    const quantile = (q) => {
      let [k, left] = [0, q * total];
      while (k < parts.length - 1 && parts[k] < left) left -= parts[k++];
      const start = from + 2 * k * whole.half;
      let [low, high] = [start, start + 2 * whole.half];
      for (let step = 0; step < 50; step++) {
        const middle = (low + high) / 2;
        const piece = rule([start, middle], width);
        if (dot(piece.x.map(along), piece.w) < left) low = middle;
        else high = middle;
      }
      return (low + high) / 2;
    };
    const x = Array.from(axis(range, n));
    const mean = dot(values.map((v, k) => v * whole.x[k]), whole.w) / total;
    return { x, pdf: x.map((t) => along(t) / total), mean, other, quantiles: masses.map((q) => [q, quantile(q)]) };
  }

  /** Numbers between 0 and 1 that look random, the same for the same seed. */
  function generator(seed) {
    let state = (seed * 2654435769 + 1013904223) >>> 0;
    return () => {
      state = (state + 0x6d2b79f5) >>> 0;
      let t = Math.imul(state ^ (state >>> 15), state | 1);
      t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
      return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
    };
  }

  /** Samples by rejection: a cell of a grid, in proportion to a bound on p there, a point in it, which is kept with probability p/bound. */
  function samples(model, size, seed) {
    const random = generator(seed);
    const axes = ends(model).map((range) => axis(range, CELLS + 1));
    const [values, p, d] = [onGrid(model, axes), evaluator(model), axes.length];
    const corners = d === 1 ? [0, 1] : [0, 1, CELLS + 1, CELLS + 2];
    const cells = Array.from({ length: CELLS ** d }, (_, k) => {
      const first = d === 1 ? k : Math.floor(k / CELLS) * (CELLS + 1) + (k % CELLS);
      return HEADROOM * Math.max(...corners.map((c) => values[first + c]));
    });
    const summed = new Float64Array(cells.length);
    cells.reduce((sum, v, k) => (summed[k] = sum + v), 0);
    const out = [];
    while (out.length < size) {
      const left = random() * summed[summed.length - 1];
      let [low, high] = [0, summed.length - 1];
      while (low < high) {
        const middle = (low + high) >> 1;
        if (summed[middle] <= left) low = middle + 1;
        else high = middle;
      }
      const places = d === 1 ? [low] : [low % CELLS, Math.floor(low / CELLS)];
      const x = places.map((k, j) => axes[j][k] + random() * (axes[j][1] - axes[j][0]));
      if (random() * cells[low] < p(x)) out.push(x);
    }
    return out;
  }

  return { probability, conditional, samples };
})();
