// Charts of curves over the recursions, which uPlot draws; they can be read and zoomed by mouse, touch and keys.

const plots = new Map();
const HEIGHT = { large: 300, small: 190 };

/** Draws or redraws a chart. spec: {title, size, curves: [{label, colour, dash, width, steps, values}], logY, marks}. */
function drawChart(host, spec) {
  plots.get(host)?.destroy();
  plots.delete(host);
  host.querySelector(".empty")?.remove();
  const shown = joined(spec.curves, view.logX, spec.logY);
  host.dataset.curves = shown.curves.length;
  if (!shown.curves.length) {
    host.append(
      make(
        "div",
        { className: "empty" },
        spec.curves.length ? "no values in this range" : (spec.nothing ?? "no curve selected"),
      ),
    );
    return;
  }
  const plot = new uPlot(options(host, spec, shown), shown.columns, host);
  plots.set(host, plot);
  if (view.zoom) plot.setScale("x", { min: view.zoom[0], max: view.zoom[1] });
  touch(plot);
}

/** Returns all curves over the union of their steps, without the values that a logarithmic axis cannot show. */
function joined(curves, logX, logY) {
  const fits = (curve, i) =>
    curve.values[i] !== null && (!logX || curve.steps[i] > 0) && (!logY || curve.values[i] > 0);
  const filled = curves.filter((curve) => curve.steps.some((_, i) => fits(curve, i)));
  const steps = [...new Set(filled.flatMap((curve) => curve.steps.filter((_, i) => fits(curve, i))))].sort(
    (a, b) => a - b,
  );
  const place = new Map(steps.map((step, i) => [step, i]));
  const columns = filled.map((curve) => {
    const column = new Array(steps.length).fill(null);
    curve.steps.forEach((step, i) => {
      if (fits(curve, i)) column[place.get(step)] = curve.values[i];
    });
    return column;
  });
  return { curves: filled, columns: [steps, ...columns] };
}

function options(host, spec, shown) {
  const axis = (log) => ({
    stroke: css("quiet"),
    font: "11px system-ui, sans-serif",
    grid: { stroke: css("grid"), width: 1 },
    ticks: { stroke: css("grid"), size: 4 },
    splits: (plot, index, low, high) =>
      (log ? logTicks : ticks)(
        low,
        high,
        Math.max(2, Math.floor((index ? plot.height : plot.width) / (index ? 42 : 80))),
      ),
    values: (plot, splits) => tickTexts(splits),
    filter: (plot, splits) => splits,
  });
  const few = shown.columns[0].length < 3;
  return {
    width: host.clientWidth,
    height: HEIGHT[spec.size],
    padding: [10, 14, 0, 0],
    legend: { show: false },
    scales: {
      x: {
        time: false,
        distr: view.logX ? 3 : 1,
        range: (plot, low, high) => (low < high ? [low, high] : view.logX ? [low / 2, low * 2] : [low - 1, low + 1]),
      },
      y: { distr: spec.logY ? 3 : 1, range: (plot, low, high) => padded(low, high, spec) },
    },
    axes: [
      {
        ...axis(view.logX),
        size: 30,
        ...(spec.size === "large"
          ? { label: "recursion k", labelSize: 18, labelFont: "12px system-ui, sans-serif", labelGap: 0 }
          : {}),
      },
      { ...axis(spec.logY), size: 58 },
    ],
    series: [
      {},
      ...shown.curves.map((curve) => ({
        label: curve.label,
        stroke: curve.colour,
        width: curve.width,
        dash: curve.dash,
        spanGaps: true,
        points: { show: few, size: 6, fill: curve.colour },
      })),
    ],
    focus: { alpha: 0.25 },
    cursor: {
      drag: { x: true, y: true, uni: 24 },
      sync: { key: "k", scales: ["x", null] },
      focus: { prox: shown.curves.length > 1 ? 18 : -1 },
      points: { size: 7 },
      dataIdx: nearest,
    },
    hooks: {
      setCursor: [(plot) => showTip(host, plot, shown.curves)],
      setScale: [
        (plot, key) => {
          if (key === "x") remember(plot);
        },
      ],
      draw: [(plot) => (spec.marks ?? []).forEach((mark) => drawMark(plot, mark))],
    },
  };
}

function padded(low, high, spec) {
  const all = [low, high, ...(spec.marks ?? []).map((mark) => mark.value)].filter(
    (value) => value !== null && (!spec.logY || value > 0),
  );
  [low, high] = [Math.min(...all), Math.max(...all)];
  if (spec.logY) return low === high ? [low / 2, high * 2] : [low / (high / low) ** 0.05, high * (high / low) ** 0.05];
  const margin = 0.05 * (high - low) || 0.1 * Math.abs(high) || 1;
  return [spec.zero || (low >= 0 && low < 0.4 * high) ? 0 : low - margin, high + margin];
}

/** Returns the index of the nearest step at which a curve has a value. */
function nearest(plot, series, index) {
  const column = plot.data[series];
  for (let away = 0; series && away < column.length; away++) {
    for (const place of [index - away, index + away]) if (column[place] != null) return place;
  }
  return index;
}

/** Stores the selected range, unless it is the full range. */
function remember(plot) {
  const steps = plot.data[0],
    { min, max } = plot.scales.x;
  if (min == null) return;
  const whole =
    steps.length < 2 || (Math.abs(min - steps[0]) < 1e-9 * max && Math.abs(max - steps.at(-1)) < 1e-9 * max);
  view.zoom = whole ? null : [min, max];
}

function drawMark(plot, { value, label }) {
  const y = plot.valToPos(value, "y", true),
    { left, top, width, height } = plot.bbox,
    ctx = plot.ctx;
  if (!(y >= top && y <= top + height)) return;
  ctx.save();
  ctx.strokeStyle = ctx.fillStyle = css("quiet");
  ctx.setLineDash([3 * devicePixelRatio, 4 * devicePixelRatio]);
  ctx.beginPath();
  ctx.moveTo(left, y);
  ctx.lineTo(left + width, y);
  ctx.stroke();
  ctx.font = `${11 * devicePixelRatio}px system-ui, sans-serif`;
  ctx.textAlign = "right";
  ctx.fillText(label, left + width - 4, y - 5 * devicePixelRatio);
  ctx.restore();
}

function showTip(host, plot, curves) {
  const tip = host.querySelector(".tip"),
    { idx, left, top } = plot.cursor;
  const wanted = idx != null && left >= 0 && host.matches(":hover, :focus, :focus-within");
  tip.style.display = wanted ? "block" : "none";
  if (!wanted) return;
  const found = curves
    .map((curve, i) => [curve, plot.data[i + 1][plot.cursor.idxs[i + 1]]])
    .filter(([, value]) => value != null);
  found.sort((a, b) => b[1] - a[1]);
  const rows = found.slice(0, 12).map(([curve, value]) => {
    const spot = make("i");
    spot.style.background = curve.colour;
    return make("div", {}, spot, curve.label, make("b", {}, short(value)));
  });
  if (found.length > 12) rows.push(make("div", {}, `and ${found.length - 12} more`));
  tip.replaceChildren(make("div", {}, `k = ${plot.data[0][idx].toLocaleString("en")}`), ...rows);
  const x = plot.over.offsetLeft + left,
    right = x > host.clientWidth / 2;
  tip.style.left = right ? "" : `${x + 14}px`;
  tip.style.right = right ? `${host.clientWidth - x + 14}px` : "";
  tip.style.top = `${Math.max(0, Math.min(top, plot.height - tip.offsetHeight))}px`;
}

/** Creates the element that holds a chart; the element keeps its focus when the chart is drawn again. */
function chartHost(label) {
  const host = make("div", {
    className: "chart",
    tabIndex: 0,
    role: "group",
    ariaLabel: `${label}: arrow keys read values, + and - zoom, 0 shows the full range`,
  });
  host.append(make("div", { className: "tip" }));
  host.addEventListener("keydown", keys);
  new ResizeObserver(() =>
    plots.get(host)?.setSize({ width: host.clientWidth, height: plots.get(host).height }),
  ).observe(host);
  return host;
}

// Functions that zoom and read a chart by buttons, keys and touch; uPlot handles the mouse.

/** Zooms every chart to a range of k, or to the full range. */
function zoomAll(low, high) {
  for (const plot of plots.values()) {
    const steps = plot.data[0];
    plot.setScale("x", low === undefined ? { min: steps[0], max: steps.at(-1) } : { min: low, max: high });
  }
}

function zoomBy(plot, factor) {
  const to = view.logX ? Math.log : Number,
    back = view.logX ? Math.exp : Number;
  const low = to(plot.scales.x.min),
    high = to(plot.scales.x.max),
    steps = plot.data[0];
  const centre = plot.cursor.idx == null ? (low + high) / 2 : to(steps[plot.cursor.idx]);
  zoomAll(
    Math.max(steps[0], back(centre + (low - centre) * factor)),
    Math.min(steps.at(-1), back(centre + (high - centre) * factor)),
  );
}

function keys(event) {
  const plot = plots.get(event.currentTarget);
  if (!plot || event.ctrlKey || event.metaKey || event.altKey) return;
  const { key } = event,
    steps = plot.data[0];
  if (key === "ArrowLeft" || key === "ArrowRight") {
    const at = Math.max(0, Math.min(steps.length - 1, (plot.cursor.idx ?? 0) + (key === "ArrowLeft" ? -1 : 1)));
    plot.setCursor({ left: plot.valToPos(steps[at], "x"), top: plot.over.clientHeight / 2 });
  } else if (key === "+" || key === "=") zoomBy(plot, 0.6);
  else if (key === "-") zoomBy(plot, 1 / 0.6);
  else if (key === "0" || key === "Escape") zoomAll();
  else return;
  event.preventDefault();
}

/** Handles touches: one finger reads values, and two fingers zoom, so that the steps below them stay in place. */
function touch(plot) {
  const to = view.logX ? Math.log : Number,
    back = view.logX ? Math.exp : Number;
  const places = (event) =>
    [...event.touches].map((each) => each.clientX - plot.over.getBoundingClientRect().left).sort((a, b) => a - b);
  let held = null;
  plot.over.addEventListener(
    "touchstart",
    (event) => {
      const found = places(event);
      held = found.length === 2 ? found.map((place) => to(plot.posToVal(place, "x"))) : null;
    },
    { passive: true },
  );
  plot.over.addEventListener(
    "touchmove",
    (event) => {
      const found = places(event);
      if (found.length === 1) plot.setCursor({ left: found[0], top: plot.over.clientHeight / 3 });
      if (!held || found.length !== 2 || found[1] - found[0] < 8) return;
      event.preventDefault();
      const slope = (held[1] - held[0]) / (found[1] - found[0]),
        low = held[0] - slope * found[0],
        steps = plot.data[0];
      zoomAll(Math.max(steps[0], back(low)), Math.min(steps.at(-1), back(low + slope * plot.over.clientWidth)));
    },
    { passive: false },
  );
}

// The curves with their colours, and the legend whose buttons hide curves.

const NAMES = {
  get risk() {
    return data.risk_label;
  },
  risk_paper: "the paper's risk",
  accuracy: "accuracy",
  log_loss: "log-loss",
  calibration_error: "calibration error",
  rmse: "root mean square error",
  r2: "R²",
};
const ESTIMATE_COLOURS = {
  weighted: "weighted",
  unweighted: "unweighted",
  unweighted_saturated: "third",
  particle: "fourth",
};
const HEALTH = [
  ["ess", "effective sample size", false],
  ["kernel_offdiag", "off-diagonal kernel share", true],
  ["sinkhorn_rounds", "Sinkhorn rounds", false],
  ["free_energy", "free energy F_β", false],
  ["entropy", "entropy of the particles", false],
  ["discrete_free_energy", "discrete free energy", false],
];
const REPEATS = ["seed", "split_seed"];
const hosts = { curves: [], health: [] };

const asWords = (name) => name.replaceAll("_", " ");
const numeric = (values) => values.every((value) => value.trim() !== "" && Number.isFinite(Number(value)));

function valuesOf(parameter) {
  const found = [...new Set(data.runs.map((run) => run.values[parameter] ?? ""))];
  return numeric(found) ? found.sort((a, b) => a - b) : found;
}

/** Returns a colour per run: by the chosen parameter (a scale for numbers, distinct colours for names) or by run. */
function runColours() {
  const byRun = !data.parameters.includes(view.colour);
  const values = byRun ? data.runs.map((_, i) => i) : valuesOf(view.colour);
  const scale = byRun ? values.length > DISTINCT.length : numeric(values) || values.length > DISTINCT.length;
  const colours = new Map(
    values.map((value, i) => [value, scale ? viridis(values.length > 1 ? i / (values.length - 1) : 0.4) : DISTINCT[i]]),
  );
  return data.runs.map((run, i) => colours.get(byRun ? i : (run.values[view.colour] ?? "")));
}

/** Returns the curves of a metric: all curves of a single run, or the chosen parts and estimates of several runs. */
function quantityCurves(quantity) {
  const colours = runColours(),
    found = [];
  data.runs.forEach((run, i) => {
    for (const estimate of data.quantities[quantity] ?? []) {
      for (const part of ["test", "train"]) {
        const values = run.curves.columns[`${part}_${quantity}_${estimate}`],
          own = `${part}, ${asWords(estimate)}`;
        if (!values || view.hidden.has(isSingle() ? own : run.name)) continue;
        if (!isSingle() && !(view.parts.has(part) && view.estimates.has(estimate))) continue;
        const alone = view.parts.size * view.estimates.size === 1;
        found.push({
          label: isSingle() ? own : alone ? run.name : `${run.name}: ${own}`,
          steps: run.curves.step,
          values,
          colour: isSingle() ? css(ESTIMATE_COLOURS[estimate]) : colours[i],
          dash: part === "train" ? [7, 5] : undefined,
          width: estimate === "weighted" ? (isSingle() ? 3 : 2) : 1.2,
        });
      }
    }
  });
  return found;
}

function healthCurves(column) {
  const colours = runColours();
  return data.runs.flatMap((run, i) => {
    const values = run.curves.columns[column];
    if (!values || (!isSingle() && view.hidden.has(run.name))) return [];
    return [
      {
        label: isSingle() ? asWords(column) : run.name,
        steps: run.curves.step,
        values,
        colour: isSingle() ? css("accent") : colours[i],
        width: 2,
      },
    ];
  });
}

/** Returns a horizontal line at a number that all runs share (N or the rounding unit), if there is one. */
function healthMarks(column) {
  const [key, label] = { ess: ["N", "N"], kernel_offdiag: ["unit", "rounding unit"] }[column] ?? [];
  return key && data.runs.every((run) => run[key] === data.runs[0][key]) ? [{ value: data.runs[0][key], label }] : [];
}

function drawCurves() {
  hosts.curves.forEach((host, i) => {
    const quantity = view.quantities[i];
    const curves = quantityCurves(quantity),
      positive = curves.every((curve) => curve.values.some((value) => value > 0));
    drawChart(host, {
      size: "large",
      curves,
      logY: (view.logY.get(quantity) ?? quantity.startsWith("risk")) && positive,
    });
  });
  hosts.health.forEach((host, i) => {
    const [column, , log] = HEALTH[i];
    drawChart(host, {
      size: "small",
      curves: healthCurves(column),
      logY: log,
      zero: ["ess", "sinkhorn_rounds"].includes(column),
      marks: healthMarks(column),
      nothing: "no proximal step",
    });
  });
}

/** Builds the charts and their controls once. */
function buildCurves() {
  const quantities = Object.keys(data.quantities);
  const preferred = ["risk", ["accuracy", "rmse"].find((name) => quantities.includes(name)) ?? quantities.at(-1)];
  $("curves").append(
    ...preferred.map((quantity, i) => {
      view.quantities[i] = quantity;
      const log = make("input", { type: "checkbox", checked: quantity.startsWith("risk") });
      const choice = make(
        "select",
        { value: quantity, ariaLabel: "metric" },
        ...quantities.map((name) => new Option(NAMES[name] ?? asWords(name), name, false, name === quantity)),
      );
      choice.onchange = () => {
        view.quantities[i] = choice.value;
        log.checked = view.logY.get(choice.value) ?? choice.value.startsWith("risk");
        drawCurves();
      };
      log.onchange = () => {
        view.logY.set(choice.value, log.checked);
        drawCurves();
      };
      hosts.curves[i] = chartHost(`chart ${i + 1}`);
      return make(
        "div",
        { className: "card" },
        make("div", { className: "chart-head" }, choice, make("label", {}, log, " log")),
        hosts.curves[i],
      );
    }),
  );
  $("health").append(
    ...HEALTH.map(([, title], i) => {
      hosts.health[i] = chartHost(title);
      return make("div", { className: "card" }, make("h3", {}, title), hosts.health[i]);
    }),
  );
  const estimates = [...new Set(Object.values(data.quantities).flat())];
  for (const [where, names, chosen] of [
    ["parts", ["test", "train"], view.parts],
    ["estimates", estimates, view.estimates],
  ]) {
    $(where).append(
      ...names.map((name) => {
        const box = make("input", { type: "checkbox", checked: chosen.has(name) });
        box.onchange = () => {
          box.checked ? chosen.add(name) : chosen.delete(name);
          drawCurves();
        };
        return make("label", {}, box, asWords(name));
      }),
    );
  }
  const spread = (name) => (REPEATS.includes(name) ? 0 : valuesOf(name).length);
  view.colour = [...data.parameters].sort((a, b) => spread(b) - spread(a))[0] ?? "";
  for (const estimate of ["unweighted saturated", "particle"])
    for (const part of ["test", "train"]) view.hidden.add(`${part}, ${estimate}`);
  $("colour").onchange = () => {
    view.colour = $("colour").value;
    drawLegend();
    drawCurves();
  };
  $("logx").onchange = () => {
    view.logX = $("logx").checked;
    view.zoom = null;
    drawCurves();
  };
  $("unzoom").onclick = () => zoomAll();
  $("styles").textContent = "Solid: test part. Dashed: training part. Broad: weighted estimate. Thin: other estimates.";
}

/** Draws the legend: a button per curve of a single run, or a button per run. */
function drawLegend() {
  if (document.activeElement !== $("colour"))
    $("colour").replaceChildren(
      ...data.parameters.map((name) => new Option(name, name)),
      new Option("by run", ""),
    );
  $("colour").value = view.colour;
  const colours = runColours();
  const own = [...new Set(Object.values(data.quantities).flat())].flatMap((estimate) =>
    ["test", "train"].map((part) => [`${part}, ${asWords(estimate)}`, css(ESTIMATE_COLOURS[estimate]), part]),
  );
  const entries = isSingle() ? own : data.runs.map((run, i) => [run.name, colours[i], "test"]);
  const focused = document.activeElement?.closest("#legend button")?.dataset.curve;
  $("legend").replaceChildren(
    ...entries.map(([name, colour, part]) => {
      const line = make("i");
      line.style.borderTopColor = colour;
      line.style.borderTopStyle = part === "train" ? "dashed" : "solid";
      const button = make("button", { type: "button", ariaPressed: String(!view.hidden.has(name)) }, line, name);
      button.dataset.curve = name;
      button.onclick = () => {
        view.hidden.has(name) ? view.hidden.delete(name) : view.hidden.add(name);
        button.ariaPressed = String(!view.hidden.has(name));
        drawCurves();
      };
      return button;
    }),
  );
  if (focused !== undefined) [...$("legend").children].find((each) => each.dataset.curve === focused)?.focus();
  const thinned = data.runs.filter((run) => run.curves.step.length < run.curves.logged).length;
  $("thinned").textContent = thinned
    ? `The curves of ${thinned} ${thinned === 1 ? "run are" : "runs are"} thinned; metrics.csv has all logged rows.`
    : "";
}
