"use strict";
// Code that all sections use: the data, the reader's choices, elements, colours and numbers.

const $ = (id) => document.getElementById(id);
let data = JSON.parse($("data").textContent);

/** The reader's choices, which are kept when newer data arrives. */
const view = {
  colour: null,
  hidden: new Set(),
  parts: new Set(["test"]),
  estimates: new Set(["weighted"]),
  quantities: [null, null],
  logX: true,
  logY: new Map(),
  zoom: null,
  run: 0,
  across: "principal axis 1",
  up: "principal axis 2",
  follow: false,
  frame: Infinity,
};

/** Creates an element; strings among its children become text, never markup. */
function make(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children.filter((child) => child !== null));
  return made;
}

const isSingle = () => data.runs.length === 1;
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
const isDark = () => document.documentElement.dataset.theme === "dark";

/** Formats a number briefly: 0.00123, 1.2e-7, 250000. */
function short(value, digits = 4) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (Number.isInteger(value) && size < 1e6) return String(value).replace("-", "−");
  const text = size >= 1e5 || size < 1e-3 ? value.toExponential(digits - 1) : value.toPrecision(digits);
  return text
    .replace(/(\.\d*?)0+(?=e|$)/, "$1")
    .replace(/\.(?=e|$)/, "")
    .replace("e+", "e")
    .replaceAll("-", "−");
}

/** Formats ticks with the smallest number of digits that distinguishes them. */
function tickTexts(values) {
  for (let digits = 3; ; digits++) {
    const texts = values.map((value) => short(value, digits));
    if (digits === 9 || new Set(texts).size === texts.length) return texts;
  }
}

// A colour scale (viridis) and distinct colours (Okabe and Ito) for readers with any colour vision.
const VIRIDIS = [
  [68, 1, 84],
  [71, 44, 122],
  [59, 81, 139],
  [44, 113, 142],
  [33, 144, 141],
  [39, 173, 129],
  [92, 200, 99],
  [170, 220, 50],
  [253, 231, 37],
];
const DISTINCT = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f6fd0", "#8c8c8c"];

function viridis(share) {
  // The darkest end of the scale is invisible on a dark background, and the lightest end on white.
  const place = (isDark() ? 0.28 + 0.72 * share : 0.9 * share) * (VIRIDIS.length - 1);
  const below = Math.min(Math.floor(place), VIRIDIS.length - 2);
  const mixed = VIRIDIS[below].map((from, i) => Math.round(from + (place - below) * (VIRIDIS[below + 1][i] - from)));
  return `rgb(${mixed.join(" ")})`;
}

function classColours(count) {
  return count === 2
    ? [css("class0"), css("class1")]
    : Array.from({ length: count }, (_, i) => DISTINCT[i % DISTINCT.length]);
}

/** Decodes numbers that Python encoded with 16 bits each; an array is decoded only once. */
const decodedOnce = new WeakMap();
function decoded(stored) {
  if (!decodedOnce.has(stored)) {
    const bytes = Uint8Array.from(atob(stored.data), (letter) => letter.charCodeAt(0));
    const view16 = new DataView(bytes.buffer);
    const size = (stored.high - stored.low) / 65535;
    decodedOnce.set(
      stored,
      Float64Array.from({ length: bytes.length / 2 }, (_, i) => stored.low + size * view16.getUint16(2 * i, true)),
    );
  }
  return decodedOnce.get(stored);
}

/** Returns tick values: round numbers between two ends. */
function ticks(low, high, count) {
  const rough = (high - low) / count,
    power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((each) => each * power >= rough);
  const found = [];
  for (let i = Math.ceil(low / step); i * step <= high * (1 + 1e-12) + 1e-300; i++) found.push(i * step);
  return found.map((value) => Number(value.toPrecision(12)));
}

/** Returns tick values for a logarithmic axis: powers of ten, with round numbers between them on a short axis. */
function logTicks(low, high, count) {
  const decades = Math.log10(high / low);
  if (decades < 1) return ticks(low, high, count).filter((value) => value > 0);
  const first = Math.floor(Math.log10(low)),
    last = Math.ceil(Math.log10(high));
  const every = Math.ceil(decades / count),
    factors = decades < 2.2 ? [1, 2, 5] : [1];
  const found = [];
  for (let power = Math.ceil(first / every) * every; power <= last; power += every)
    found.push(...factors.map((f) => Number(`${f}e${power}`)));
  return found.filter((value) => value >= low && value <= high);
}
