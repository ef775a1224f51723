// Zooming and reading a chart by buttons, keys and touch; uPlot handles the mouse.

/** Zoom to a range of k, in every chart. */
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

/** One finger reads values, two zoom: the steps under the fingers stay there. */
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
