// The learned function of the whole cloud, per frame: a curve over one feature, or regions over two.

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

/** The values of one estimate in one frame. */
function answers(learnt, estimate, frame) {
  const values = decoded(learnt.estimates[estimate]),
    size = learnt.ranges.reduce((product, range) => product * range[2], 1);
  return values.subarray(frame * size, (frame + 1) * size);
}

function drawFunction(surface, learnt, frame) {
  const { ctx } = surface,
    [low, high, count] = learnt.ranges[0];
  // The axes span the range of the data, so that the rest stays readable if the function diverges.
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

/** The lines on which a share is one half (marching squares), joined into paths so that dashes run along them. */
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
        // The neighbouring cell gives the same edge the same name, based on its smaller corner.
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

/** The components [r, g, b] of one of the page's colours, #rrggbb or rgb(...). */
function channels(colour) {
  if (colour.startsWith("#")) return [1, 3, 5].map((i) => parseInt(colour.slice(i, i + 2), 16));
  return colour.match(/\d+/g).map(Number);
}
