// The matrix with deep zoom: pan and zoom like a map of the world. Each level is computed for its window;
// the old one is shown until the new one is there.

import { NAME, boxFor, drawMatrix, pixelsPer, spanOf, toPlace, weightAt } from "./drawing.js";
import { handle } from "./handling.js";
import { arrayOf, bitmap, button, clamp, largestOf, legend, linkLines, make, newest, sized, strongest, tableOf, weightText } from "./parts.js";

const BASE = 512; // cells a side of the whole picture, at most
const LEAST = 4; // queries or keys of the deepest window
const QUICK = 2 ** 24; // pairs from which a picture of some queries comes first
const MOST = 2 ** 30; // pairs over all heads that are worth waiting for
const LISTED = 12;
const KEYS = "Arrow keys move the cursor, plus and minus zoom, shift and arrows pan, 0 shows all. The line below reads the weight.";

const covers = (level, [q, k]) => level && level.queries[0] <= q[0] && level.queries[1] >= q[1] && level.keys[0] <= k[0]
  && level.keys[1] >= k[1];
const isSingle = (level) => level && !level.quick && level.rows === level.queries[1] - level.queries[0]
  && level.columns === level.keys[1] - level.keys[0];

// options: of, linked(window, pointed), height, title; several of them can be linked side by side.
export const matrixPicture = (ctx, options = {}) => {
  const around = make("div", "matrix");
  const canvas = make("canvas");
  canvas.tabIndex = 0;
  canvas.setAttribute("role", "application");
  canvas.setAttribute("aria-label", `The weights${options.title ? ` of ${options.title}` : ""}, queries down and keys across. ${KEYS}`);
  const readout = make("p", "readout number");
  readout.setAttribute("aria-live", "polite");
  readout.textContent = "\u00a0";
  around.append(canvas, readout);
  const scale = legend();
  const of = () => options.of ?? ctx.state.of;
  const signed = () => of() === "difference";
  const sight = () => ctx.sight(of());
  const whole = () => ({ q0: 0, q1: sight().t, k0: 0, k1: sight().s });

  let [name, base, detail, strips, pointed] = ["", null, null, null, null];
  let view = null; // {q0, q1, k0, k1} in queries and keys, not whole
  let box = { left: 0, top: 0, width: 0, height: 0 };
  let labels = { queries: [], keys: [], first: [0, 0] };
  let [single, frame, timer, saving, busy] = [0, 0, 0, 0, false];

  const span = () => spanOf(view, sight());
  const exact = () => [detail, base].find(isSingle);
  const scene = () => ({ box, view, sight: sight(), base, detail, exact: exact(), strips, labels, pointed, signed: signed(),
    picked: ctx.state.query !== null && of() === ctx.state.of ? { q: ctx.state.query, k: ctx.state.key } : null,
    paint: ctx.paint, colourOf: ctx.colourOf });

  // Questions: the whole, then what is in view.
  const request = (extra) => ({ ask: "map", ...ctx.which(), of: of(), ...extra });
  const levelOf = (answer) => {
    const cells = arrayOf(answer.map);
    const [rows, columns] = cells.shape;
    const largest = largestOf(cells);
    return { cells, rows, columns, largest, queries: answer.queries, keys: answer.keys, quick: answer.quick,
      image: bitmap(cells, rows, columns, largest, ctx.colours(), signed()) };
  };
  const askBase = async () => {
    const { t, s, heads } = sight();
    const own = name;
    const size = [Math.min(t, BASE), Math.min(s, BASE)];
    const pairs = t * s * (ctx.state.head === "mean" ? heads : 1);
    const take = (answer) => {
      if (own !== name) return;
      base = { ...levelOf(answer), t, s };
      dirty();
      ask();
      table.refresh();
    };
    if (pairs > QUICK) take(await ctx.ask(request({ size, quick: true })));
    if (own === name && pairs <= MOST) take(await ctx.ask(request({ size })));
  };
  // Ask for what is in view, a moment after it stands still; one question at a time.
  const ask = () => { clearTimeout(timer); timer = setTimeout(askNow, 60); };
  const askNow = async () => {
    if (busy || !view || !base) return;
    const own = name;
    const [queries, keys] = span();
    const at = JSON.stringify([queries, keys]);
    busy = true;
    try {
      askNames(queries, keys);
      const size = [Math.min(queries[1] - queries[0], Math.round(box.height)), Math.min(keys[1] - keys[0], Math.round(box.width))];
      const isAll = queries[1] - queries[0] === sight().t && keys[1] - keys[0] === sight().s;
      const [edges, cells] = await Promise.all([
        ctx.ask({ ask: "strips", ...ctx.which(), of: of(), queries, keys, size }),
        isAll ? null : ctx.ask(request({ queries, keys, size })),
      ]);
      if (own !== name) return;
      strips = { queries: edges.queries, keys: edges.keys };
      for (const edge of ["entropy", "received"]) if (edges[edge]) strips[edge] = [arrayOf(edges[edge]), edges[`${edge}_largest`]];
      detail = cells ? levelOf(cells) : null;
      around.dataset.level = detail ? `${detail.rows}x${detail.columns} of ${queries.join("-")}, ${keys.join("-")}` : "whole";
      table.refresh();
      dirty();
    } finally {
      busy = false;
      if (view && at !== JSON.stringify(span())) ask();
    }
  };
  const askNames = async ([a, b], [c, d]) => {
    const step = (n, room) => Math.max(1, Math.ceil((n * NAME) / room));
    if (step(b - a, box.height) > 64 && step(d - c, box.width) > 64 && b - a > 2048) {
      labels = { queries: [], keys: [], first: [a, c] };
      return;
    }
    const own = name;
    const [queries, keys] = await Promise.all([ctx.words(sight(), "queries", a, b), ctx.words(sight(), "keys", c, d)]);
    if (own !== name) return;
    labels = { queries: queries.map((word) => ctx.shown(word)), keys: keys.map((word) => ctx.shown(word)), first: [a, c] };
    dirty();
  };

  const dirty = () => { if (!frame) frame = requestAnimationFrame(() => { frame = 0; draw(); }); };
  const draw = () => {
    if (!view || !around.isConnected || !around.clientWidth) return;
    const width = around.clientWidth;
    box = boxFor(width, options.height ?? globalThis.innerHeight * 0.78, Boolean(options.height), sight(), labels);
    const height = box.top + box.height + 4;
    canvas.style.height = `${height}px`;
    drawMatrix(sized(canvas, width, height), scene());
    const shown = detail ?? base;
    if (shown) scale.show(shown.largest, ctx.colours(), signed());
  };

  // Moving about.
  const fit = (next) => {
    const keep = (low, high, n) => {
      const size = clamp(high - low, Math.min(LEAST, n), n);
      const from = clamp((low + high) / 2 - size / 2, 0, n - size);
      return [from, from + size];
    };
    const [q0, q1] = keep(next.q0, next.q1, sight().t);
    const [k0, k1] = keep(next.k0, next.k1, sight().s);
    view = { q0, q1, k0, k1 };
    dirty();
    ask();
    options.linked?.(view, undefined);
    save();
  };
  const save = () => {
    if (options.linked) return;
    clearTimeout(saving);
    saving = setTimeout(() => {
      saving = 0;
      const [queries, keys] = span();
      const all = queries[1] - queries[0] === sight().t && keys[1] - keys[0] === sight().s;
      ctx.remember(all ? { queries: null, keys: null } : { queries, keys });
    }, 150);
  };
  const zoom = (factor, q, k) => {
    const [nq, nk] = [view.q1 - view.q0, view.k1 - view.k0];
    const least = Math.min(1, Math.max(LEAST / nq, LEAST / nk));
    const most = Math.max(sight().t / nq, sight().s / nk);
    const by = Math.min(Math.max(factor, least), most);
    fit({ q0: q - (q - view.q0) * by, q1: q + (view.q1 - q) * by, k0: k - (k - view.k0) * by, k1: k + (view.k1 - k) * by });
  };
  const centre = () => (pointed ? [pointed.q + 0.5, pointed.k + 0.5] : [(view.q0 + view.q1) / 2, (view.k0 + view.k1) / 2]);
  const pan = (dq, dk) => fit({ q0: view.q0 + dq, q1: view.q1 + dq, k0: view.k0 + dk, k1: view.k1 + dk });
  const panBy = (q, k) => pan(q * (view.q1 - view.q0), k * (view.k1 - view.k0));
  const step = (dq, dk) => {
    const [px, py] = pixelsPer({ box, view });
    const at = pointed ?? { q: Math.floor((view.q0 + view.q1) / 2), k: Math.floor((view.k0 + view.k1) / 2) };
    const next = { q: clamp(at.q + dq * Math.max(1, Math.round(4 / py)), 0, sight().t - 1),
      k: clamp(at.k + dk * Math.max(1, Math.round(4 / px)), 0, sight().s - 1) };
    if (next.q < view.q0 || next.q >= view.q1 || next.k < view.k0 || next.k >= view.k1) panBy(0.5 * dq, 0.5 * dk);
    point(next);
  };

  // The number under the cursor: of the two tokens, whatever the zoom.
  const point = (at, isOwn = true) => {
    pointed = at;
    if (at) read(at);
    else readout.textContent = "\u00a0";
    if (isOwn) options.linked?.(undefined, at);
    dirty();
  };
  const read = ({ q, k }) => {
    const pair = `${ctx.name(sight(), "queries", q)} (${q}) → ${ctx.name(sight(), "keys", k)} (${k}): `;
    const level = exact();
    const w = covers(level, [[q, q + 1], [k, k + 1]]) ? weightAt(level, q, k) : undefined;
    around.dataset.weight = w ?? "";
    if (w !== undefined) { readout.textContent = pair + weightText(w); return; }
    readout.textContent = `${pair}…`;
    clearTimeout(single);
    single = setTimeout(async () => {
      const answer = await ctx.ask(request({ queries: [q, q + 1], keys: [k, k + 1], size: [1, 1] }));
      if (pointed?.q !== q || pointed?.k !== k) return;
      const [value] = arrayOf(answer.map);
      const isOne = answer.queries[1] - answer.queries[0] === 1 && answer.keys[1] - answer.keys[0] === 1;
      around.dataset.weight = value;
      readout.textContent = pair + weightText(value) + (isOne ? "" : ", the mean around it");
    }, 60);
  };
  handle(canvas, {
    isReady: () => view !== null,
    placeAt: (x, y) => {
      if (!view || x < box.left || y < box.top || x >= box.left + box.width || y >= box.top + box.height) return null;
      const [q, k] = toPlace({ box, view }, x, y);
      return { q: clamp(Math.floor(q), 0, sight().t - 1), k: clamp(Math.floor(k), 0, sight().s - 1), exact: [q, k] };
    },
    toPlace: (x, y) => toPlace({ box, view }, x, y),
    pixelsPer: () => pixelsPer({ box, view }),
    pick: (at = pointed) => { if (at && (options.of === undefined || options.of === ctx.state.of)) ctx.set({ query: at.q, key: at.k }); },
    zoomIn: (factor) => zoom(factor, ...centre()),
    all: () => fit(whole()),
    point, pan, panBy, zoom, step,
  });

  const table = tableOf(`The strongest weights in view${options.title ? `, ${options.title}` : ""}, as a table`, () => {
    const level = detail ?? base;
    if (!level) return [["query", "key", "weight"]];
    const wide = [(level.queries[1] - level.queries[0]) / level.rows, (level.keys[1] - level.keys[0]) / level.columns];
    const rows = strongest(level.cells, 40).map(([i, w]) => {
      const q = Math.floor(level.queries[0] + Math.floor(i / level.columns) * wide[0]);
      const k = Math.floor(level.keys[0] + (i % level.columns) * wide[1]);
      return [`${ctx.name(sight(), "queries", q)} (${q})`, `${ctx.name(sight(), "keys", k)} (${k})`, weightText(w)];
    });
    return [["query", "key", wide[0] > 1 || wide[1] > 1 ? "mean weight from there on" : "weight"], ...rows];
  });

  // The window that the address names, where this matrix has it.
  const asked = () => {
    const { queries, keys } = ctx.state;
    const { t, s } = sight();
    return queries && keys && queries[1] <= t && keys[1] <= s ? { q0: queries[0], q1: queries[1], k0: keys[0], k1: keys[1] } : whole();
  };
  return {
    element: around,
    legend: scale,
    table,
    zoom: (factor) => { if (view) zoom(factor, ...centre()); },
    reset: () => fit(whole()),
    follow: (next, at) => {
      if (next && view) { view = { ...next }; dirty(); ask(); }
      if (at !== undefined && view) point(at, false);
    },
    update: () => {
      const own = JSON.stringify([ctx.which(), of(), ctx.isDark()]);
      if (own !== name) {
        const { t, s } = sight();
        const stays = view && base && base.t === t && base.s === s;
        name = own;
        if (!stays) { view = asked(); base = null; labels = { queries: [], keys: [], first: [0, 0] }; }
        detail = strips = null;
        askBase().catch(() => {}); // said above the view
        askNames(...span());
      } else if (options.linked === undefined && !saving) { // else the address is behind
        const next = asked();
        if (JSON.stringify(span()) !== JSON.stringify([[next.q0, next.q1], [next.k0, next.k1]])) fit(next);
      }
      dirty();
    },
    resize: dirty,
    // Pans for some seconds and gives the median frames a second.
    measure: (seconds) => new Promise((done) => {
      const [times, start] = [[], performance.now()];
      zoom(0.4, ...centre());
      const next = (now) => {
        times.push(now);
        pan(Math.sin(now / 300) * 0.4, Math.cos(now / 300) * 0.4);
        if (now - start < 1000 * seconds) { requestAnimationFrame(next); return; }
        const apart = times.slice(1).map((time, i) => time - times[i]).sort((a, b) => a - b);
        done(1000 / apart[Math.floor(apart.length / 2)]);
      };
      requestAnimationFrame(next);
    }),
  };
};

export const matrixView = (ctx) => {
  const element = make("section", "view view-matrix");
  const picture = matrixPicture(ctx);
  const [bar, columns, side] = [make("div", "bar"), make("div", "columns"), make("div", "side")];
  bar.append(button("−", () => picture.zoom(1 / 0.6), "Zoom out"), button("+", () => picture.zoom(0.6), "Zoom in"),
    button("All", () => picture.reset(), "Show all"), picture.legend,
    make("span", "soft note", "Drag to move. Click, then scroll or pinch to zoom. Above: weight received; at the side: entropy."));
  const [heading, list] = [make("h2"), make("ol", "links")];
  side.append(heading, list);
  columns.append(picture.element, side);
  element.append(bar, columns, picture.table);
  const asked = newest();
  const beside = () => {
    const [sight, query] = [ctx.sight(), ctx.state.query];
    if (query === null || ctx.state.of === "difference") {
      heading.textContent = query === null ? "Click a cell to keep its query" : "";
      list.replaceChildren();
      return undefined;
    }
    const request = { ask: "top", ...ctx.which(), query, n: LISTED };
    return asked(ctx.ask(request).then((answer) => ctx.named(sight, "keys", answer)), (answer) => {
      const [weights, at] = [arrayOf(answer.weights), arrayOf(answer.at)];
      heading.replaceChildren(make("bdi", "accent", ctx.name(sight, "queries", query)), ` (${query}) reads`);
      list.replaceChildren(...linkLines([...at].map((k, i) => [`${ctx.name(sight, "keys", k)} (${k})`, weights[i]])));
    });
  };
  return {
    element,
    update: () => { picture.update(); return beside(); },
    resize: picture.resize,
    measure: picture.measure,
  };
};
