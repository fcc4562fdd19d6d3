// Lines: two columns of words, or one sentence with arcs; width by weight, a window of a long text at a time.

import { arrayOf, button, check, choice, clamp, make, makeSvg, menu, newest, strongest, tableOf, weightText } from "./parts.js";

const WINDOW = 200; // words a column at most
const MOST = 900; // lines
const WIDE = 780; // pixels across both columns
const ROW = 22; // pixels of a word in a column

export const linesView = (ctx) => {
  const element = make("section", "view view-lines");
  const [bar, place, note] = [make("div", "bar"), make("div", "scroll stage"), make("p", "readout number")];
  place.tabIndex = 0;
  place.setAttribute("role", "group");
  place.setAttribute("aria-label", "Words and the lines between them: arrow keys step through the words");
  note.setAttribute("aria-live", "polite");
  note.textContent = "\u00a0";
  let [mode, least, first, pointed, cells, span] = ["columns", 0.05, null, null, null, null];
  let [names, boxes] = [{ queries: [], keys: [] }, []];
  const shape = choice("Shape", [["columns", "Columns"], ["arcs", "Arcs"]], mode, (value) => { mode = value; draw(); });
  const threshold = menu("Lines from", [[0.01, "0.01"], [0.05, "0.05"], [0.1, "0.1"], [0.2, "0.2"], [0.4, "0.4"]], least,
    (value) => { least = Number(value); draw(); });
  const alone = check("only the picked word", false, () => draw());
  const pages = make("span", "pages");
  bar.append(shape, threshold, alone, pages);
  const table = tableOf("The lines as a table", () => [["query", "key", "weight"],
    ...links(300).map(([q, k, w]) => [names.queries[q], names.keys[k], weightText(w)])]);
  element.append(bar, place, note, table);
  const asked = newest();
  const sight = () => ctx.sight();
  const isOneText = () => sight().queries === sight().keys && sight().t === sight().s;
  const isArcs = () => mode === "arcs" && isOneText();

  const links = (most) => {
    if (!cells) return [];
    const [, columns] = cells.shape;
    return strongest(cells, most).filter(([, w]) => Math.abs(w) >= least).map(([i, w]) => [Math.floor(i / columns), i % columns, w]);
  };
  const window_ = () => {
    const { t, s } = sight();
    if (first === null) first = t <= WINDOW ? 0 : clamp(Math.round((ctx.state.query ?? 0) - WINDOW / 2), 0, t - WINDOW);
    const a = clamp(first, 0, Math.max(0, t - WINDOW));
    const c = t === s ? a : 0;
    return [[a, Math.min(t, a + WINDOW)], [c, Math.min(s, c + WINDOW)]];
  };
  const turn = () => {
    const { t } = sight();
    pages.replaceChildren();
    if (t <= WINDOW) return;
    const to = (step) => { first = clamp(first + step * WINDOW, 0, t - WINDOW); ask(); };
    pages.append(button("←", () => to(-1), "Earlier words"), make("span", "soft number", `${span[0][0]}–${span[0][1] - 1} of ${t}`),
      button("→", () => to(1), "Later words"));
  };
  const ask = async () => {
    const [queries, keys] = window_();
    const size = [queries[1] - queries[0], keys[1] - keys[0]];
    const own = sight();
    await asked(Promise.all([ctx.ask({ ask: "map", ...ctx.which(), queries, keys, size }),
      ctx.words(own, "queries", ...queries), ctx.words(own, "keys", ...keys)]), ([answer, rows, columns]) => {
      cells = arrayOf(answer.map);
      span = [answer.queries, answer.keys];
      const fits = cells.shape[0] === rows.length && cells.shape[1] === columns.length;
      names = { queries: fits ? rows.map((w) => ctx.shown(w)) : [...Array(cells.shape[0]).keys()].map(String),
        keys: fits ? columns.map((w) => ctx.shown(w)) : [...Array(cells.shape[1]).keys()].map(String) };
      turn();
      draw();
      table.refresh();
    });
  };

  const draw = () => {
    if (!cells || !place.clientWidth) return;
    boxes = [];
    shape.hidden = !isOneText(); // two texts have no arcs
    const svg = makeSvg("svg", { role: "img", "aria-label": "Lines from the words that look to the words they look at" });
    place.replaceChildren(svg);
    if (isArcs()) arcs(svg);
    else columns(svg);
    emphasise();
    reveal();
  };
  // Scroll the stage, not the page, until the picked word is in it.
  const reveal = () => {
    const own = boxes.find((text) => text.dataset.side === "queries" && Number(text.dataset.i) === ctx.state.query - span[0][0]);
    if (!own || ctx.state.query === null) return;
    const [at, stage] = [own.getBoundingClientRect(), place.getBoundingClientRect()];
    if (at.top < stage.top || at.bottom > stage.bottom) place.scrollTop += at.top - stage.top - stage.height / 2;
    if (at.left < stage.left || at.right > stage.right) place.scrollLeft += at.left - stage.left - stage.width / 2;
  };
  const word = (svg, side, i, x, y, anchor, transform) => {
    const text = makeSvg("text", { x, y, "text-anchor": anchor, "dominant-baseline": "middle", class: "name", ...(transform ? { transform } : {}) });
    text.textContent = names[side][i];
    text.dataset.side = side;
    text.dataset.i = i;
    svg.append(text);
    boxes.push(text);
    text.addEventListener("pointerenter", () => point(side, i));
    text.addEventListener("pointerleave", () => point(null));
    text.addEventListener("click", () => ctx.set({ query: span[side === "queries" ? 0 : 1][0] + i, side: side === "queries" ? "reads" : "read" }));
  };
  const wanted = () => {
    const picked = ctx.state.query === null ? null : ctx.state.query - span[0][0];
    const isAlone = alone.querySelector("input").checked && picked !== null;
    return links(MOST).filter(([q]) => !isAlone || q === picked);
  };
  // Of an image's patches, which are many and lie in no line, those that a word reads.
  const keysOf = (lines) => {
    const all = [...names.keys.keys()];
    if (sight().key_patches === null || sight().query_patches !== null) return all;
    const read = new Set(lines.map(([, k]) => k));
    return all.filter((k) => read.has(k));
  };
  const thin = (w) => Math.max(0.6, 4.5 * Math.abs(w));
  const columns = (svg) => {
    const width = Math.min(place.clientWidth, WIDE);
    const label = clamp(width * 0.28, 70, 180);
    const lines = wanted();
    const keys = keysOf(lines);
    const row = new Map(keys.map((k, i) => [k, i]));
    const height = ROW * Math.max(names.queries.length, keys.length) + 12;
    svg.setAttribute("width", width);
    svg.setAttribute("height", height);
    const at = (i) => 6 + ROW * (i + 0.5);
    const [x0, x1] = [label, width - label];
    for (const [q, k, w] of lines.reverse()) {
      const [bend, y] = [(x1 - x0) * 0.35, at(row.get(k))];
      const d = `M ${x0 + 6} ${at(q)} C ${x0 + bend} ${at(q)}, ${x1 - bend} ${y}, ${x1 - 6} ${y}`;
      stroke(svg, d, q, k, w);
    }
    names.queries.forEach((_, i) => word(svg, "queries", i, x0, at(i), "end"));
    for (const k of keys) word(svg, "keys", k, x1, at(row.get(k)), "start");
  };
  const arcs = (svg) => {
    const n = names.queries.length;
    const step = clamp((place.clientWidth - 40) / n, 18, 60);
    const width = Math.max(place.clientWidth, n * step + 40);
    const high = clamp((n * step) / 2.6, 80, 360);
    svg.setAttribute("width", width);
    svg.setAttribute("height", high + 110);
    const at = (i) => 20 + step * (i + 0.5);
    for (const [q, k, w] of wanted().reverse()) {
      if (q === k) { stroke(svg, `M ${at(q) - 4} ${high} a 4 5 0 1 1 8 0`, q, k, w); continue; }
      const lift = Math.max(10, Math.min(high - 6, (Math.abs(at(q) - at(k)) * high) / (n * step) * 1.25));
      stroke(svg, `M ${at(q)} ${high} C ${at(q)} ${high - lift * 1.33}, ${at(k)} ${high - lift * 1.33}, ${at(k)} ${high}`, q, k, w);
    }
    names.queries.forEach((_, i) => word(svg, "queries", i, 0, 0, "end", `translate(${at(i)} ${high + 12}) rotate(-52)`));
  };
  const stroke = (svg, d, q, k, w) => {
    const path = makeSvg("path", { d, "stroke-width": thin(w), class: w < 0 ? "link less" : "link", opacity: clamp(0.18 + Math.abs(w), 0, 0.9) });
    Object.assign(path.dataset, { q, k, w });
    svg.append(path);
  };

  const point = (side, i) => {
    pointed = side === null ? null : { side, i };
    emphasise();
  };
  const emphasise = () => {
    const picked = ctx.state.query === null || !span ? null : ctx.state.query - span[0][0];
    const on = pointed ?? (picked === null || picked < 0 ? null : { side: "queries", i: picked });
    const column = on && cells ? cells.shape[1] : 0;
    for (const path of place.querySelectorAll("path")) {
      const isOn = on && (Number(on.side === "queries" ? path.dataset.q : path.dataset.k) === on.i);
      path.classList.toggle("on", Boolean(isOn));
      path.classList.toggle("off", Boolean(pointed && !isOn));
      path.classList.toggle("dim", Boolean(on && !pointed && !isOn));
    }
    for (const text of boxes) text.classList.toggle("on", Boolean(on && text.dataset.side === on.side && Number(text.dataset.i) === on.i));
    if (!on || !names[on.side][on.i]) {
      note.textContent = place.querySelector("path") ? "\u00a0" : `No weight is ${least} or more: take lines from a smaller one.`;
      return;
    }
    const line = on.side === "queries" ? cells.subarray(on.i * column, (on.i + 1) * column)
      : cells.filter((_, i) => i % column === on.i);
    const best = strongest(line, 4).map(([i, w]) => `${names[on.side === "queries" ? "keys" : "queries"][i]} ${weightText(w)}`);
    note.textContent = `${names[on.side][on.i]} ${on.side === "queries" ? "reads" : "is read by"} ${best.join(", ")}`;
  };
  place.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1 }[event.key];
    if (!step || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    ctx.set({ query: clamp((ctx.state.query ?? -1) + step, 0, sight().t - 1) });
  });

  let name = "";
  return {
    element,
    update: () => {
      const own = JSON.stringify([ctx.which(), ctx.isDark()]);
      const at = ctx.state.query;
      const isOut = span && at !== null && (at < span[0][0] || at >= span[0][1]);
      if (own !== name || isOut) { name = own; if (isOut || !span) first = null; return ask(); }
      if (alone.querySelector("input").checked) draw();
      else { emphasise(); reveal(); }
      return undefined;
    },
    resize: draw,
  };
};
