// Small parts that all views share: elements, numbers, tokens, arrays, colours.
// Every text becomes a text node, never markup.

// palette.js is written by assets.py, from sightline/look/palette.py.
import { SCALES } from "./palette.js";

export const make = (tag, name, text) => {
  const element = document.createElement(tag);
  if (name) element.className = name;
  if (text !== undefined) element.textContent = text;
  return element;
};

// The name of SVG's elements, which is no address: a page that holds all it shows holds none.
const SVG = ["http:", "", "www.w3.org", "2000", "svg"].join("/");
export const makeSvg = (tag, attributes = {}) => {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
};

export const button = (text, act, title) => {
  const element = make("button", "", text);
  element.type = "button";
  if (title) { element.title = title; element.setAttribute("aria-label", title); }
  element.addEventListener("click", act);
  return element;
};

// A menu with a label: entries are [value, text]; act gets the value.
export const menu = (label, entries, value, act) => {
  const [around, select] = [make("label", "menu"), make("select")];
  around.append(make("span", "soft", label), select);
  around.fill = (list, chosen) => {
    select.replaceChildren(...list.map(([v, text]) => new Option(text, String(v))));
    select.value = String(chosen);
  };
  around.fill(entries, value);
  around.choose = (v) => { select.value = String(v); };
  select.addEventListener("change", () => act(select.value));
  return around;
};

export const check = (label, value, act) => {
  const [around, box] = [make("label", "menu"), make("input")];
  box.type = "checkbox";
  box.checked = value;
  around.append(box, make("span", "", label));
  box.addEventListener("change", () => act(box.checked));
  return around;
};

// Buttons of which one is pressed: entries are [value, text].
export const choice = (label, entries, value, act) => {
  const group = make("div", "choice");
  group.setAttribute("role", "group");
  group.setAttribute("aria-label", label);
  const buttons = entries.map(([v, text]) => {
    const one = button(text, () => { group.choose(v); act(v); });
    one.dataset.value = v;
    group.append(one);
    return one;
  });
  group.choose = (v) => buttons.forEach((one) =>
    one.setAttribute("aria-pressed", String(one.dataset.value === String(v))));
  group.choose(value);
  return group;
};

// A table behind a picture, filled when it is opened: rows() gives arrays of cells, the first the headings.
export const tableOf = (title, rows) => {
  const [details, place] = [make("details", "table"), make("div", "scroll")];
  details.append(make("summary", "", title), place);
  place.tabIndex = 0;
  place.setAttribute("role", "region");
  place.setAttribute("aria-label", title);
  details.refresh = () => {
    if (!details.open) return;
    const [first, ...others] = rows();
    const table = make("table");
    const head = table.createTHead().insertRow();
    for (const cell of first) {
      const one = make("th", "", cell);
      one.scope = "col";
      head.append(one);
    }
    const body = table.createTBody();
    for (const cells of others) {
      const line = body.insertRow();
      for (const cell of cells) line.append(make("td", typeof cell === "number" ? "number" : "", String(cell)));
    }
    place.replaceChildren(table);
  };
  details.addEventListener("toggle", details.refresh);
  return details;
};

export const clamp = (x, low, high) => Math.max(low, Math.min(high, x));

// A weight as people read it; least is the precision that is known.
export const weightText = (w) => {
  if (w === undefined || Number.isNaN(w)) return "–";
  const size = Math.abs(w);
  if (size >= 0.01) return w.toFixed(3);
  if (size >= 0.00005) return w.toFixed(4);
  return size === 0 ? "0" : size.toExponential(1).replace(/^/, w < 0 ? "−" : "");
};

const BIDI = /[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;
// eslint-disable-next-line no-control-regex
const CONTROL = /[\u0000-\u001f\u007f]/g;
const LONGEST = 32;

// A token as a page can show it: controls become pictures of themselves, a long one is cut.
export const printable = (token, longest = LONGEST) => {
  const letters = [...token.slice(0, 4 * longest)];
  const short = letters.length > longest ? letters.slice(0, longest - 1).join("") + "…" : letters.join("");
  const shown = short
    .replace(CONTROL, (c) => String.fromCharCode(c === "\u007f" ? 0x2421 : 0x2400 + c.charCodeAt(0)))
    .replace(BIDI, (c) => `⟨${c.charCodeAt(0).toString(16)}⟩`);
  return shown.trim() === "" ? "␣" : shown;
};

const bytesOf = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));

// An array from JSON: {shape, f32|u8|u16|i32} becomes a typed array with a shape.
export const arrayOf = (packed) => {
  const [kind, type] = [["f32", Float32Array], ["u8", Uint8Array], ["u16", Uint16Array], ["i32", Int32Array]]
    .find(([name]) => name in packed);
  if (packed[kind] instanceof type) return Object.assign(packed[kind], { shape: packed.shape });
  return Object.assign(new type(bytesOf(packed[kind]).buffer), { shape: packed.shape });
};

// Colours: the palette's scales, at 256 levels each.
const LEVELS = 256;
const tables = {};
const bytes = (colour) => [1, 3, 5].map((i) => Number.parseInt(colour.slice(i, i + 2), 16));
const tableFor = (name) => (tables[name] ??= (() => {
  const stops = SCALES[name].map(bytes);
  return Array.from({ length: LEVELS }, (_, i) => {
    const place = (i / (LEVELS - 1)) * (stops.length - 1);
    const low = Math.min(Math.floor(place), stops.length - 2);
    return stops[low].map((v, j) => Math.round(v + (stops[low + 1][j] - v) * (place - low)));
  });
})());
export const isDark = (root) => {
  const [r, g, b] = getComputedStyle(root).backgroundColor.match(/[\d.]+/g).map(Number);
  return 0.3 * r + 0.59 * g + 0.11 * b < 128;
};
// The colours of a theme: of(share) for weights from 0 to 1, both(share) for differences from -1 to 1.
export const coloursFor = (dark) => {
  const theme = dark ? "dark" : "light";
  const at = (table, t) => table[clamp(Math.round(t * (LEVELS - 1)), 0, LEVELS - 1)];
  return { of: (t) => at(tableFor(`${theme} weights`), t), both: (t) => at(tableFor(`${theme} differences`), (t + 1) / 2) };
};
// The colour of a weight that is painted over an image.
export const glow = (t) => tableFor("glow")[clamp(Math.round(t * (LEVELS - 1)), 0, LEVELS - 1)];
export const css = ([r, g, b]) => `rgb(${r} ${g} ${b})`;

// Black or white, whichever reads better on a colour.
export const inkOn = ([r, g, b]) => {
  const [x, y, z] = [r, g, b].map((v) => (v / 255 <= 0.04045 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * x + 0.7152 * y + 0.0722 * z > 0.179 ? "#000" : "#fff";
};

// Small weights are most of them: a picture's scale goes by the root, so that they can be told from nothing;
// that of a text almost evenly, so that the words which were read stand out.
export const ROOT = 0.5;
export const EVEN = 0.8;
export const level = (w, largest, power = ROOT) => (largest > 0 ? clamp(w / largest, 0, 1) ** power : 0);
export const signedLevel = (w, largest, power = ROOT) => Math.sign(w) * level(Math.abs(w), largest, power);

// A bitmap of a matrix: one pixel a cell.
export const bitmap = (cells, rows, columns, largest, colours, signed = false) => {
  const canvas = make("canvas");
  [canvas.width, canvas.height] = [columns, rows];
  const context = canvas.getContext("2d");
  const image = context.createImageData(columns, rows);
  for (let i = 0; i < rows * columns; i++) {
    const [r, g, b] = signed ? colours.both(signedLevel(cells[i], largest)) : colours.of(level(cells[i], largest));
    image.data.set([r, g, b, 255], 4 * i);
  }
  context.putImageData(image, 0, 0);
  return canvas;
};

export const largestOf = (cells) => {
  let most = 0;
  for (let i = 0; i < cells.length; i++) if (Math.abs(cells[i]) > most) most = Math.abs(cells[i]);
  return most;
};

// The n largest of an array: [index, value], largest first.
export const strongest = (cells, n) => {
  const found = [];
  for (let i = 0; i < cells.length; i++) {
    const w = Math.abs(cells[i]);
    if (w <= 0 || (found.length === n && w <= Math.abs(found[n - 1][1]))) continue;
    let at = found.length;
    while (at > 0 && Math.abs(found[at - 1][1]) < w) at--;
    found.splice(at, 0, [i, cells[i]]);
    if (found.length > n) found.pop();
  }
  return found;
};

// Only the newest of several questions counts: one(promise, then) forgets the others.
export const newest = () => {
  let turn = 0;
  return (promise, then) => {
    const own = ++turn;
    return promise.then((answer) => { if (own === turn) then(answer); });
  };
};

// A canvas of so many CSS pixels, sharp on any screen; gives its context.
export const sized = (canvas, width, height) => {
  const scale = globalThis.devicePixelRatio || 1;
  const [w, h] = [Math.max(1, Math.round(width * scale)), Math.max(1, Math.round(height * scale))];
  if (canvas.width !== w || canvas.height !== h) [canvas.width, canvas.height] = [w, h];
  const context = canvas.getContext("2d");
  context.setTransform(scale, 0, 0, scale, 0, 0);
  context.clearRect(0, 0, width, height);
  return context;
};

// The legend of a scale from 0, or from -largest, to largest.
export const legend = () => {
  const [around, canvas] = [make("div", "legend"), make("canvas")];
  const [low, high] = [make("span", "number"), make("span", "number")];
  canvas.setAttribute("aria-hidden", "true");
  around.append(low, canvas, high);
  around.hidden = true; // until there is something to read
  around.show = (largest, colours, signed = false, power = ROOT) => {
    around.hidden = false;
    [canvas.width, canvas.height] = [128, 1];
    const context = canvas.getContext("2d");
    for (let i = 0; i < 128; i++) {
      context.fillStyle = css(signed ? colours.both(signedLevel(2 * i / 127 - 1, 1, power)) : colours.of(level(i / 127, 1, power)));
      context.fillRect(i, 0, 1, 1);
    }
    low.textContent = signed ? weightText(-largest) : "weight 0";
    high.textContent = weightText(largest);
  };
  return around;
};

// Lines of a list of links: a name, its weight, and a bar as long as the weight is large. links: [name, weight].
export const linkLines = (links) => {
  const most = Math.max(...links.map(([, w]) => Math.abs(w)), 1e-30);
  return links.map(([name, w]) => {
    const [line, bar] = [make("li"), make("span", "meter")];
    bar.style.width = `${(100 * Math.abs(w)) / most}%`;
    if (w < 0) bar.classList.add("less");
    line.append(make("bdi", "", name), make("span", "number", weightText(w)), bar);
    return line;
  });
};
