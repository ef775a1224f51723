// Tables, confusion matrices and settings; all content is inserted as text.

const looksNumeric = (text) => /^[-−+]?[\d.]+(e[-+]?\d+)?( ± .*)?$/.test(text);

function tableOf({ columns, rows }) {
  const right = columns.map(
    (_, i) => rows.some((row) => row[i]) && rows.every((row) => !row[i] || looksNumeric(row[i])),
  );
  const kind = (i) => [right[i] ? "number" : "", columns[i] === "paper's" ? "paper" : ""].join(" ").trim();
  const line = (cells, tag) => make("tr", {}, ...cells.map((text, i) => make(tag, { className: kind(i) }, text)));
  const table = make(
    "table",
    {},
    make("thead", {}, line(columns, "th")),
    make("tbody", {}, ...rows.map((row) => line(row, "td"))),
  );
  return make("div", { className: "scroll", tabIndex: 0 }, table);
}

function pairs(rows) {
  const lines = rows.map(([key, value]) => make("tr", {}, make("td", {}, key), make("td", {}, value)));
  return make("table", { className: "pairs" }, make("tbody", {}, ...lines));
}

function settings(rows) {
  return make(
    "dl",
    { className: "settings" },
    ...rows.map(([key, value]) => make("div", {}, make("dt", {}, key), make("dd", {}, value))),
  );
}

/** Splits a text into strings and code elements, which hold the parts between backticks. */
function worded(text) {
  return text.split("`").map((part, i) => (i % 2 ? make("code", {}, part) : part));
}

function confusionTable(classes, counts) {
  const head = make("tr", {}, make("th", {}, "actual ↓ predicted →"), ...classes.map((name) => make("th", {}, name)));
  const rows = counts.map((row, actual) => {
    const total = row.reduce((sum, each) => sum + each, 0);
    const cells = row.map((count) => {
      const share = total ? count / total : 0,
        cell = make(
          "td",
          { title: `${short(100 * share, 3)} % of the actual class` },
          classes.length <= 25 || count ? String(count) : "",
        );
      cell.style.background = `color-mix(in srgb, var(--accent) ${Math.round(100 * share)}%, var(--page))`;
      if (share > 0.55) cell.style.color = "var(--card)";
      if (!count && classes.length > 2) cell.style.color = "var(--quiet)";
      return cell;
    });
    return make("tr", {}, make("th", {}, classes[actual]), ...cells);
  });
  return make(
    "div",
    { className: "scroll fitting", tabIndex: 0 },
    make("table", { className: "confusion" }, make("thead", {}, head), make("tbody", {}, ...rows)),
  );
}

const card = (title, ...children) =>
  make("div", { className: "card" }, title ? make("h3", {}, title) : null, ...children);

function renderResults() {
  const run = currentRun(),
    matrix = run.confusion,
    cards = [];
  const notes = make("ul", { className: "notes" }, ...run.notes.map((text) => make("li", {}, ...worded(text))));
  cards.push(
    card(
      run.results_note || "Metrics of the newest cloud",
      run.results ? tableOf(run.results) : "The results are available when the run ends.",
      notes,
    ),
  );
  const older = run.results_note ? `: ${run.results_note}` : "";
  if (matrix?.omitted)
    cards.push(card("Confusion matrix", `The matrix of ${matrix.omitted} classes is not shown; see confusion.csv.`));
  else if (matrix) {
    const shown = ["weighted", "unweighted"].map((estimate) =>
      card(`Confusion matrix, test part, ${estimate}${older}`, confusionTable(matrix.classes, matrix[estimate])),
    );
    cards.push(make("div", { className: "grid two" }, ...shown));
  }
  $("results").replaceChildren(...cards);
}

function renderAbout() {
  const run = currentRun(),
    open = $("about").querySelector("details")?.open ?? false;
  const config = make(
    "details",
    { className: "card", open },
    make("summary", {}, "Settings (config.yaml)"),
    settings(run.config),
  );
  $("about").replaceChildren(card("", pairs([["folder", run.folder], ...run.about])), config);
}

function renderSweeps() {
  $("sweeps").replaceChildren(
    ...data.sweeps.flatMap((sweep) => [
      make("h2", {}, sweep.name),
      card(
        sweep.counts,
        tableOf(sweep.table),
        ...(sweep.averages ? [make("h3", {}, "Mean over seeds and splits"), tableOf(sweep.averages)] : []),
      ),
    ]),
  );
}

/** Draws the tiles with the most important metrics of a single run. */
function renderTiles() {
  if (!isSingle()) return $("tiles").replaceChildren();
  const run = data.runs[0],
    newest = (name) => run.curves.columns[name]?.findLast((value) => value !== null);
  const found = [
    ["test accuracy", newest("test_accuracy_weighted")],
    ["test risk", newest("test_risk_weighted")],
    ["R²", newest("test_r2_weighted")],
    [`effective sample size (N = ${run.N})`, newest("ess")],
    ["recursions", run.step],
  ];
  const logged = run.curves.step.at(-1);
  if (logged !== run.step) found.splice(-1, 0, ["recursion of these metrics", logged]);
  const seconds = run.about.find(([key]) => key === "seconds");
  if (seconds) found.push(["seconds", Number(seconds[1])]);
  $("tiles").replaceChildren(
    ...found
      .filter(([, value]) => value !== undefined)
      .map(([name, value]) => make("div", { className: "tile" }, make("b", {}, short(value)), make("span", {}, name))),
  );
}

// The page as a whole: its theme, all sections, and newer data from the server of a watched page.

const POLL_MS = 3000;
const remembered = {
  get: () => {
    try {
      return localStorage.getItem("theme");
    } catch {
      return null;
    }
  },
  set: (theme) => {
    try {
      localStorage.setItem("theme", theme);
    } catch {
      /* A page that is opened from disk may have no storage. */
    }
  },
};

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
}

/** Draws everything from the data; the reader's choices are kept. */
function render() {
  document.title = data.title;
  document.documentElement.classList.toggle("single", isSingle());
  const running = data.runs.filter((run) => run.state === "running").length,
    [first] = data.runs;
  const state = isSingle()
    ? first.state
    : running
      ? "running"
      : data.runs.every((run) => run.state === "finished")
        ? "finished"
        : "stopped";
  $("title").textContent = data.title;
  $("subtitle").textContent = isSingle()
    ? first.folder
    : data.sweeps.map((sweep) => sweep.name).join(", ") || data.runs.map((run) => run.folder).join(", ");
  showState(state, running && !isSingle() ? `${running} running` : state);
  $("footer").textContent =
    `Written by proxlearn ${data.version}. ${data.watch ? "The page updates itself while proxlearn report --watch runs." : ""}`;
  if (document.activeElement !== $("run"))
    $("run").replaceChildren(...data.runs.map((run, i) => new Option(run.name, i, false, i === view.run)));
  renderTiles();
  renderSweeps();
  drawLegend();
  drawCurves();
  renderRun();
}

function showState(state, text = state) {
  $("state").textContent = text;
  $("state").dataset.state = state;
}

function renderRun() {
  renderCloud();
  renderResults();
  renderAbout();
}

/** Requests newer data repeatedly; shows that there is no connection if the server does not respond. */
async function watch() {
  let text = "";
  for (;;) {
    await new Promise((resume) => setTimeout(resume, POLL_MS));
    try {
      const answer = await fetch("data.json"),
        found = await answer.text();
      if (!answer.ok) throw new Error(found);
      if (found !== text) {
        data = JSON.parse(found);
        render();
      }
      text = found;
    } catch {
      text = "";
      showState("no connection");
    }
  }
}

const system = matchMedia("(prefers-color-scheme: dark)");
setTheme(remembered.get() ?? (system.matches ? "dark" : "light"));
system.addEventListener("change", () => {
  if (!remembered.get()) {
    setTheme(system.matches ? "dark" : "light");
    render();
  }
});
$("theme").onclick = () => {
  setTheme(isDark() ? "light" : "dark");
  remembered.set(document.documentElement.dataset.theme);
  render();
};
$("run").onchange = () => {
  if (playing) stop();
  view.run = Number($("run").value);
  view.frame = Infinity;
  renderRun();
};
$("page").hidden = false;
buildCurves();
buildCloud();
render();
if (data.watch) watch();
