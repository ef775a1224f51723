// The particles on two coordinates, with an area proportional to their weight, at the stored checkpoints.

const RADIUS = 3.4,
  LARGEST = 26,
  FRAME_MS = 420;
let drawnParticles = [],
  playing = 0;

const currentRun = () => data.runs[Math.min(view.run, data.runs.length - 1)];
const currentCloud = () => currentRun().cloud;

/** Blue: 1/N; paler: down to a quarter of it; purple and orange: twice and four times as heavy. */
function weightColour(times) {
  const scale = ["line", "weighted", "fourth", "unweighted"].map((name) => channels(css(name)));
  const place = Math.max(0, Math.min(3, Math.log2(times) < 0 ? 1 + Math.log2(times) / 2 : 1 + Math.log2(times)));
  const below = Math.min(2, Math.floor(place));
  return scale[below].map((from, i) => Math.round(from + (place - below) * (scale[below + 1][i] - from)));
}

/** Draws the cloud at a position between frames: whole numbers are stored clouds, others are interpolated. */
function drawCloud(place) {
  const cloud = currentCloud(),
    canvas = $("cloud"),
    count = cloud.particles.length;
  const below = Math.floor(place),
    above = Math.min(below + 1, cloud.steps.length - 1),
    share = place - below;
  const between = (values) => (i) => (1 - share) * values[below * count + i] + share * values[above * count + i];
  const chosen = [view.across, view.up].map((name) =>
    decoded(cloud.coordinates[Math.max(0, cloud.names.indexOf(name))]),
  );
  const at = chosen.map(between),
    logWeight = between(decoded(cloud.weights));
  const ranges = chosen.map((values, axis) =>
    view.follow ? ends(Array.from({ length: count }, (_, i) => at[axis](i))) : ends(values),
  );
  const surface = wiped(canvas),
    { ctx } = surface;
  const { px, py, box } = drawAxes(surface, ...ranges, [view.across, view.up]);
  const { N } = currentRun();
  drawnParticles = Array.from({ length: count }, (_, i) => {
    const weight = Math.exp(logWeight(i));
    return {
      x: px(at[0](i)),
      y: py(at[1](i)),
      radius: Math.min(LARGEST, RADIUS * Math.sqrt(weight * N)),
      weight,
      number: cloud.particles[i],
      values: [at[0](i), at[1](i)],
    };
  });
  // The heaviest particles are drawn first, so that they do not hide others.
  for (const each of [...drawnParticles].sort((a, b) => b.radius - a.radius)) {
    const colour = weightColour(each.weight * N).join(" ");
    ctx.fillStyle = `rgb(${colour} / .5)`;
    ctx.strokeStyle = `rgb(${colour} / .95)`;
    dot(ctx, each.x, each.y, Math.max(0.8, each.radius));
    ctx.stroke();
  }
  ctx.fillStyle = css("quiet");
  ctx.strokeStyle = css("quiet");
  ctx.beginPath();
  ctx.arc(box.right - 14, box.top + 14, RADIUS, 0, 2 * Math.PI);
  ctx.stroke();
  ctx.textAlign = "right";
  ctx.font = "11px system-ui, sans-serif";
  ctx.fillText("1/N", box.right - 22, box.top + 18);
  canvas.dataset.frame = below;
  canvas.ariaLabel = `${count} particles at k = ${cloud.steps[below]}`;
}

/** Everything that depends on the frame. */
function showFrame(place) {
  const cloud = currentCloud();
  if (!cloud) return;
  const frame = Math.round(place);
  $("frame").value = frame;
  $("step").value = `k = ${cloud.steps[frame].toLocaleString("en")}`;
  $("frame").setAttribute("aria-valuetext", `recursion ${cloud.steps[frame]}`);
  drawCloud(place);
  if (cloud.learnt) drawLearnt(cloud.learnt, frame);
}

function frameNow() {
  return Math.min(view.frame, (currentCloud()?.steps.length ?? 1) - 1);
}

function setFrame(frame) {
  const last = currentCloud().steps.length - 1;
  // If the newest frame is shown, the page moves to the newest frame when more are stored.
  view.frame = frame >= last ? Infinity : Math.max(0, frame);
  showFrame(frameNow());
}

function play() {
  if (playing) return stop();
  const last = currentCloud().steps.length - 1,
    from = frameNow() >= last ? 0 : frameNow(),
    began = performance.now();
  const steps = matchMedia("(prefers-reduced-motion: reduce)").matches;
  $("play").textContent = "❚❚";
  $("play").ariaLabel = "Pause";
  const next = (now) => {
    const place = from + Math.max(0, now - began) / FRAME_MS;
    view.frame = Math.min(last, Math.floor(place));
    showFrame(steps ? view.frame : Math.min(last, place));
    if (place >= last) return stop();
    playing = requestAnimationFrame(next);
  };
  playing = requestAnimationFrame(next);
}

function stop() {
  cancelAnimationFrame(playing);
  playing = 0;
  $("play").textContent = "▶";
  $("play").ariaLabel = "Play";
  setFrame(Math.round(frameNow()));
}

function particleTip(event) {
  const { left, top } = $("cloud").getBoundingClientRect(),
    x = event.clientX - left,
    y = event.clientY - top,
    tip = $("cloud-tip");
  const apart = (each) => Math.hypot(each.x - x, each.y - y) - each.radius;
  const found = drawnParticles.reduce((best, each) => (apart(each) < apart(best) ? each : best), drawnParticles[0]);
  tip.style.display = found && apart(found) < 10 ? "block" : "none";
  if (tip.style.display === "none") return;
  const lines = [
    `particle ${found.number}`,
    `${short(100 * found.weight, 3)} % of the mass (${short(found.weight * currentRun().N, 3)} / N)`,
    `${view.across}: ${short(found.values[0])}`,
    `${view.up}: ${short(found.values[1])}`,
  ];
  tip.replaceChildren(...lines.map((line) => make("div", {}, line)));
  tip.style.left = `${Math.max(0, Math.min(x + 14, $("cloud").clientWidth - tip.offsetWidth))}px`;
  tip.style.top = `${Math.max(0, Math.min(y + 14, $("cloud").clientHeight - tip.offsetHeight))}px`;
}

/** Builds the controls of the cloud once; their options depend on the run. */
function buildCloud() {
  $("frame").oninput = () => {
    if (playing) stop();
    setFrame(Number($("frame").value));
  };
  $("play").onclick = play;
  $("follow").onchange = () => {
    view.follow = $("follow").checked;
    showFrame(frameNow());
  };
  for (const [id, key] of [
    ["across", "across"],
    ["up", "up"],
  ])
    $(id).onchange = () => {
      view[key] = $(id).value;
      showFrame(frameNow());
    };
  $("cloud").onkeydown = (event) => {
    const moves = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1, Home: -Infinity, End: Infinity };
    if (event.key === " ") play();
    else if (event.key in moves) {
      if (playing) stop();
      setFrame(frameNow() + moves[event.key]);
    } else return;
    event.preventDefault();
  };
  $("cloud").onpointermove = particleTip;
  $("cloud").onpointerleave = () => {
    $("cloud-tip").style.display = "none";
  };
  new ResizeObserver(() => {
    if (!playing) showFrame(frameNow());
  }).observe($("stage"));
}

function renderCloud() {
  const cloud = currentCloud();
  $("cloud-card").hidden = !cloud;
  $("no-cloud").hidden = Boolean(cloud);
  if (!cloud) return;
  if (!cloud.names.includes(view.across)) view.across = cloud.names[0];
  if (!cloud.names.includes(view.up)) view.up = cloud.names[1];
  for (const [id, chosen] of [
    ["across", view.across],
    ["up", view.up],
  ]) {
    if (document.activeElement !== $(id))
      $(id).replaceChildren(...cloud.names.map((name) => new Option(name, name, false, name === chosen)));
  }
  $("frame").max = cloud.steps.length - 1;
  $("player").hidden = cloud.steps.length < 2;
  const some =
    cloud.particles.length < currentRun().N
      ? `${cloud.particles.length} of ${currentRun().N} particles, including the heaviest`
      : `All ${cloud.particles.length} particles`;
  const when =
    cloud.steps.length > 1
      ? `${cloud.steps.length} stored checkpoints; positions between them are interpolated during playback.`
      : `Only one checkpoint is stored, at k = ${cloud.steps[0]}.`;
  const left = cloud.omitted ? ` ${cloud.omitted} coordinates that vary less are not in this page.` : "";
  $("cloud-caption").textContent =
    `${some}. Area: weight. Colour: blue for 1/N, purple and orange for heavier, pale for lighter particles. ${when}${left}`;
  $("stage").className = cloud.learnt ? "grid two" : "grid one";
  $("learnt-figure").hidden = !cloud.learnt;
  if (cloud.learnt) describeLearnt(cloud.learnt);
  if (!playing) showFrame(frameNow());
}
