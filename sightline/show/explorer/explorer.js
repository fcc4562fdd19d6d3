// The explorer: mount(root, source) draws all views of what was seen into an element.
//   source = {meta, ask(request) -> Promise<answer>}
//   options = {views: ["word", ...], address: true, compact: false, theme: "light" or "dark"}
// address: true keeps the view in the page's address; an object does so beside fields of its own, such as which result it is.

import { compareView } from "./compare.js";
import { savePng, saveSvg } from "./export.js";
import { filmView } from "./film.js";
import { hasPatches, imageView } from "./image.js";
import { linesView } from "./lines.js";
import { matrixView } from "./matrix.js";
import { overviewView } from "./overview.js";
import { arrayOf, button, coloursFor, css, inkOn, isDark, level, make, menu, printable, signedLevel } from "./parts.js";
import { remembering, storedSource } from "./source.js";
import { wordView } from "./word.js";

const VIEWS = {
  image: ["Image", imageView, (meta) => Boolean(meta.image) && meta.sights.some(hasPatches)],
  word: ["Words", wordView, () => true],
  overview: ["Overview", overviewView, () => true],
  matrix: ["Matrix", matrixView, () => true],
  lines: ["Lines", linesView, () => true],
  film: ["Generation", filmView, (meta) => Boolean(meta.steps?.length)],
  compare: ["Compare", compareView, (meta) => Boolean(meta.compare)],
};
const CHUNK = 1024; // tokens of a long text that come at once
const KEYS = [["1 – 7", "choose a view"], ["[ and ]", "head before, head after"], ["{ and }", "layer before, layer after"],
  ["arrow keys", "step through words, patches or cells"], ["+ − 0", "zoom the matrix"], ["Enter", "keep what is pointed at"]];

const startOf = (meta, views) => {
  const summary = meta.sights.findIndex((one) => one.summary);
  const patches = meta.sights.findIndex(hasPatches);
  const isImage = views[0] === "image";
  const sight = summary >= 0 ? summary : isImage ? patches : 0;
  const { t, causal } = meta.sights[sight];
  return { view: views[0], sight, head: "mean", query: isImage ? null : causal ? t - 1 : Math.min(t - 1, Math.floor(t / 2)), key: null,
    side: "reads", of: 0, queries: null, keys: null, step: 0 };
};

// Of two that are compared, the layers of one; the difference has those of both.
const sightsOf = (meta, of) => (of === 1 ? meta.compare.sights : meta.sights);
// Why the difference of a layer is not defined; null where it is.
const whyNoDifference = ({ sights, compare: { names, sights: others } }, i) => {
  const [a, b] = [sights[i], others[i]];
  if (!b) return `${names[1]} has ${others.length} layers, ${names[0]} ${sights.length}: this one has no other.`;
  if (a.t !== b.t || a.s !== b.s) {
    return `The difference needs as many queries and keys in both: ${names[0]} has ${a.t} and ${a.s}, ${names[1]} ${b.t} and ${b.s}.`;
  }
  return a.heads === b.heads ? null : `The difference needs as many heads in both: ${names[0]} has ${a.heads}, ${names[1]} ${b.heads}.`;
};

// The address: what differs from the start, so that it brings the same view back.
const WHOLE = ["sight", "query", "key", "step"];
const SPANS = ["queries", "keys"];
const toAddress = (state, start, own) => {
  const fields = new URLSearchParams(own);
  for (const [name, value] of Object.entries(state)) {
    if (JSON.stringify(value) !== JSON.stringify(start[name])) fields.set(name, value === null ? "" : Array.isArray(value) ? value.join("-") : value);
  }
  return fields.toString();
};
const fromAddress = (text, start, meta, views) => {
  const state = { ...start };
  for (const [name, value] of new URLSearchParams(text)) {
    if (WHOLE.includes(name)) state[name] = value === "" ? null : Number.parseInt(value, 10);
    if (SPANS.includes(name) && /^\d+-\d+$/.test(value)) state[name] = value.split("-").map(Number);
    if (name === "head") state.head = value === "mean" ? "mean" : Number.parseInt(value, 10);
    if (name === "view" && views.includes(value)) state.view = value;
    if (name === "side" && value === "read") state.side = value;
    if (name === "of" && meta.compare) state.of = value === "difference" ? value : Number(value) ? 1 : 0;
  }
  return checked(state, start, meta);
};
// A state that what is shown can have: whatever does not fit falls back.
const checked = (state, start, meta) => {
  let [of, { sight }] = [meta.compare ? state.of : 0, state];
  if (!sightsOf(meta, of)[sight]) sight = sightsOf(meta, of)[start.sight] ? start.sight : 0;
  if (of === "difference" && whyNoDifference(meta, sight)) of = 0;
  const { heads, t, s } = sightsOf(meta, of)[sight];
  const isIn = (x, n) => Number.isInteger(x) && x >= 0 && x < n;
  const span = (x, n) => (x && x[0] >= 0 && x[0] < x[1] && x[1] <= n ? x : null);
  const [queries, keys] = [span(state.queries, t), span(state.keys, s)];
  return { ...state, of, sight, head: isIn(state.head, heads) ? state.head : "mean",
    query: isIn(state.query, state.side === "read" ? Math.max(t, s) : t) ? state.query : null,
    key: isIn(state.key, s) ? state.key : null, queries: keys && queries, keys: queries && keys,
    step: isIn(state.step, meta.steps?.length ?? 0) ? state.step : 0 };
};

const SHORT = /(\d+)(?!.*\d)/;
let mounts = 0;

export function mount(root, source, options = {}) {
  const own = `sl-${mounts++}`;
  const { meta } = source;
  const ask = remembering(source);
  const views = (options.views ?? Object.keys(VIEWS)).filter((name) => VIEWS[name][2](meta));
  const start = startOf(meta, views);
  const hasAddress = Boolean(options.address);
  const fields = hasAddress && options.address !== true ? options.address : {}; // of the address, not ours
  let state = hasAddress ? fromAddress(location.hash.slice(1), start, meta, views) : { ...start };
  const made = {};
  let [colours, paints] = [null, {}];
  const probe = make("span", "probe");
  root.classList.add("sl");
  root.dataset.lmSuppressShortcuts = "true"; // in Jupyter Lab keys are ours while we have the focus
  root.classList.toggle("compact", Boolean(options.compact));
  if (options.theme) root.dataset.theme = options.theme;
  root.replaceChildren();

  const problem = make("p", "problem");
  problem.hidden = true;
  problem.setAttribute("role", "alert");
  let waiting = 0;
  const wait = (change) => { waiting += change; root.dataset.waiting = waiting; };
  const guarded = (request) => {
    wait(1);
    return ask(request).then((answer) => { problem.hidden = true; return answer; }, (error) => {
      problem.textContent = String(error.message ?? error);
      problem.hidden = false;
      throw error;
    }).finally(() => wait(-1));
  };

  // Names of tokens: those of long texts come in pieces.
  const pieces = new Map();
  const textOf = (sight, side) => sight[side];
  const known = (text, i) => meta.tokens[text].words?.[i] ?? pieces.get(`${text}:${Math.floor(i / CHUNK)}`)?.[i % CHUNK];
  const imageOf = (of) => (of === 1 ? meta.compare.image ?? meta.image : meta.image);
  // The name of a patch; null for what is none.
  const patchName = (sight, side, i) => {
    const first = sight[side === "queries" ? "query_patches" : "key_patches"];
    const image = imageOf(meta.compare?.sights.includes(sight) ? 1 : 0);
    return first === null || !image || i < first ? null : `patch ${Math.floor((i - first) / image.columns)},${(i - first) % image.columns}`;
  };
  const words = async (sight, side, first, last) => {
    const text = textOf(sight, side);
    const plain = (i) => patchName(sight, side, i) ?? String(i);
    if (text === null) return Array.from({ length: last - first }, (_, i) => plain(first + i));
    const { words: all, n } = meta.tokens[text];
    if (all) return all.slice(first, last);
    const wanted = [];
    for (let piece = Math.floor(first / CHUNK); piece * CHUNK < last; piece++) {
      const name = `${text}:${piece}`;
      if (!pieces.has(name)) wanted.push(guarded({ ask: "tokens", text, span: [piece * CHUNK, Math.min(n, (piece + 1) * CHUNK)] })
        .then((answer) => pieces.set(name, answer.words), () => pieces.set(name, [])));
    }
    await Promise.all(wanted);
    return Array.from({ length: last - first }, (_, i) => known(text, first + i) ?? plain(first + i));
  };

  const ctx = {
    root, meta,
    get state() { return state; },
    ask: guarded,
    words,
    sights: (of = state.of) => sightsOf(meta, of),
    sight: (of = state.of) => sightsOf(meta, of)[state.sight],
    image: () => imageOf(state.of),
    whyNoDifference: () => whyNoDifference(meta, state.sight),
    which: () => ({ of: state.of, sight: state.sight, head: state.head }),
    shown: (word) => printable(word, 24),
    name: (sight, side, i) => {
      const text = textOf(sight, side);
      if (text === null) return patchName(sight, side, i) ?? `#${i}`;
      const word = known(text, i);
      return word === undefined ? `#${i}` : printable(word, 24);
    },
    // An answer once the names of its tokens are known.
    named: async (sight, side, answer) => {
      await Promise.all([...arrayOf(answer.at)].map((i) => words(sight, side, i, i + 1)));
      return answer;
    },
    short: (i) => {
      const { name, summary } = ctx.sights()[i];
      if (summary) return "summary";
      const others = ctx.sights().filter((one) => !one.summary);
      const areAlike = others.every((one) => one.name.replace(/\d+/g, "") === name.replace(/\d+/g, ""));
      const number = name.match(SHORT);
      return areAlike && number ? number[1] : name;
    },
    colours: () => (colours ??= coloursFor(isDark(root))),
    // A colour of the style sheet as a canvas takes it.
    paint: (name) => (paints[name] ??= (() => {
      probe.style.color = `var(--${name})`;
      return getComputedStyle(probe).color;
    })()),
    isDark: () => isDark(root),
    colourOf: (w, largest, signed) => {
      const rgb = signed ? ctx.colours().both(signedLevel(w, largest)) : ctx.colours().of(level(w, largest));
      return { css: css(rgb), ink: inkOn(rgb) };
    },
    set: (change) => {
      const next = checked({ ...state, ...change }, start, meta);
      const isNew = next.view !== state.view || imageOf(next.of) !== imageOf(state.of);
      if (imageOf(next.of) !== imageOf(state.of)) for (const name of Object.keys(made)) delete made[name];
      state = next;
      write();
      if (isNew) openView();
      else refresh();
    },
    remember: (change) => { state = checked({ ...state, ...change }, start, meta); write(); },
  };
  const write = () => {
    if (!hasAddress) return;
    const text = toAddress(state, start, fields);
    try { history.replaceState(null, "", `#${text}`); } catch { /* a frame without an address */ }
  };

  // The frame: a title, tabs, which head, the view.
  const header = make("header");
  if (!options.compact) {
    const title = make("h1", "", meta.title);
    title.dir = "auto";
    header.append(title);
    if (meta.model) header.append(make("p", "soft", meta.model));
  }
  const tabs = make("div", "tabs");
  tabs.setAttribute("role", "tablist");
  tabs.setAttribute("aria-label", "Views");
  views.forEach((name, i) => {
    const tab = button(VIEWS[name][0], () => ctx.set({ view: name }));
    tab.id = `${own}-tab-${name}`;
    tab.setAttribute("role", "tab");
    tab.setAttribute("aria-controls", `${own}-panel`);
    tab.dataset.view = name;
    tab.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!step) return;
      event.preventDefault();
      const next = views[(i + step + views.length) % views.length];
      ctx.set({ view: next });
      tabs.querySelector(`[data-view=${next}]`).focus();
    });
    tabs.append(tab);
  });
  const picks = make("div", "picks");
  const layer = menu("Layer", [], state.sight, (value) => ctx.set({ sight: Number(value) }));
  const head = menu("Head", [], "mean", (value) => ctx.set({ head: value === "mean" ? "mean" : Number(value) }));
  picks.append(layer, head);
  let of = null;
  if (meta.compare) {
    of = menu("Of", [], state.of,
      (value) => ctx.set({ of: value === "difference" ? value : Number(value) }));
    picks.append(of);
  }
  const saves = make("div", "saves");
  const file = () => `${(meta.title || "attention").replace(/[^\p{L}\p{N}]+/gu, "-").slice(0, 40)}-${state.view}`;
  const save = (how) => () => how(made[state.view], root, file()).catch?.((error) => { problem.textContent = String(error); problem.hidden = false; });
  saves.append(button("PNG", save(async (...all) => savePng(...all)), "Save this view as PNG"),
    button("SVG", save(async (...all) => saveSvg(...all)), "Save this view as SVG"));
  const panel = make("div", "panel");
  panel.id = `${own}-panel`;
  panel.setAttribute("role", "tabpanel");
  const top = make("div", "top");
  if (views.length > 1) top.append(tabs);
  else panel.removeAttribute("role");
  top.append(picks);
  if (!options.compact) top.append(saves);
  const help = make("details", "help");
  const list = make("dl");
  for (const [keys, what] of KEYS) list.append(make("dt", "", keys), make("dd", "", what));
  help.append(make("summary", "", "Keys"), list);
  const footer = make("footer", "soft");
  if (!options.compact) {
    if (meta.stored) footer.append(make("p", "note", meta.stored));
    footer.append(help);
  }
  root.append(...(header.childElementCount ? [header] : []), top, problem, panel, footer, probe);

  // A layer's number before its name, so that a narrow menu says which it is.
  const numbered = (i) => (/^\d+$/.test(ctx.short(i)) && !/^layer \d+$/.test(ctx.sights()[i].name) ? `${ctx.short(i)} · ` : "") + ctx.sights()[i].name;
  const refresh = () => {
    layer.fill(ctx.sights().map((one, i) => [i, numbered(i)]), state.sight);
    const { heads } = ctx.sight();
    head.fill([["mean", heads > 1 ? `mean of ${heads}` : "the only one"], ...(heads > 1 ? Array.from({ length: heads }, (_, i) => [i, String(i)]) : [])], state.head);
    if (of) {
      const why = ctx.whyNoDifference();
      of.fill([[0, meta.compare.names[0]], [1, meta.compare.names[1]], ...(why ? [] : [["difference", "the difference"]])], state.of);
      of.title = why ?? "";
      of.hidden = state.view === "compare"; // which shows both
    }
    layer.hidden = ctx.sights().length < 2;
    head.hidden = heads < 2;
    Promise.resolve(made[state.view].update()).catch((error) => { problem.textContent = String(error.message ?? error); problem.hidden = false; });
  };
  const openView = () => {
    for (const tab of tabs.children) {
      const isOn = tab.dataset.view === state.view;
      tab.setAttribute("aria-selected", String(isOn));
      tab.tabIndex = isOn ? 0 : -1;
    }
    if (views.length > 1) panel.setAttribute("aria-labelledby", `${own}-tab-${state.view}`);
    made[state.view] ??= VIEWS[state.view][1](ctx);
    panel.replaceChildren(made[state.view].element);
    refresh();
  };
  root.addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, select, textarea")) return;
    const { heads } = ctx.sight();
    const turn = (step) => {
      const order = ["mean", ...Array.from({ length: heads }, (_, i) => i)];
      return order[(order.indexOf(state.head) + step + order.length) % order.length];
    };
    const n = ctx.sights().length;
    const act = { "[": () => ({ head: turn(-1) }), "]": () => ({ head: turn(1) }), "{": () => ({ sight: (state.sight + n - 1) % n }),
      "}": () => ({ sight: (state.sight + 1) % n }) }[event.key];
    const view = views[Number(event.key) - 1];
    if (act) ctx.set(act());
    else if (view && !event.target.closest(".matrix")) ctx.set({ view });
    else return;
    event.preventDefault();
  });
  const repaint = () => { colours = null; paints = {}; refresh(); made[state.view].resize(); };
  const watchSize = new ResizeObserver(() => { if (made[state.view]) made[state.view].resize(); });
  const dark = matchMedia("(prefers-color-scheme: dark)");
  dark.addEventListener("change", repaint);
  const onAddress = () => {
    const text = location.hash.slice(1);
    if (text === toAddress(state, start, fields)) return;
    if (Object.entries(fields).some(([name, value]) => new URLSearchParams(text).get(name) !== value)) return;
    state = fromAddress(text, start, meta, views);
    openView();
  };
  if (hasAddress) addEventListener("hashchange", onAddress);
  openView();
  watchSize.observe(panel);
  root.dataset.ready = "true";
  return {
    set: ctx.set,
    ask: guarded,
    get state() { return { ...state }; },
    measure: (seconds) => { ctx.set({ view: "matrix" }); return made.matrix.measure(seconds); },
    unmount: () => {
      watchSize.disconnect();
      dark.removeEventListener("change", repaint);
      removeEventListener("hashchange", onAddress);
      root.replaceChildren();
    },
  };
}

// All explorers of a saved page: each lies beside its data, {meta, stored, options}.
export function mountSaved(document_) {
  for (const data of document_.querySelectorAll('script[type="application/json"][data-explorer]')) {
    const { meta, stored, options } = JSON.parse(data.textContent);
    data.previousElementSibling.explorer = mount(data.previousElementSibling, storedSource({ meta, stored }), options);
  }
}
