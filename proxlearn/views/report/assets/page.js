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
      /* a page from disk may have no storage */
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

/** Request newer data repeatedly; if the server is gone, the state says so. */
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
