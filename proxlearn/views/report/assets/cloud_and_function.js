// Canvases with axes, for the cloud and the learned function.

/** Clears a canvas, and sets its size to the resolution of the screen. */
function wiped(canvas) {
  const ratio = devicePixelRatio,
    { width, height } = canvas.getBoundingClientRect();
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  const ctx = canvas.getContext("2d");
  ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
  return { ctx, width, height };
}

/** Draws the grid, ticks and names of the axes, and clips to the frame; returns functions from values to pixels. */
function drawAxes({ ctx, width, height }, [x0, x1], [y0, y1], names) {
  const box = { left: 56, top: 8, right: width - 10, bottom: height - 40 };
  const px = (x) => box.left + ((x - x0) / (x1 - x0)) * (box.right - box.left);
  const py = (y) => box.bottom - ((y - y0) / (y1 - y0)) * (box.bottom - box.top);
  ctx.font = "11px system-ui, sans-serif";
  ctx.fillStyle = css("quiet");
  ctx.strokeStyle = css("grid");
  ctx.lineWidth = 1;
  ctx.beginPath();
  ctx.textAlign = "center";
  const xs = ticks(x0, x1, Math.max(4, (box.right - box.left) / 80)),
    ys = ticks(y0, y1, Math.max(4, (box.bottom - box.top) / 50));
  const texts = { x: tickTexts(xs), y: tickTexts(ys) };
  for (const [i, x] of xs.entries()) {
    ctx.moveTo(px(x), box.top);
    ctx.lineTo(px(x), box.bottom);
    ctx.fillText(texts.x[i], px(x), box.bottom + 15);
  }
  ctx.textAlign = "right";
  for (const [i, y] of ys.entries()) {
    ctx.moveTo(box.left, py(y));
    ctx.lineTo(box.right, py(y));
    ctx.fillText(texts.y[i], box.left - 7, py(y) + 4);
  }
  ctx.stroke();
  ctx.textAlign = "center";
  ctx.font = "12px system-ui, sans-serif";
  ctx.fillText(clipped(names[0], 60), (box.left + box.right) / 2, height - 6);
  ctx.save();
  ctx.translate(13, (box.top + box.bottom) / 2);
  ctx.rotate(-Math.PI / 2);
  ctx.fillText(clipped(names[1], 40), 0, 0);
  ctx.restore();
  ctx.beginPath();
  ctx.rect(box.left, box.top, box.right - box.left, box.bottom - box.top);
  ctx.clip();
  return { px, py, box };
}

const clipped = (text, length) => (text.length > length ? `${text.slice(0, length - 1)}…` : text);

/** Returns the range of the values, with a margin. */
function ends(values, share = 0.06) {
  let low = Infinity,
    high = -Infinity;
  for (const value of values) {
    if (value < low) low = value;
    if (value > high) high = value;
  }
  const margin = share * (high - low) || 0.5;
  return [low - margin, high + margin];
}

function dot(ctx, x, y, radius) {
  ctx.beginPath();
  ctx.arc(x, y, radius, 0, 2 * Math.PI);
  ctx.fill();
}

// The plot of the particles on two coordinates, with areas proportional to the weights, at the stored checkpoints.

const RADIUS = 3.4,
  LARGEST = 26,
  FRAME_MS = 420;
let drawnParticles = [],
  playing = 0;

const currentRun = () => data.runs[Math.min(view.run, data.runs.length - 1)];
const currentCloud = () => currentRun().cloud;

/** Returns the colour of a weight: blue for 1/N, paler down to 1/(4N), purple for 2/N and orange from 4/N on. */
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

/** Draws everything that depends on the frame. */
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
  // If the page shows the newest frame, it moves on to newer frames as soon as they are stored.
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
      : `All particles (${cloud.particles.length})`;
  const when =
    cloud.steps.length > 1
      ? `${cloud.steps.length} checkpoints are stored; positions between them are interpolated during playback.`
      : `Only one checkpoint is stored, at k = ${cloud.steps[0]}.`;
  const left = cloud.omitted ? ` Coordinates that vary little are left out (${cloud.omitted}).` : "";
  $("cloud-caption").textContent =
    `${some}. The area of a particle is proportional to its weight. Colours: blue for the weight 1/N, purple and orange for heavier particles, pale for lighter ones. ${when}${left}`;
  $("stage").className = cloud.learnt ? "grid two" : "grid one";
  $("learnt-figure").hidden = !cloud.learnt;
  if (cloud.learnt) describeLearnt(cloud.learnt);
  if (!playing) showFrame(frameNow());
}

// The plot of the learned function of the whole cloud, per frame: a curve over one feature, or regions over two.

const LINES = {
  weighted: { name: "weighted", dash: [], width: 2.6 },
  unweighted: { name: "unweighted", dash: [6, 4], width: 1.4 },
};

function drawLearnt(learnt, frame) {
  const surface = wiped($("learnt"));
  if (learnt.kind === "line") drawFunction(surface, learnt, frame);
  else drawRegions(surface, learnt, frame);
  $("learnt").dataset.frame = frame;
  $("learnt").ariaLabel = `learned function at frame ${frame}`;
}

function describeLearnt(learnt) {
  const classes = learnt.classes.map((name, i) => `${["purple", "gold"][i]}: ${name}`).join(", ");
  $("learnt-caption").textContent = {
    line: "Points: test part. Solid line: weighted f. Dashed line: unweighted f.",
    shares: `Shade: weighted estimate, from ${learnt.classes[0]} to ${learnt.classes[1]}. Solid line: weighted boundary. Dashed line: unweighted boundary. Points: test part (${classes}).`,
    labels: `Shade: class predicted by the weighted estimate. Points: test part, coloured by class: ${learnt.classes.join(", ")}.`,
    values: "Shade: weighted f, from dark (low) to light (high). Points: test part, coloured by target.",
  }[learnt.kind];
}

/** Returns the values of an estimate in a frame. */
function answers(learnt, estimate, frame) {
  const values = decoded(learnt.estimates[estimate]),
    size = learnt.ranges.reduce((product, range) => product * range[2], 1);
  return values.subarray(frame * size, (frame + 1) * size);
}

function drawFunction(surface, learnt, frame) {
  const { ctx } = surface,
    [low, high, count] = learnt.ranges[0];
  // The axes span the range of the data, so that the data remain readable if the function diverges.
  const { px, py } = drawAxes(surface, [low, high], ends(learnt.target, 0.35), [learnt.features[0], "f"]);
  ctx.fillStyle = css("quiet");
  ctx.globalAlpha = 0.6;
  learnt.points[0].forEach((x, i) => dot(ctx, px(x), py(learnt.target[i]), 2.2));
  ctx.globalAlpha = 1;
  for (const [estimate, { dash, width }] of Object.entries(LINES)) {
    const f = answers(learnt, estimate, frame);
    ctx.strokeStyle = css(estimate);
    ctx.lineWidth = width;
    ctx.setLineDash(dash);
    ctx.beginPath();
    f.forEach((y, i) => ctx.lineTo(px(low + (i / (count - 1)) * (high - low)), py(y)));
    ctx.stroke();
  }
}

function drawRegions(surface, learnt, frame) {
  const { ctx } = surface,
    [[x0, x1, across], [y0, y1, up]] = learnt.ranges;
  const { px, py } = drawAxes(surface, [x0, x1], [y0, y1], learnt.features);
  const values = answers(learnt, "weighted", frame),
    targets = learnt.target;
  const [least, most] = learnt.kind === "values" ? ends([...values, ...targets], 0) : [0, 1];
  const colours = classColours(learnt.classes.length).map(channels);
  const colour = (value) => {
    if (learnt.kind === "labels") return [...colours[Math.round(value)], 70];
    if (learnt.kind === "values") return [...channels(viridis((value - least) / (most - least || 1))), 150];
    return [...colours[value > 0.5 ? 1 : 0], 30 + 170 * Math.abs(value - 0.5)];
  };
  const image = new ImageData(across, up);
  for (let row = 0; row < up; row++) {
    for (let column = 0; column < across; column++)
      image.data.set(colour(values[row * across + column]), 4 * ((up - 1 - row) * across + column));
  }
  const small = make("canvas", { width: across, height: up });
  small.getContext("2d").putImageData(image, 0, 0);
  // A grid point is the centre of its cell.
  const [halfX, halfY] = [(x1 - x0) / (across - 1) / 2, (y1 - y0) / (up - 1) / 2];
  ctx.imageSmoothingEnabled = learnt.kind !== "labels";
  ctx.drawImage(
    small,
    px(x0 - halfX),
    py(y1 + halfY),
    px(x1 + halfX) - px(x0 - halfX),
    py(y0 - halfY) - py(y1 + halfY),
  );
  const radius = targets.length > 600 ? 1.7 : 2.6;
  learnt.points[0].forEach((x, i) => {
    const [r, g, b] =
      learnt.kind === "values"
        ? channels(viridis((targets[i] - least) / (most - least || 1)))
        : (colours[targets[i]] ?? [128, 128, 128]);
    ctx.fillStyle = `rgb(${r} ${g} ${b} / .8)`;
    dot(ctx, px(x), py(learnt.points[1][i]), radius);
  });
  if (learnt.kind !== "shares") return;
  for (const [estimate, { dash, width }] of Object.entries(LINES)) {
    ctx.strokeStyle = css(estimate);
    ctx.lineWidth = width;
    ctx.setLineDash(dash);
    ctx.beginPath();
    for (const path of boundary(answers(learnt, estimate, frame), across, up)) {
      path.forEach(([column, row], i) =>
        ctx[i ? "lineTo" : "moveTo"](
          px(x0 + (column / (across - 1)) * (x1 - x0)),
          py(y0 + (row / (up - 1)) * (y1 - y0)),
        ),
      );
    }
    ctx.stroke();
  }
}

/** Returns the lines on which a share is one half (marching squares), joined into paths so that dashes are regular. */
function boundary(values, across, up) {
  const at = (column, row) => values[row * across + column] - 0.5,
    next = new Map();
  const link = (a, b) => {
    for (const [from, to] of [
      [a, b],
      [b, a],
    ])
      next.set(from.key, [...(next.get(from.key) ?? []), to]);
  };
  for (let row = 0; row < up - 1; row++) {
    for (let column = 0; column < across - 1; column++) {
      const corners = [
        [column, row],
        [column + 1, row],
        [column + 1, row + 1],
        [column, row + 1],
      ];
      const crossed = [];
      corners.forEach((from, i) => {
        const to = corners[(i + 1) % 4],
          a = at(...from),
          b = at(...to);
        if (a > 0 === b > 0) return;
        const share = a / (a - b);
        // The key of an edge does not depend on its direction, so that both neighbouring cells use the same key.
        const key =
          [...from, ...to].join() < [...to, ...from].join() ? [...from, ...to].join() : [...to, ...from].join();
        crossed.push({ key, place: [from[0] + share * (to[0] - from[0]), from[1] + share * (to[1] - from[1])] });
      });
      for (let i = 0; i + 1 < crossed.length; i += 2) link(crossed[i], crossed[i + 1]);
    }
  }
  const paths = [],
    used = new Set();
  const follow = (first) => {
    const path = [];
    for (let spot = first; spot; spot = next.get(spot.key)?.find((each) => !used.has(each.key))) {
      used.add(spot.key);
      path.push(spot.place);
    }
    return path;
  };
  // Open paths are followed from their ends first; the remaining paths are closed.
  const spots = new Map([...next.values()].flat().map((spot) => [spot.key, spot]));
  for (const closed of [false, true]) {
    for (const [key, spot] of spots) {
      if (used.has(key) || (!closed && next.get(key).length > 1)) continue;
      const path = follow(spot);
      paths.push(closed ? [...path, path[0]] : path);
    }
  }
  return paths;
}

/** Returns the components [r, g, b] of a colour of the page, which is given as #rrggbb or rgb(...). */
function channels(colour) {
  if (colour.startsWith("#")) return [1, 3, 5].map((i) => parseInt(colour.slice(i, i + 2), 16));
  return colour.match(/\d+/g).map(Number);
}
