// A window of a matrix on a canvas: its cells, the numbers in them, strips and names along the edges, the cursor.
//   scene = {box, view, sight, base, detail, exact, strips, labels, pointed, picked, signed, paint, colourOf}
// box is where the cells lie, in pixels; view the window, {q0, q1, k0, k1} in queries and keys, not whole.

import { clamp, weightText } from "./parts.js";

export const STRIP = 22; // pixels of a strip
export const NAME = 11; // pixels from one name to the next
const LETTER = 6.8; // pixels of a letter of a name
const CELL = 34; // pixels from which a cell holds its number
const FONT = "ui-sans-serif, system-ui, sans-serif";

export const pixelsPer = ({ box, view }) => [box.width / (view.k1 - view.k0), box.height / (view.q1 - view.q0)];
export const toPixel = (scene, q, k) => {
  const [px, py] = pixelsPer(scene);
  return [scene.box.left + (k - scene.view.k0) * px, scene.box.top + (q - scene.view.q0) * py];
};
export const toPlace = (scene, x, y) => {
  const [px, py] = pixelsPer(scene);
  return [scene.view.q0 + (y - scene.box.top) / py, scene.view.k0 + (x - scene.box.left) / px];
};

// The whole queries and keys of a window.
export const spanOf = ({ q0, q1, k0, k1 }, { t, s }) => [[clamp(Math.floor(q0), 0, t - 1), clamp(Math.ceil(q1), 1, t)],
  [clamp(Math.floor(k0), 0, s - 1), clamp(Math.ceil(k1), 1, s)]];

// The weight of a pair in a level, whose cells may be means.
export const weightAt = (level, q, k) => {
  const [i, j] = [Math.floor(((q - level.queries[0]) * level.rows) / (level.queries[1] - level.queries[0])),
    Math.floor(((k - level.keys[0]) * level.columns) / (level.keys[1] - level.keys[0]))];
  return i >= 0 && j >= 0 && i < level.rows && j < level.columns ? level.cells[i * level.columns + j] : undefined;
};

// Where the cells lie on a canvas so wide: names and strips need room at the left and above.
export const boxFor = (width, most, isFixed, { t, s }, labels) => {
  const isNarrow = width < 520;
  const longest = (side, n) => Math.max(2, ...(labels[side].length ? labels[side].map((word) => [...word].length) : [String(n).length]));
  const left = STRIP + clamp(longest("queries", t) * LETTER + 12, 30, isNarrow ? 64 : 116);
  const top = STRIP + clamp(longest("keys", s) * LETTER + 12, 26, isNarrow ? 60 : 104);
  const ratio = clamp(t / s, 0.25, 1.6);
  const across = Math.max(60, width - left - 8);
  const height = clamp(across * ratio, 120, Math.max(240, most - top));
  const isCut = !isFixed && height < across * ratio;
  return { left, top, width: isCut ? Math.max(height / ratio, 200) : across, height };
};

export const drawMatrix = (context, scene) => {
  const { box, base, detail, paint } = scene;
  context.save();
  context.beginPath();
  context.rect(box.left, box.top, box.width, box.height);
  context.clip();
  for (const level of [base, detail]) if (level) cells(context, scene, level);
  numbers(context, scene);
  cursor(context, scene);
  context.restore();
  context.strokeStyle = paint("line");
  context.lineWidth = 1;
  context.strokeRect(box.left - 0.5, box.top - 0.5, box.width + 1, box.height + 1);
  if (scene.strips) strips(context, scene);
  names(context, scene);
  inset(context, scene);
};

const cells = (context, scene, level) => {
  const [x0, y0] = toPixel(scene, level.queries[0], level.keys[0]);
  const [x1, y1] = toPixel(scene, level.queries[1], level.keys[1]);
  context.imageSmoothingEnabled = (x1 - x0) / level.columns < 1;
  context.drawImage(level.image, x0, y0, x1 - x0, y1 - y0);
};

// The number in each cell, where there is room.
const numbers = (context, scene) => {
  const [px, py] = pixelsPer(scene);
  const { exact, signed, colourOf } = scene;
  if (px < CELL || py < 14 || !exact) return;
  const [queries, keys] = spanOf(scene.view, scene.sight);
  context.font = `${clamp(px / 4.2, 8, 13)}px ${FONT}`;
  context.textAlign = "center";
  context.textBaseline = "middle";
  for (let q = queries[0]; q < queries[1]; q++) {
    for (let k = keys[0]; k < keys[1]; k++) {
      const w = weightAt(exact, q, k);
      if (!w) continue;
      context.fillStyle = colourOf(w, exact.largest, signed).ink;
      context.fillText(weightText(w).replace(/^([-−]?)0\./, "$1."), ...toPixel(scene, q + 0.5, k + 0.5));
    }
  }
};

const cursor = (context, scene) => {
  const { box, pointed, picked } = scene;
  const [at, alpha] = pointed ? [pointed, 0.9] : [picked, 0.5];
  if (!at || at.k === null) return;
  const [px, py] = pixelsPer(scene);
  const [x, y] = toPixel(scene, at.q, at.k);
  context.globalAlpha = alpha;
  context.strokeStyle = scene.paint("accent");
  context.lineWidth = 1.5;
  context.strokeRect(box.left - 2, y, box.width + 4, Math.max(1, py));
  context.strokeRect(x, box.top - 2, Math.max(1, px), box.height + 4);
  context.globalAlpha = 1;
};

// Received above, entropy at the side; the cells under the cursor in the accent's colour.
const strips = (context, scene) => {
  const { box, pointed, paint } = scene;
  const [px, py] = pixelsPer(scene);
  context.save();
  context.beginPath();
  context.rect(box.left, 0, box.width, box.top);
  context.rect(0, box.top, box.left, box.height);
  context.clip();
  const bars = (isSide, [values, largest], [first, last]) => {
    const each = (last - first) / values.length;
    const thick = (per) => Math.max(1, each * per - (each * per > 4 ? 1 : 0));
    const at = pointed && (isSide ? pointed.q : pointed.k);
    for (let i = 0; i < values.length; i++) {
      const long = largest > 0 ? (STRIP - 5) * Math.sqrt(clamp(Math.abs(values[i]) / largest, 0, 1)) : 0;
      const from = first + i * each;
      const [x, y] = toPixel(scene, from, from);
      const isOn = at !== null && at >= from && at < from + each;
      context.fillStyle = paint(isOn ? "accent" : "soft");
      context.globalAlpha = isOn ? 1 : 0.55;
      if (isSide) context.fillRect(box.left - 3 - long, y, long, thick(py));
      else context.fillRect(x, box.top - 3 - long, thick(px), long);
    }
    context.globalAlpha = 1;
  };
  if (scene.strips.entropy) bars(true, scene.strips.entropy, scene.strips.queries);
  if (scene.strips.received) bars(false, scene.strips.received, scene.strips.keys);
  context.restore();
};

const STEPS = [2, 5, 10, 20, 50].flatMap((n) => [n, n * 50, n * 2500, n * 125000]).sort((a, b) => a - b);

// Names along both sides: all of them, or every so many where there is no room.
const names = (context, scene) => {
  const { box, labels, pointed, picked, paint } = scene;
  const [px, py] = pixelsPer(scene);
  const [queries, keys] = spanOf(scene.view, scene.sight);
  context.font = `11px ${FONT}`;
  context.textBaseline = "middle";
  for (const [side, per, [first, last], isAbove] of [["queries", py, queries, false], ["keys", px, keys, true]]) {
    const step = per >= NAME ? 1 : STEPS.find((n) => n * per >= (labels[side].length ? NAME + 3 : 44)) ?? last - first;
    const room = (isAbove ? box.top : box.left) - STRIP - 6;
    const [low, high] = isAbove ? [box.left, box.left + box.width] : [box.top, box.top + box.height];
    for (let i = Math.ceil(first / step) * step; i < last; i += step) {
      const [x, y] = toPixel(scene, i + 0.5, i + 0.5);
      if ((isAbove ? x : y) < low || (isAbove ? x : y) > high) continue;
      const isOn = [pointed, picked].some((at) => at && (isAbove ? at.k : at.q) === i);
      context.fillStyle = paint(isOn ? "accent" : step === 1 ? "ink" : "soft");
      const text = fitted(context, labels[side][i - labels.first[isAbove ? 1 : 0]] ?? String(i), room);
      context.save();
      context.translate(isAbove ? x : box.left - STRIP - 4, isAbove ? box.top - STRIP - 3 : y);
      if (isAbove) context.rotate(-Math.PI / 2);
      context.textAlign = isAbove ? "left" : "right";
      context.fillText(text, 0, 0);
      context.restore();
    }
  }
};

const fitted = (context, text, room) => {
  if (context.measureText(text).width <= room) return text;
  const letters = [...text];
  while (letters.length > 1 && context.measureText(letters.join("") + "…").width > room) letters.pop();
  return letters.join("") + "…";
};

// Where the window lies in the whole, in the corner, while it is a part.
const inset = (context, { box, view, base, sight: { t, s }, paint }) => {
  const part = Math.max((view.q1 - view.q0) / t, (view.k1 - view.k0) / s);
  if (!base || part > 0.8 || box.width < 200) return;
  const side = clamp(box.width / 5, 56, 120);
  const [w, h] = s >= t ? [side, Math.max(8, (side * t) / s)] : [Math.max(8, (side * s) / t), side];
  const [x, y] = [box.left + box.width - w - 8, box.top + 8];
  context.fillStyle = paint("paper");
  context.fillRect(x - 2, y - 2, w + 4, h + 4);
  context.drawImage(base.image, x, y, w, h);
  context.strokeStyle = paint("line");
  context.strokeRect(x - 1.5, y - 1.5, w + 3, h + 3);
  context.strokeStyle = paint("accent");
  context.lineWidth = 1.5;
  context.strokeRect(x + (view.k0 / s) * w, y + (view.q0 / t) * h, Math.max(3, ((view.k1 - view.k0) / s) * w),
    Math.max(3, ((view.q1 - view.q0) / t) * h));
};
