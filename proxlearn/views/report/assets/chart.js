// A chart of curves over the recursions, drawn by uPlot, with hover and zoom by mouse, touch and keys.

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

/** All curves over the union of their steps, without the values that a logarithmic axis cannot show. */
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

/** The nearest step at which a curve has a value. */
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

/** The element that holds a chart, which keeps its focus when the chart is drawn again. */
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
