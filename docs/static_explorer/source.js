"use strict";

/* Where the answers of the site's page come from: fits that were made with the site, and integrals of their densities. No server is asked;
   files come as scripts, since a page that is read from a disk may not read other files in another way. */
const ksosSource = (() => {
  const QUANTILES = [0.05, 0.5, 0.95], LINE = 201, LEVELS = 201;
  const sets = [/* sets */];
  const loaded = {};
  let [chosen, fit] = [null, null];

  function script(file) {
    loaded[file] ||= new Promise((done, failed) => {
      const element = Object.assign(document.createElement("script"), { src: file });
      element.addEventListener("load", done);
      element.addEventListener("error", () => failed(new Error(`The file ${file} is missing beside this page.`)));
      document.head.append(element);
    });
    return loaded[file];
  }

  /** Numbers that were written as the bytes of doubles, in rows. */
  function rows(text, columns) {
    const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
    const numbers = Array.from(new Float64Array(bytes.buffer));
    return Array.from({ length: numbers.length / columns }, (_, k) => numbers.slice(k * columns, (k + 1) * columns));
  }

  async function data({ set }) {
    await Promise.all([script("integrals.js"), script(`fits-${set || sets[0][0]}.js`)]);
    chosen = ksosFits[set || sets[0][0]];
    return chosen.data;
  }

  /** The recorded fit; features in another order are the same fit with its columns changed. */
  function recorded(asked) {
    const sorted = [...asked.features].sort((a, b) => a - b);
    const turned = String(sorted) !== String(asked.features);
    const key = [sorted.join("+"), asked.scale, asked.regularization ?? "automatic", asked.n_support].join(" ");
    const record = chosen.fits[key];
    if (record === undefined) throw new Error(`there is no fit with ${key} among those made beforehand`);
    const found = record.model;
    const turn = (list) => (turned && Array.isArray(list) ? [...list].reverse() : list);
    const turnAll = (list) => (turned ? turn(list).map(turn) : list);
    const support = rows(found.support, sorted.length).map(turn);
    const model = { ...found, support, factor: rows(found.factor, found.rank), root: turnAll(found.root) };
    fit = { ...record, features: asked.features, model };
    return { ...fit, bandwidth: turnAll(record.bandwidth) };
  }

  const answers = {
    data,
    fit: recorded,
    cancel: () => ({ canceled: true }),
    progress: () => ({ n_iter: 0 }),
    details: () => {
      const axes = fit.features.map((k) => ksosDensity.axis(chosen.data.ranges[k], LEVELS));
      const levels = ksosDensity.roughLevels(ksosDensity.onGrid(fit.model, axes), chosen.data.masses);
      return { stale: false, levels: levels.map((level, k) => ({ mass: chosen.data.masses[k], level })), exact_mmd: fit.exact_mmd, exact_mmd_why: "" };
    },
    conditional: ({ feature, value }) => {
      const range = chosen.data.ranges[fit.features[1 - feature]];
      return ksosIntegrals.conditional(fit.model, feature, value, range, LINE, QUANTILES);
    },
    box: ({ low, high }) => ({ probability: ksosIntegrals.probability(fit.model, low, high) }),
    samples: ({ size, seed }) => ({ samples: ksosIntegrals.samples(fit.model, Math.min(size, chosen.data.limits.samples), seed) }),
    program: () => ({ program: chosen.program[0] + fit.program + chosen.program[1] }),
  };

  return { sets, answer: async (question, asked = {}) => answers[question](asked), model: null, shown: () => fit };
})();
