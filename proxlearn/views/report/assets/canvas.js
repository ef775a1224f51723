// Canvases with axes, for the cloud and the learned function.

/** Clears the canvas and sets it to the resolution of the screen. */
function wiped(canvas) {
  const ratio = devicePixelRatio,
    { width, height } = canvas.getBoundingClientRect();
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  const ctx = canvas.getContext("2d");
  ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
  return { ctx, width, height };
}

/** Draws grid, ticks and names, and clips to the frame; returns the functions from values to pixels. */
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

/** The range of some numbers, with a margin. */
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
