// The curves with their colours, and the legend that hides them.

const NAMES = {
  risk: "risk: mean of (y − f)²",
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

/** A colour per run: by the chosen parameter (a scale for numbers, distinct colours for names), or by the run. */
function runColours() {
  const byRun = !data.parameters.includes(view.colour);
  const values = byRun ? data.runs.map((_, i) => i) : valuesOf(view.colour);
  const scale = byRun ? values.length > DISTINCT.length : numeric(values) || values.length > DISTINCT.length;
  const colours = new Map(
    values.map((value, i) => [value, scale ? viridis(values.length > 1 ? i / (values.length - 1) : 0.4) : DISTINCT[i]]),
  );
  return data.runs.map((run, i) => colours.get(byRun ? i : (run.values[view.colour] ?? "")));
}

/** The curves of one metric: all curves of a single run, or the selected parts and estimates of several runs. */
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

/** A line at a number that all runs share: N, or the rounding unit. */
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

/** A button per curve of a single run, or per run. */
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
