// The matrix with deep zoom: pan and zoom like a map of the world. Each level is computed for its window;
// the old one is shown until the new one is there. Strips along the edges: received above, entropy at the side.

import { arrayOf, bitmap, button, clamp, largestOf, legend, linkLines, make, newest, sized, strongest, tableOf, weightText } from "./parts.js";

const STRIP = 22; // pixels of a strip
const BASE = 512; // cells a side of the whole picture, at most
const LEAST = 4; // queries or keys of the deepest window
const LETTER = 6.8; // pixels of a letter of a name
const NAME = 11; // pixels from one name to the next
const CELL = 34; // pixels from which a cell holds its number
const QUICK = 2 ** 24; // pairs from which a picture of some queries comes first
const LISTED = 12;
const MOST = 2 ** 30; // pairs over all heads that are worth waiting for

// options: of, linked(window, pointed), height; several of them can be linked side by side.
export const matrixPicture = (ctx, options = {}) => {
  const around = make("div", "matrix");
  const canvas = make("canvas");
  canvas.tabIndex = 0;
  canvas.setAttribute("role", "application");
  canvas.setAttribute("aria-label", "The weights, queries down and keys across. Arrow keys move the cursor, plus and minus "
    + "zoom, shift and arrows pan, 0 shows all. The line below reads the weight.");
  const readout = make("p", "readout number");
  readout.setAttribute("aria-live", "polite");
  around.append(canvas, readout);
  const scale = legend();
  const of = () => options.of ?? ctx.state.of;
  const signed = () => of() === "difference";

  let [name, base, detail, strips] = ["", null, null, null];
  let view = null; // {q0, q1, k0, k1} in queries and keys, not whole
  let [pointed, single, frame, timer, busy] = [null, null, 0, 0, false];
  let labels = { queries: [], keys: [], first: [0, 0] };
  const box = { left: 0, top: 0, width: 0, height: 0 };

  const sight = () => ctx.sight();
  const whole = () => ({ q0: 0, q1: sight().t, k0: 0, k1: sight().s });
  const pixelsPer = () => [box.width / (view.k1 - view.k0), box.height / (view.q1 - view.q0)];
  const toPixel = (q, k) => [box.left + (k - view.k0) * pixelsPer()[0], box.top + (q - view.q0) * pixelsPer()[1]];
  const toPlace = (x, y) => [view.q0 + (y - box.top) / pixelsPer()[1], view.k0 + (x - box.left) / pixelsPer()[0]];

  const layout = () => {
    const width = around.clientWidth || 320;
    const narrow = width < 520;
    const longest = (side, n) => Math.max(2, ...(labels[side].length ? labels[side].map((word) => [...word].length) : [String(n).length]));
    const names = { queries: clamp(longest("queries", sight().t) * LETTER + 12, 30, narrow ? 64 : 116),
      keys: clamp(longest("keys", sight().s) * LETTER + 12, 26, narrow ? 60 : 104) };
    box.left = names.queries + STRIP;
    box.top = names.keys + STRIP;
    box.width = Math.max(60, width - box.left - 8);
    const ratio = clamp(sight().t / sight().s, 0.25, 1.6);
    const most = Math.max(240, (options.height ?? globalThis.innerHeight * 0.78) - box.top);
    box.height = clamp(box.width * ratio, 120, most);
    if (!options.height && box.height < box.width * ratio) box.width = Math.max(box.height / ratio, 200);
    return [width, box.top + box.height + 4];
  };

  // The window that is asked for: whole queries and keys.
  const span = () => {
    const { t, s } = sight();
    return [[clamp(Math.floor(view.q0), 0, t - 1), clamp(Math.ceil(view.q1), 1, t)],
      [clamp(Math.floor(view.k0), 0, s - 1), clamp(Math.ceil(view.k1), 1, s)]];
  };
  const levelOf = (answer) => {
    const cells = arrayOf(answer.map);
    const [rows, columns] = cells.shape;
    const largest = largestOf(cells);
    return { cells, rows, columns, largest, queries: answer.queries, keys: answer.keys, quick: answer.quick,
      image: bitmap(cells, rows, columns, largest, ctx.colours(), signed()) };
  };
  const request = (extra) => ({ ask: "map", ...ctx.which(), of: of(), ...extra });
  const covers = (one, [q, k]) => one && one.queries[0] <= q[0] && one.queries[1] >= q[1] && one.keys[0] <= k[0] && one.keys[1] >= k[1];

  const askBase = async () => {
    const { t, s, heads } = sight();
    const own = name;
    const size = [Math.min(t, BASE), Math.min(s, BASE)];
    const pairs = t * s * (ctx.state.head === "mean" ? heads : 1);
    const take = (answer) => { if (own === name) { base = levelOf(answer); dirty(); ask(); table.refresh(); } };
    if (pairs > QUICK) take(await ctx.ask(request({ size, quick: true })));
    if (own === name && (pairs <= MOST)) take(await ctx.ask(request({ size })));
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
    const [width, height] = layout();
    canvas.style.height = `${height}px`;
    const [ink, soft, line, accent, paper] = ["ink", "soft", "line", "accent", "paper"].map(ctx.paint);
    const context = sized(canvas, width, height);
    context.save();
    context.beginPath();
    context.rect(box.left, box.top, box.width, box.height);
    context.clip();
    for (const one of [base, detail]) if (one) paint(context, one);
    numbers(context);
    cross(context, accent);
    context.restore();
    context.strokeStyle = line;
    context.lineWidth = 1;
    context.strokeRect(box.left - 0.5, box.top - 0.5, box.width + 1, box.height + 1);
    edges(context, soft, accent);
    names(context, ink, soft, accent);
    inset(context, line, accent, paper);
    const shown = detail ?? base;
    if (shown) scale.show(shown.largest, ctx.colours(), signed());
  };
  const paint = (context, one) => {
    const [x0, y0] = toPixel(one.queries[0], one.keys[0]);
    const [x1, y1] = toPixel(one.queries[1], one.keys[1]);
    context.imageSmoothingEnabled = (x1 - x0) / one.columns < 1;
    context.drawImage(one.image, x0, y0, x1 - x0, y1 - y0);
  };
  const exact = () => [detail, base].find((one) => one && !one.quick && one.rows === one.queries[1] - one.queries[0]
    && one.columns === one.keys[1] - one.keys[0]);
  const weightAt = (one, q, k) => {
    const [i, j] = [Math.floor(((q - one.queries[0]) * one.rows) / (one.queries[1] - one.queries[0])),
      Math.floor(((k - one.keys[0]) * one.columns) / (one.keys[1] - one.keys[0]))];
    return i >= 0 && j >= 0 && i < one.rows && j < one.columns ? one.cells[i * one.columns + j] : undefined;
  };
  // The number in each cell, where there is room.
  const numbers = (context) => {
    const [px, py] = pixelsPer();
    const one = exact();
    if (px < CELL || py < 14 || !one) return;
    const [queries, keys] = span();
    context.font = `${clamp(px / 4.2, 8, 13)}px ui-sans-serif, system-ui, sans-serif`;
    context.textAlign = "center";
    context.textBaseline = "middle";
    for (let q = queries[0]; q < queries[1]; q++) {
      for (let k = keys[0]; k < keys[1]; k++) {
        const w = weightAt(one, q, k);
        if (!w) continue;
        const colour = ctx.colourOf(w, one.largest, signed());
        context.fillStyle = colour.ink;
        const [x, y] = toPixel(q + 0.5, k + 0.5);
        context.fillText(weightText(w).replace(/^0\./, "."), x, y);
      }
    }
  };
  const cross = (context, accent) => {
    const [px, py] = pixelsPer();
    const mark = (q, k, alpha) => {
      const [x, y] = toPixel(q, k);
      context.globalAlpha = alpha;
      context.strokeStyle = accent;
      context.lineWidth = 1.5;
      context.strokeRect(box.left - 2, y, box.width + 4, Math.max(1, py));
      context.strokeRect(x, box.top - 2, Math.max(1, px), box.height + 4);
      context.globalAlpha = 1;
    };
    if (pointed) mark(pointed.q, pointed.k, 0.9);
    else if (ctx.state.query !== null && ctx.state.key !== null) mark(ctx.state.query, ctx.state.key, 0.5);
  };
  const edges = (context, soft, accent) => {
    if (!strips) return;
    const [px, py] = pixelsPer();
    context.save();
    context.beginPath();
    context.rect(box.left, 0, box.width, box.top);
    context.rect(0, box.top, box.left, box.height);
    context.clip();
    const bar = (vertical, [cells, largest], [first, last]) => {
      const each = (last - first) / cells.length;
      for (let i = 0; i < cells.length; i++) {
        const long = largest > 0 ? (STRIP - 5) * Math.sqrt(clamp(Math.abs(cells[i]) / largest, 0, 1)) : 0;
        const [x, y] = toPixel(first + i * each, first + i * each);
        const isOn = pointed && (vertical ? pointed.q : pointed.k) >= first + i * each
          && (vertical ? pointed.q : pointed.k) < first + (i + 1) * each;
        context.fillStyle = isOn ? accent : soft;
        context.globalAlpha = isOn ? 1 : 0.55;
        if (vertical) context.fillRect(box.left - 3 - long, y, long, Math.max(1, each * py - (each * py > 4 ? 1 : 0)));
        else context.fillRect(x, box.top - 3 - long, Math.max(1, each * px - (each * px > 4 ? 1 : 0)), long);
      }
      context.globalAlpha = 1;
    };
    if (strips.entropy) bar(true, strips.entropy, strips.queries);
    if (strips.received) bar(false, strips.received, strips.keys);
    context.restore();
  };
  const names = (context, ink, soft, accent) => {
    const [px, py] = pixelsPer();
    const [queries, keys] = span();
    context.font = `11px ui-sans-serif, system-ui, sans-serif`;
    context.textBaseline = "middle";
    const sides = [["queries", py, queries, 0], ["keys", px, keys, 1]];
    for (const [side, per, [first, last], which] of sides) {
      const step = per >= NAME ? 1 : [2, 5, 10, 20, 50].flatMap((n) => [n, n * 50, n * 2500, n * 125000]).sort((a, b) => a - b)
        .find((n) => n * per >= (labels[side].length ? NAME + 3 : 44)) ?? last - first;
      const room = (which ? box.top : box.left) - STRIP - 6;
      for (let i = Math.ceil(first / step) * step; i < last; i += step) {
        const [x, y] = toPixel(i + 0.5, i + 0.5);
        const at = which ? x : y;
        const [low, high] = which ? [box.left, box.left + box.width] : [box.top, box.top + box.height];
        if (at < low || at > high) continue;
        const isOn = pointed && (which ? pointed.k : pointed.q) === i;
        const isPicked = !which && ctx.state.query === i;
        context.fillStyle = isOn || isPicked ? accent : step === 1 ? ink : soft;
        const word = labels[side][i - labels.first[which]];
        const text = fitted(context, word === undefined ? String(i) : word, room);
        context.save();
        if (which) {
          context.translate(x, box.top - STRIP - 3);
          context.rotate(-Math.PI / 2);
          context.textAlign = "left";
          context.fillText(text, 0, 0);
        } else {
          context.textAlign = "right";
          context.fillText(text, box.left - STRIP - 4, y);
        }
        context.restore();
      }
    }
  };
  // Where the window lies in the whole, in the corner, while it is a part.
  const inset = (context, line, accent, paper) => {
    const { t, s } = sight();
    const part = Math.max((view.q1 - view.q0) / t, (view.k1 - view.k0) / s);
    if (!base || part > 0.8 || box.width < 200) return;
    const side = clamp(box.width / 5, 56, 120);
    const [w, h] = s >= t ? [side, Math.max(8, (side * t) / s)] : [Math.max(8, (side * s) / t), side];
    const [x, y] = [box.left + box.width - w - 8, box.top + 8];
    context.fillStyle = paper;
    context.fillRect(x - 2, y - 2, w + 4, h + 4);
    context.drawImage(base.image, x, y, w, h);
    context.strokeStyle = line;
    context.strokeRect(x - 1.5, y - 1.5, w + 3, h + 3);
    context.strokeStyle = accent;
    context.lineWidth = 1.5;
    context.strokeRect(x + (view.k0 / s) * w, y + (view.q0 / t) * h, Math.max(3, ((view.k1 - view.k0) / s) * w),
      Math.max(3, ((view.q1 - view.q0) / t) * h));
  };

  // Moving about.
  const fit = (next) => {
    const { t, s } = sight();
    const keep = (low, high, n) => {
      const size = clamp(high - low, Math.min(LEAST, n), n);
      const middle = (low + high) / 2;
      const from = clamp(middle - size / 2, 0, n - size);
      return [from, from + size];
    };
    const [q0, q1] = keep(next.q0, next.q1, t);
    const [k0, k1] = keep(next.k0, next.k1, s);
    view = { q0, q1, k0, k1 };
    dirty();
    ask();
    options.linked?.(view, undefined);
    save();
  };
  let saving = 0;
  const save = () => {
    if (options.linked) return;
    clearTimeout(saving);
    saving = setTimeout(() => {
      if (!view) return;
      const [queries, keys] = span();
      const all = queries[1] - queries[0] === sight().t && keys[1] - keys[0] === sight().s;
      ctx.remember(all ? { queries: null, keys: null } : { queries, keys });
    }, 150);
  };
  const zoom = (factor, q, k) => {
    const { t, s } = sight();
    const bounded = Math.max(factor, Math.min(1, Math.max(LEAST / (view.q1 - view.q0), LEAST / (view.k1 - view.k0))));
    const limited = Math.min(bounded, Math.max(t / (view.q1 - view.q0), s / (view.k1 - view.k0)));
    fit({ q0: q - (q - view.q0) * limited, q1: q + (view.q1 - q) * limited, k0: k - (k - view.k0) * limited, k1: k + (view.k1 - k) * limited });
  };
  const centre = () => (pointed ? [pointed.q + 0.5, pointed.k + 0.5] : [(view.q0 + view.q1) / 2, (view.k0 + view.k1) / 2]);
  const pan = (dq, dk) => fit({ q0: view.q0 + dq, q1: view.q1 + dq, k0: view.k0 + dk, k1: view.k1 + dk });

  const point = (at, told = true) => {
    pointed = at;
    if (at) read(at);
    else readout.textContent = "\u00a0";
    if (told) options.linked?.(undefined, at);
    dirty();
  };
  const read = ({ q, k }) => {
    const pair = `${ctx.name(sight(), "queries", q)} (${q}) → ${ctx.name(sight(), "keys", k)} (${k}): `;
    const one = exact();
    const w = one && covers(one, [[q, q + 1], [k, k + 1]]) ? weightAt(one, q, k) : undefined;
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
  const placeOf = (event) => {
    const sides = canvas.getBoundingClientRect();
    const [x, y] = [event.clientX - sides.left, event.clientY - sides.top];
    if (x < box.left || y < box.top || x >= box.left + box.width || y >= box.top + box.height) return null;
    const [q, k] = toPlace(x, y);
    return { q: clamp(Math.floor(q), 0, sight().t - 1), k: clamp(Math.floor(k), 0, sight().s - 1), exact: [q, k] };
  };

  const fingers = new Map();
  let [moved, spread] = [0, 0];
  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    fingers.set(event.pointerId, [event.clientX, event.clientY]);
    moved = 0;
    spread = 0;
  });
  canvas.addEventListener("pointermove", (event) => {
    const before = fingers.get(event.pointerId);
    if (!before || !view) { if (view) point(placeOf(event)); return; }
    const [dx, dy] = [event.clientX - before[0], event.clientY - before[1]];
    moved += Math.abs(dx) + Math.abs(dy);
    fingers.set(event.pointerId, [event.clientX, event.clientY]);
    const [px, py] = pixelsPer();
    if (fingers.size === 1) { if (moved > 4) pan(-dy / py, -dx / px); return; }
    const [[x0, y0], [x1, y1]] = [...fingers.values()];
    const apart = Math.hypot(x1 - x0, y1 - y0);
    const sides = canvas.getBoundingClientRect();
    if (spread) zoom(spread / apart, ...toPlace((x0 + x1) / 2 - sides.left, (y0 + y1) / 2 - sides.top));
    spread = apart;
  });
  const lift = (event) => {
    if (fingers.delete(event.pointerId) && moved <= 4 && event.type === "pointerup") {
      const at = placeOf(event);
      point(at);
      if (at) ctx.set({ query: at.q, key: at.k });
    }
    spread = 0;
  };
  canvas.addEventListener("pointerup", lift);
  canvas.addEventListener("pointercancel", lift);
  canvas.addEventListener("pointerleave", (event) => { if (event.pointerType !== "touch" && !fingers.size) point(null); });
  canvas.addEventListener("dblclick", (event) => { const at = placeOf(event); if (at) zoom(0.4, ...at.exact); });
  canvas.addEventListener("wheel", (event) => {
    const isFocused = canvas === canvas.getRootNode().activeElement;
    if (!event.ctrlKey && !event.metaKey && !isFocused) return;
    event.preventDefault();
    const at = placeOf(event);
    if (at) zoom(Math.exp(clamp(event.deltaY, -60, 60) * 0.008), ...at.exact);
  }, { passive: false });
  canvas.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || !view) return;
    const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    const act = { "+": () => zoom(0.6, ...centre()), "=": () => zoom(0.6, ...centre()), "-": () => zoom(1 / 0.6, ...centre()),
      0: () => fit(whole()), Home: () => fit(whole()),
      Enter: () => { if (pointed) ctx.set({ query: pointed.q, key: pointed.k }); } }[event.key];
    if (!step && !act) return;
    event.preventDefault();
    if (act) { act(); return; }
    const [dq, dk] = step;
    const [nq, nk] = [view.q1 - view.q0, view.k1 - view.k0];
    if (event.shiftKey) { pan(dq * nq * 0.2, dk * nk * 0.2); return; }
    const [px, py] = pixelsPer();
    const at = pointed ?? { q: Math.floor((view.q0 + view.q1) / 2), k: Math.floor((view.k0 + view.k1) / 2) };
    const next = { q: clamp(at.q + dq * Math.max(1, Math.round(4 / py)), 0, sight().t - 1),
      k: clamp(at.k + dk * Math.max(1, Math.round(4 / px)), 0, sight().s - 1) };
    if (next.q < view.q0 || next.q >= view.q1 || next.k < view.k0 || next.k >= view.k1) pan(dq * nq * 0.5, dk * nk * 0.5);
    point(next);
  });
  canvas.addEventListener("blur", () => point(null));

  const table = tableOf("The strongest weights in view, as a table", () => {
    const one = detail ?? base;
    if (!one) return [["query", "key", "weight"]];
    const wide = [(one.queries[1] - one.queries[0]) / one.rows, (one.keys[1] - one.keys[0]) / one.columns];
    const rows = strongest(one.cells, 40).map(([i, w]) => {
      const q = Math.floor(one.queries[0] + Math.floor(i / one.columns) * wide[0]);
      const k = Math.floor(one.keys[0] + (i % one.columns) * wide[1]);
      return [`${ctx.name(sight(), "queries", q)} (${q})`, `${ctx.name(sight(), "keys", k)} (${k})`, weightText(w)];
    });
    return [["query", "key", wide[0] > 1 || wide[1] > 1 ? "mean weight from there on" : "weight"], ...rows];
  });

  readout.textContent = "\u00a0";
  return {
    element: around,
    legend: scale,
    table,
    zoom: (factor) => { if (view) zoom(factor, ...centre()); },
    reset: () => fit(whole()),
    follow: (next, at) => {
      if (next && view) { view = { ...next }; dirty(); ask(); }
      if (at !== undefined) point(at, false);
    },
    update: () => {
      const own = JSON.stringify([ctx.which(), of(), ctx.isDark()]);
      const [queries, keys] = [ctx.state.queries, ctx.state.keys];
      const asked = queries && keys ? { q0: queries[0], q1: queries[1], k0: keys[0], k1: keys[1] } : whole();
      if (own !== name) {
        const { t, s } = sight();
        const stays = view && base && base.t === t && base.s === s;
        name = own;
        if (!stays) { view = asked; base = null; labels = { queries: [], keys: [], first: [0, 0] }; }
        detail = strips = null;
        askBase().then(() => { if (base) Object.assign(base, { t, s }); });
        askNames(...span());
      } else if (options.linked === undefined && JSON.stringify(span()) !== JSON.stringify([[asked.q0, asked.q1], [asked.k0, asked.k1]])) {
        fit(asked);
      }
      dirty();
    },
    resize: dirty,
    // Pans for some seconds and gives the median frames a second.
    measure: (seconds) => new Promise((done) => {
      const [times, start] = [[], performance.now()];
      zoom(0.4, ...centre());
      const step = (now) => {
        times.push(now);
        pan(Math.sin(now / 300) * 0.4, Math.cos(now / 300) * 0.4);
        if (now - start < 1000 * seconds) { requestAnimationFrame(step); return; }
        const apart = times.slice(1).map((time, i) => time - times[i]).sort((a, b) => a - b);
        done(1000 / apart[Math.floor(apart.length / 2)]);
      };
      requestAnimationFrame(step);
    }),
  };
};

const fitted = (context, text, room) => {
  if (context.measureText(text).width <= room) return text;
  const letters = [...text];
  while (letters.length > 1 && context.measureText(letters.join("") + "…").width > room) letters.pop();
  return letters.join("") + "…";
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
    if (query === null) { heading.textContent = "Click a cell to keep its query"; list.replaceChildren(); return undefined; }
    const request = { ask: "top", ...ctx.which(), query, n: LISTED };
    return asked(ctx.ask(request).then((answer) => ctx.named(sight, "keys", answer)), (answer) => {
      const [weights, at] = [arrayOf(answer.weights), arrayOf(answer.at)];
      heading.replaceChildren(make("bdi", "accent", ctx.name(sight, "queries", query)), ` (${query}) reads`);
      list.replaceChildren(...linkLines([...at].map((k, i) => [`${ctx.name(sight, "keys", k)} (${k})`, weights[i]])));
    });
  };
  return {
    element,
    update: () => { picture.update(); return ctx.state.of === "difference" ? undefined : beside(); },
    resize: picture.resize,
    measure: picture.measure,
  };
};
