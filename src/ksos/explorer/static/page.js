"use strict";

/* The page: controls ask the source for fits and answers, pictures and readings follow. */
(() => {
  const { axis, onGrid, roughLevels } = ksosDensity;
  const { whole, panels, shortNumber } = ksosDrawing;
  const { sets, answer, model } = ksosSource; // model is null where there is no file to save
  const SIDE = 81, LINE = 401; // points of a grid, of a line
  const SOON = 200, REST = 250; // milliseconds: until progress shows; until a slider that does not move is at rest
  const DRAG = 6; // pixels from which a click is a drag
  const HELP = [
    "Drag to read the probability of an interval. With the keyboard: arrows move the line, and the fields of the interval take numbers.",
    "Click to condition on a value, drag to read the probability of a box. With the keyboard: arrows move the cross, Enter conditions on it, and the fields take numbers.",
    "Click on a panel to see it alone; with the keyboard, leave all pairs and choose its features.",
  ];
  const READINGS = [
    ["status", "status"], ["objective", "objective"], ["gap", "gap, at most"], ["projected_mmd", "MMD, projected"], ["exact_mmd", "MMD, exact"],
    ["score", "held-out log-density"], ["n_components", "Gaussians of the reference"], ["n_support", "support points"], ["rank", "rank"], ["bandwidth", "bandwidth"],
    ["regularization", "λ"], ["fit_ms", "fit, ms"], ["level_50", "level of 50%"], ["level_90", "level of 90%"],
  ];
  const $ = (id) => document.getElementById(id);
  const state = { data: null, fit: null, axes: [], values: null, levels: null, area: null, samples: [], box: null, given: null, cursor: null, pairs: null, seed: 0 };
  const running = { serial: 0, started: 0, busy: false, draft: false, pending: false, timer: 0, rest: 0 };
  let automaticStrength = true;

  /** Runs what a control asks for, and says what went wrong. */
  async function attempt(work) {
    try {
      $("error").textContent = "";
      await work();
    } catch (error) {
      $("error").textContent = error.message;
    }
  }

  // --- controls ---

  function options(select, pairs) {
    select.replaceChildren(...pairs.map(([value, text]) => new Option(text, value)));
  }

  function features() {
    if ($("all").checked) return state.data.names.slice(0, state.data.limits.features).map((_, k) => k);
    const [first, second] = [Number($("first").value), $("second").value];
    return second === "" || Number(second) === first ? [first] : [first, Number(second)];
  }

  function settings() {
    return {
      features: features(),
      scale: Number((2 ** Number($("scale").value)).toPrecision(4)),
      regularization: automaticStrength ? null : Number((10 ** Number($("strength").value)).toPrecision(4)),
      n_support: Number($("support").value),
      reference: $("reference").value,
      objective: $("objective").value,
      kernel: $("kernel").value,
    };
  }

  function showControls() {
    $("scale-shown").textContent = shortNumber(2 ** Number($("scale").value));
    $("strength-shown").textContent = automaticStrength ? "automatic" : Number((10 ** Number($("strength").value)).toPrecision(2)).toExponential();
    $("support-shown").textContent = $("support").value;
    for (const id of ["first", "second"]) $(id).disabled = $("all").checked;
    for (const id of ["scale", "strength", "support"]) $(id).setAttribute("aria-valuetext", $(`${id}-shown`).textContent);
  }

  // --- fits ---

  /** A moving slider asks for drafts, as many as there is time for; once it rests, the fit itself takes the place of the last one. */
  function wantFit(draft = false) {
    showControls();
    if (running.busy && running.draft && performance.now() - running.started < SOON) running.pending = true;
    else send(draft);
  }

  async function send(draft) {
    const serial = ++running.serial;
    Object.assign(running, { busy: true, draft, pending: false, started: performance.now() });
    clearTimeout(running.rest);
    clearTimeout(running.timer);
    running.timer = setTimeout(() => (running.pending ? send(true) : watch(serial)), SOON);
    await attempt(async () => {
      const found = await answer("fit", { ...settings(), draft, turn: serial });
      if (serial !== running.serial) return;
      if (found.canceled) $("status").textContent = "Cancelled; the picture is that of the fit before.";
      else take(found);
    });
    if (serial !== running.serial) return;
    running.busy = false;
    clearTimeout(running.timer);
    $("running").hidden = true;
    if (running.pending) send(true);
  }

  /** Shows how far a long fit is. */
  async function watch(serial) {
    $("running").hidden = false;
    while (running.busy && serial === running.serial) {
      try {
        const seen = await answer("progress");
        const gap = seen.gap === undefined || seen.gap === null ? "" : `, gap ${seen.gap.toExponential(1)}`;
        $("running-text").textContent = seen.n_iter ? `iteration ${seen.n_iter}${gap}` : "preparing the fit";
      } catch {
        return; // the fit itself says what is wrong
      }
      if (running.pending) return send(true);
      await new Promise((done) => setTimeout(done, 150));
    }
    return undefined;
  }

  function take(found) {
    const moved = !state.fit || String(found.features) !== String(state.fit.features);
    state.fit = { ...found, fit_ms: found.seconds * 1000 };
    Object.assign(state, { levels: null, samples: [], pairs: null });
    if (moved) Object.assign(state, { box: null, given: null, cursor: null });
    if (automaticStrength) $("strength").value = Math.log10(found.regularization);
    $("conditional-text").textContent = $("box-text").textContent = "";
    if (moved) prepareQuestions();
    const ranges = found.features.map((k) => state.data.ranges[k]);
    state.axes = ranges.map((range) => axis(range, ranges.length === 1 ? LINE : SIDE));
    state.values = found.model ? onGrid(found.model, state.axes) : found.values && Float64Array.from(found.values);
    state.levels = found.model || !found.values ? null : [];
    draw();
    readings();
    $("warnings").replaceChildren(...found.warnings.map((text) => Object.assign(document.createElement("li"), { textContent: text })));
    $("status").textContent = `${found.draft ? "Draft: " : ""}${found.status} by ${found.solver} in ${found.n_iter} iterations.`;
    $("program").hidden = $("copy").hidden = true;
    document.body.dataset.fits = Number(document.body.dataset.fits || 0) + 1;
    Object.assign(document.body.dataset, { draft: found.draft, milliseconds: performance.now() - running.started, processor: 1000 * found.processor_seconds });
    if (found.draft) running.rest = setTimeout(() => send(false), REST);
    else attempt(details);
  }

  /** The answers that take longer than a fit, once the controls rest. */
  async function details() {
    const serial = running.serial;
    if (state.fit.features.length > 2) {
      const found = await answer("pairs");
      if (serial !== running.serial) return;
      state.pairs = found;
      draw();
    }
    if (state.given) await conditional();
    if (state.box) await probability();
    const found = await answer("details");
    if (found.stale || serial !== running.serial) return;
    state.levels = found.levels.map((one) => one.level);
    state.fit.exact_mmd = found.exact_mmd;
    state.fit.exact_mmd_why = found.exact_mmd_why;
    [state.fit.level_50, state.fit.level_90] = state.levels;
    draw();
    readings();
    document.body.dataset.details = document.body.dataset.fits;
  }

  /** One bandwidth per feature; of a metric S, the roots of its diagonal. */
  function widths(bandwidth) {
    return bandwidth.map((value, k) => (Array.isArray(value) ? Math.sqrt(value[k]) : value));
  }

  function readings() {
    const listed = READINGS.filter(([key]) => state.fit.model || !key.startsWith("level"));
    const rows = listed.flatMap(([key, text]) => {
      const value = state.fit[key];
      const term = Object.assign(document.createElement("dt"), { textContent: text });
      const shown = Object.assign(document.createElement("dd"), { id: `reading-${key}` });
      if (value === undefined) shown.textContent = "…";
      else if (value === null) shown.textContent = key === "exact_mmd" && state.fit.model ? "takes too long" : "none";
      else if (typeof value === "number") shown.textContent = key === "gap" ? value.toExponential(1) : String(Number(value.toPrecision(5)));
      else shown.textContent = Array.isArray(value) ? widths(value).map(shortNumber).join(", ") : value;
      if (value === null && state.fit[`${key}_why`]) shown.title = state.fit[`${key}_why`];
      shown.dataset.value = JSON.stringify(value === undefined ? null : value);
      return [term, shown];
    });
    $("readings").replaceChildren(...rows);
  }

  // --- pictures ---

  function name(k) {
    return state.data.names[state.fit ? state.fit.features[k] : features()[k]];
  }

  /** The levels of a category that is shown; null of a number. */
  function levelsOf(i) {
    const found = state.data.levels && state.data.levels[state.fit ? state.fit.features[i] : features()[i]];
    return found && found.length ? found : null;
  }

  function draw() {
    if (!state.data) return;
    const shown = state.fit ? state.fit.features : features();
    const ranges = shown.map((k) => state.data.ranges[k]);
    const rows = state.data.points.map((point) => shown.map((k) => point[k])).filter((row) => row.every((value) => value !== null));
    state.area = null;
    if (shown.length > 2) drawPairs(shown, ranges, rows);
    else if (shown.length === 2) drawPlane(ranges, rows);
    else drawLine(ranges, rows);
    drawConditional();
  }

  function levels() {
    return state.levels || roughLevels(state.values, state.data.masses);
  }

  function drawPlane(ranges, rows) {
    const area = (state.area = whole($("plot"), ...ranges));
    if (state.values) area.heat(state.values, SIDE, SIDE);
    if ($("show-rows").checked) area.marks(rows, "--rows", "dot");
    if (state.values && $("show-regions").checked) {
      levels().forEach((level, k) => area.contour(state.values, ...state.axes, level, "--regions", k ? [5, 4] : []));
    }
    if (state.fit && state.fit.model && $("show-support").checked) area.marks(state.fit.model.support, "--support", "ring");
    if ($("show-samples").checked) area.marks(state.samples, "--samples", "cross");
    if (state.given) area.rule(state.given.value, state.given.feature === 0, "--box");
    if (state.cursor) area.marks([state.cursor], "--box", "cross");
    if (state.box) area.box(...state.box);
    area.levels = [levelsOf(0), levelsOf(1)];
    area.frame(name(0), name(1));
    describe(`Heat map of the density of ${name(0)} and ${name(1)}`);
  }

  function drawLine(ranges, rows) {
    const most = state.values ? Math.max(...state.values) * 1.1 : 1;
    const area = (state.area = whole($("plot"), ranges[0], [0, most]));
    if ($("show-rows").checked) area.rug(rows.map((row) => row[0]), "--rows", false);
    if (state.values) {
      if ($("show-regions").checked) levels().forEach((level) => area.rule(level, false, "--regions"));
      area.line(state.axes[0], state.values, "--curve");
      if (state.fit.model && $("show-support").checked) area.rug(state.fit.model.support.map((x) => x[0]), "--support", true);
    }
    if ($("show-samples").checked) area.marks(state.samples.map((x) => [x[0], most * 0.05]), "--samples", "cross");
    if (state.cursor) area.rule(state.cursor[0], true, "--box");
    if (state.box) area.box(state.box[0], [0, most]);
    area.levels = [levelsOf(0)];
    area.frame(name(0), levelsOf(0) ? "probability" : "density");
    describe(`Curve of the density of ${name(0)}`);
  }

  function drawPairs(shown, ranges, rows) {
    state.panels = panels($("plot"), ranges);
    for (const [row, column, area] of state.panels) {
      if (row === column) {
        if (state.pairs) {
          const values = state.pairs.singles[row];
          area.yRange = [0, Math.max(...values) * 1.1];
          area.line(axis(ranges[row], state.pairs.side), values, "--curve");
        }
      } else {
        const found = state.pairs && state.pairs.pairs.find((one) => one.pair[0] === column && one.pair[1] === row);
        if (found) area.heat(Float64Array.from(found.pdf), state.pairs.side, state.pairs.side);
        if ($("show-rows").checked) area.marks(rows.map((x) => [x[column], x[row]]), "--rows", "dot");
        if ($("show-samples").checked) area.marks(state.samples.map((x) => [x[column], x[row]]), "--samples", "cross");
      }
      area.frame(row === shown.length - 1 ? name(column) : "", column === 0 ? name(row) : "", false);
    }
    describe(`Densities of ${shown.length} features and of all their pairs; click on one to see it alone`);
  }

  function describe(what) {
    const fit = state.fit;
    $("plot").setAttribute("aria-label", fit ? `${what}: ${fit.status}, objective ${fit.objective.toPrecision(4)}` : `${what}: being fitted`);
  }

  function drawConditional() {
    const found = state.given && state.given.found;
    const area = whole($("conditional"), found ? [found.x[0], found.x[found.x.length - 1]] : [0, 1], [0, found ? Math.max(...found.pdf) * 1.1 || 1 : 1]);
    if (!found) return;
    area.line(found.x, found.pdf, "--curve");
    for (const [, value] of found.quantiles) area.rule(value, true, "--regions");
    area.levels = [levelsOf(found.other)];
    area.frame(name(found.other), "");
    $("conditional").setAttribute("aria-label", `Density of ${name(found.other)} given ${name(state.given.feature)} = ${valueText(state.given)}`);
  }

  function valueText(given) {
    const levels = levelsOf(given.feature);
    return levels ? levels[given.value] : shortNumber(given.value);
  }

  // --- questions about the density ---

  function prepareQuestions() {
    const shown = state.fit.features;
    $("plot-help").textContent = HELP[Math.min(shown.length, 3) - 1];
    $("condition").hidden = shown.length !== 2;
    if (shown.length === 2) options($("given"), shown.map((k, i) => [i, state.data.names[k]]));
    chooseGiven();
    $("sides").replaceChildren(...shown.map((k, i) => {
      const row = Object.assign(document.createElement("div"), { className: "sides" });
      if (levelsOf(i)) {
        const label = Object.assign(document.createElement("label"), { textContent: state.data.names[k] });
        const select = Object.assign(document.createElement("select"), { id: `low-${i}` });
        options(select, [["", "any"], ...levelsOf(i).map((text, code) => [code, text])]);
        label.append(select);
        row.append(label);
        return row;
      }
      for (const end of ["low", "high"]) {
        const label = Object.assign(document.createElement("label"), { textContent: `${state.data.names[k]}, ${end}` });
        label.append(Object.assign(document.createElement("input"), { type: "number", step: "any", id: `${end}-${i}`, placeholder: end === "low" ? "−∞" : "∞" }));
        row.append(label);
      }
      return row;
    }));
  }

  /** A category is given by a choice, a number by a field. */
  function chooseGiven() {
    const levels = state.fit.features.length === 2 ? levelsOf(Number($("given").value)) : null;
    $("level").closest("p").hidden = !levels;
    $("value").closest("p").hidden = Boolean(levels);
    if (levels) options($("level"), levels.map((text, code) => [code, text]));
  }

  async function conditional() {
    const feature = Number($("given").value);
    const given = { feature, value: Number($(levelsOf(feature) ? "level" : "value").value) };
    const found = await answer("conditional", given);
    state.given = { ...given, found };
    const parts = found.probabilities
      ? found.probabilities.map((p, code) => `${levelsOf(found.other)[code]} ${Number(p.toPrecision(3))}`)
      : found.quantiles.map(([q, value]) => `${100 * q}%: ${shortNumber(value)}`);
    const what = found.probabilities ? `probabilities ${parts.join(", ")}` : `mean ${shortNumber(found.mean)}; quantiles ${parts.join(", ")}`;
    $("conditional-text").textContent = `${name(found.other)} given ${name(given.feature)} = ${valueText(given)}: ${what}`;
    $("conditional-text").dataset.value = JSON.stringify(found);
    draw();
  }

  /** A side of the box that is left empty is far beyond everything, since JSON has no infinity. */
  function side(id, beyond) {
    return !$(id) || $(id).value === "" ? beyond : Number($(id).value);
  }

  async function probability() {
    const shown = state.fit.features;
    const low = shown.map((_, i) => side(`low-${i}`, -1e300));
    const high = shown.map((_, i) => side(`high-${i}`, 1e300));
    const found = await answer("box", { low, high });
    const ends = (i) => (levelsOf(i) && low[i] > -1e299 ? [low[i] - 0.5, low[i] + 0.5] : [low[i], high[i]]);
    state.box = shown.map((_, i) => ends(i).map((v) => Math.min(Math.max(v, -1e30), 1e30)));
    $("box-text").textContent = `Probability ${Number(found.probability.toPrecision(6))}`;
    $("box-text").dataset.value = JSON.stringify(found.probability);
    draw();
  }

  function conditionAt([x, y]) {
    if (!state.fit || state.fit.features.length !== 2) return;
    const at = $("given").value === "0" ? x : y;
    const levels = levelsOf(Number($("given").value));
    if (levels) $("level").value = Math.min(Math.max(Math.round(at), 0), levels.length - 1);
    else $("value").value = Number(at.toPrecision(6));
    attempt(conditional);
  }

  function boxBetween(a, b) {
    state.fit.features.forEach((_, i) => {
      const levels = levelsOf(i);
      if (levels) {
        // the level at which the drag began
        $(`low-${i}`).value = Math.min(Math.max(Math.round(a[i]), 0), levels.length - 1);
        return;
      }
      $(`low-${i}`).value = Number(Math.min(a[i], b[i]).toPrecision(6));
      $(`high-${i}`).value = Number(Math.max(a[i], b[i]).toPrecision(6));
    });
    attempt(probability);
  }

  function showPair(column, row) {
    $("all").checked = false;
    $("first").value = state.fit.features[column];
    $("second").value = row === column ? "" : state.fit.features[row];
    wantFit();
  }

  function watchPointer(canvas) {
    let from = null;
    const place = (event) => [event.offsetX, event.offsetY];
    canvas.addEventListener("pointerdown", (event) => {
      from = place(event);
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointermove", (event) => {
      if (!from || !state.area || !state.fit || Math.hypot(event.offsetX - from[0], event.offsetY - from[1]) < DRAG) return;
      const [a, b] = [state.area.at(...from), state.area.at(...place(event))];
      state.box = [0, 1].map((k) => [Math.min(a[k], b[k]), Math.max(a[k], b[k])]);
      draw();
    });
    canvas.addEventListener("pointerup", (event) => {
      if (!from || !state.fit) return;
      const [start, end] = [from, place(event)];
      from = null;
      if (!state.area) {
        const hit = state.panels && state.panels.find(([, , area]) => area.holds(...end));
        if (hit) showPair(hit[1], hit[0]);
      } else if (Math.hypot(end[0] - start[0], end[1] - start[1]) < DRAG) conditionAt((state.cursor = state.area.at(...end)));
      else boxBetween(state.area.at(...start), state.area.at(...end));
    });
    canvas.addEventListener("pointercancel", () => (from = null));
    canvas.addEventListener("keydown", (event) => {
      if (!state.area || !state.fit) return;
      const step = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] }[event.key];
      const ranges = [state.area.xRange, state.area.yRange];
      state.cursor = state.cursor || ranges.map(([low, high]) => (low + high) / 2);
      if (step) {
        state.cursor = state.cursor.map((v, k) => v + (step[k] * (ranges[k][1] - ranges[k][0])) / 50);
        $("status").textContent = `Cross at ${state.cursor.slice(0, state.fit.features.length).map(shortNumber).join(", ")}`;
        draw();
      } else if (event.key === "Enter") conditionAt(state.cursor);
      else return;
      event.preventDefault();
    });
  }

  async function save() {
    const link = Object.assign(document.createElement("a"), { href: URL.createObjectURL(await model()), download: "model.ksos" });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
    $("status").textContent = "Saved as model.ksos; read it with ksos.load.";
  }

  async function showProgram() {
    $("program").textContent = (await answer("program")).program;
    $("program").hidden = $("copy").hidden = false;
  }

  async function drawSamples() {
    state.samples = (await answer("samples", { size: Number($("size").value), seed: state.seed++ })).samples;
    $("show-samples").checked = true;
    $("status").textContent = `${state.samples.length} samples drawn.`;
    draw();
  }

  // --- start ---

  /** A choice with one answer is none. */
  function choices(id, words) {
    options($(id), words.map((word) => [word, word.replace("_", " ")]));
    $(id).closest("p").hidden = words.length < 2;
  }

  async function start() {
    const data = await answer("data", { set: $("set").value });
    Object.assign(state, { data, fit: null, values: null, levels: null, box: null, given: null, cursor: null, pairs: null, samples: [] });
    automaticStrength = true;
    const listed = data.names.map((text, k) => [k, text]);
    options($("first"), listed);
    options($("second"), [["", "none"], ...listed]);
    $("second").value = data.names.length > 1 ? 1 : "";
    $("all").closest("p").hidden = data.names.length < 3;
    choices("reference", data.references);
    choices("objective", data.objectives);
    choices("kernel", data.kernels);
    for (const [id, [min, max, step, value]] of Object.entries(data.sliders)) Object.assign($(id), { min, max, step, value });
    $("size").max = data.limits.samples;
    $("about").textContent = `${data.n} rows of ${data.names.length} features; ${data.n_held_out} of them are held out for the score. ${data.note}`;
    draw();
    wantFit();
  }

  options($("set"), sets);
  $("set").closest("p").hidden = sets.length < 2;
  $("save").hidden = model === null;
  $("set").addEventListener("change", () => attempt(start));
  for (const id of ["first", "second", "all", "reference", "objective", "kernel"]) {
    $(id).addEventListener("change", () => {
      automaticStrength = true;
      wantFit();
    });
  }
  $("given").addEventListener("change", chooseGiven);
  for (const id of ["scale", "support"]) $(id).addEventListener("input", () => wantFit(true));
  $("strength").addEventListener("input", () => {
    automaticStrength = false;
    wantFit(true);
  });
  $("automatic").addEventListener("click", () => {
    automaticStrength = true;
    $("scale").value = 0;
    wantFit();
  });
  for (const id of ["show-rows", "show-support", "show-samples", "show-regions"]) $(id).addEventListener("change", draw);
  $("settings").addEventListener("submit", (event) => event.preventDefault());
  $("cancel").addEventListener("click", () => attempt(() => answer("cancel")));
  $("ask-conditional").addEventListener("click", () => attempt(conditional));
  $("ask-box").addEventListener("click", () => attempt(probability));
  $("draw").addEventListener("click", () => attempt(drawSamples));
  $("save").addEventListener("click", () => attempt(save));
  $("show-program").addEventListener("click", () => attempt(showProgram));
  $("copy").addEventListener("click", () => attempt(() => navigator.clipboard.writeText($("program").textContent)));
  watchPointer($("plot"));
  window.addEventListener("resize", draw);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  attempt(start);
})();
