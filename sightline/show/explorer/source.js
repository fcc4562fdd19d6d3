// Where answers come from: asked once, kept, and given again. A saved page answers from what it holds.

import { largestOf } from "./parts.js";

const KEPT = 400;

// The same source with a memory: equal questions are asked once, the oldest answers are forgotten.
export const remembering = (source) => {
  const answers = new Map();
  return (request) => {
    const name = JSON.stringify(request);
    if (answers.has(name)) {
      const known = answers.get(name);
      answers.delete(name);
      answers.set(name, known);
      return known;
    }
    const asked = Promise.resolve().then(() => source.ask(request));
    asked.catch(() => answers.delete(name));
    answers.set(name, asked);
    if (answers.size > KEPT) answers.delete(answers.keys().next().value);
    return asked;
  };
};

const inflate = async (text) => {
  const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
};

// What a page holds of one layer: for each head a map of all queries and keys, as steps of two bytes.
const layerOf = async ({ packed, shape, steps }) => {
  const bytes = await inflate(packed);
  const n = bytes.length / 2;
  const [heads, rows, columns] = shape;
  const one = rows * columns;
  const cells = Float32Array.from({ length: n }, (_, i) => (bytes[i] + 256 * bytes[n + i]) * steps[Math.floor(i / one)]);
  return { heads, rows, columns, of: (h) => cells.subarray(h * one, (h + 1) * one) };
};

// The mean over its heads.
const meanOf = (own) => {
  if (!own.mean) {
    own.mean = new Float32Array(own.rows * own.columns);
    for (let k = 0; k < own.heads; k++) own.of(k).forEach((w, j) => { own.mean[j] += w / own.heads; });
  }
  return own.mean;
};

// Where a cell begins, and the cell that a place falls into: as Python cuts them.
const edge = (i, cells, n) => Math.floor((i * n) / cells);
const cellAt = (place, cells, n) => Math.ceil(((place + 1) * cells) / n) - 1;

// Means over the cells of a window of a stored map.
const pooled = (whole, { rows, columns }, [t, s], [a, b], [c, d], [h, w]) => {
  const cells = new Float32Array(h * w);
  for (let i = 0; i < h; i++) {
    const [q0, q1] = [a + edge(i, h, b - a), a + edge(i + 1, h, b - a)];
    for (let j = 0; j < w; j++) {
      const [k0, k1] = [c + edge(j, w, d - c), c + edge(j + 1, w, d - c)];
      let sum = 0;
      for (let q = q0; q < q1; q++) {
        const line = cellAt(q, rows, t) * columns;
        for (let k = k0; k < k1; k++) sum += whole[line + cellAt(k, columns, s)];
      }
      cells[i * w + j] = sum / ((q1 - q0) * (k1 - k0));
    }
  }
  return cells;
};

// A window in tokens, widened to whole stored cells, and the same in cells.
const widened = ([first, last], cells, n) => {
  const own = [cellAt(first, cells, n), cellAt(last - 1, cells, n) + 1];
  return [own.map((i) => edge(i, cells, n)), own];
};

// A source that answers from a page. stored: for each of those compared, {layers, entropy, received, heads}.
export const storedSource = ({ meta, stored }) => {
  const sights = (of) => (of === 1 ? meta.compare.sights : meta.sights); // of two that are compared
  const layers = stored.map((both) => both.layers.map(() => null));
  const layer = (of, i) => (layers[of][i] ??= layerOf(stored[of].layers[i]));
  const lines = {};
  const line = (of, name, i) => (lines[`${of} ${name} ${i}`] ??= layerOf(stored[of][name][i]));
  const head = async (of, i, h) => {
    const own = await layer(of, i);
    return [own, h === "mean" ? meanOf(own) : own.of(h)];
  };
  const cellsOf = async (of, i, h, queries, keys, size, all) => {
    if (of === "difference") {
      const [before, after] = await Promise.all([0, 1].map((o) => cellsOf(o, i, h, queries, keys, size, all)));
      return after.map((w, j) => w - before[j]);
    }
    const [own, whole] = await head(of, i, h);
    return pooled(whole, own, all ?? [sights(of)[i].t, sights(of)[i].s], queries, keys, size);
  };
  // Whether a layer looks from the same words; it may have more, as an end token.
  const hasQueriesOf = (other, base) => {
    if (other.queries === base.queries || other.queries === null) return other.t === base.t;
    const [own, wanted] = [other, base].map(({ queries }) => (queries === null ? null : meta.tokens[queries].words));
    return Boolean(own && wanted) && wanted.slice(0, base.t).every((word, i) => own[i] === word);
  };
  const overviewOf = async (of, i, side) => {
    const own = await layer(of, i);
    const all = [own.rows, own.columns];
    const [h, w] = all.map((n) => Math.min(n, side));
    const thumbnails = new Uint8Array(own.heads * h * w);
    const largest = [];
    for (let k = 0; k < own.heads; k++) {
      const cells = pooled(own.of(k), own, all, [0, own.rows], [0, own.columns], [h, w]);
      largest.push(largestOf(cells));
      thumbnails.set(cells.map((x) => Math.round((255 * x) / (largest[k] || 1))), k * h * w);
    }
    return { sight: i, thumbnails: { shape: [own.heads, h, w], u8: thumbnails }, largest, exact: true, heads: stored[of].heads[i] };
  };
  const pack = (cells, shape) => ({ shape, f32: cells });

  const questions = {
    map: async ({ of = 0, sight, head: h = "mean", queries, keys, size = [64, 64] }) => {
      const { t, s } = sights(of)[sight];
      const [, rows, columns] = stored[of === 1 ? 1 : 0].layers[sight].shape;
      const [q, qs] = widened(queries ?? [0, t], rows, t);
      const [k, ks] = widened(keys ?? [0, s], columns, s);
      const shape = [Math.min(size[0], qs[1] - qs[0]), Math.min(size[1], ks[1] - ks[0])];
      const cells = await cellsOf(of, sight, h, qs, ks, shape, [rows, columns]);
      return { map: pack(cells, shape), queries: q, keys: k, largest: largestOf(cells), quick: false };
    },
    row: async ({ of = 0, sight, head: h = "mean", query, keys, size }) => {
      const k = keys ?? [0, sights(of)[sight].s];
      const n = Math.min(size ?? Infinity, k[1] - k[0]);
      const cells = await cellsOf(of, sight, h, [query, query + 1], k, [1, n]);
      return { row: pack(cells, [n]), query, keys: k, largest: largestOf(cells) };
    },
    column: async ({ of = 0, sight, head: h = "mean", key, queries, size }) => {
      const q = queries ?? [0, sights(of)[sight].t];
      const n = Math.min(size ?? Infinity, q[1] - q[0]);
      const cells = await cellsOf(of, sight, h, q, [key, key + 1], [n, 1]);
      return { column: pack(cells, [n]), key, queries: q, largest: largestOf(cells) };
    },
    word: async ({ of = 0, sight, query, key, queries, keys, size }) => {
      const base = sights(of)[sight];
      const reads = key === undefined;
      const span = (reads ? keys : queries) ?? [0, reads ? base.s : base.t];
      const n = Math.min(size ?? Infinity, span[1] - span[0]);
      const heads = [];
      sights(of).forEach((other, i) => {
        const same = ["s", "keys", "key_patches", "cross"].every((name) => other[name] === base[name]);
        if (same && hasQueriesOf(other, base)) for (let h = 0; h < other.heads; h++) heads.push([i, h]);
      });
      const rows = new Float32Array(heads.length * n);
      const lines = await Promise.all(heads.map(([i, h]) => (reads
        ? cellsOf(of, i, h, [query, query + 1], span, [1, n])
        : cellsOf(of, i, h, span, [key, key + 1], [n, 1]))));
      lines.forEach((line, i) => rows.set(line, i * n));
      return { heads, rows: pack(rows, [heads.length, n]), [reads ? "keys" : "queries"]: span, largest: largestOf(rows) };
    },
    strips: async ({ of = 0, sight, head: h = "mean", queries, keys, size }) => {
      const { t, s } = sights(of)[sight];
      const [q, k] = [queries ?? [0, t], keys ?? [0, s]];
      const found = { queries: q, keys: k };
      const both = of === "difference" ? 1 : of;
      for (const [name, n, span, all] of [["entropy", size[0], q, t], ["received", size[1], k, s]]) {
        if (!stored[both][name][sight]) continue;
        const own = await line(both, name, sight);
        const { columns } = own;
        const cellsOfHead = h === "mean" ? meanOf(own) : own.of(h);
        const cells = Math.min(n, span[1] - span[0]);
        found[name] = pack(pooled(cellsOfHead, { rows: 1, columns }, [1, all], [0, 1], span, [1, cells]), [cells]);
        found[`${name}_largest`] = largestOf(cellsOfHead);
      }
      return found;
    },
    overview: async ({ of = 0, sight, size = 48 }) => {
      const chosen = sight === undefined ? [...sights(of).keys()] : [sight];
      return { sights: await Promise.all(chosen.map((i) => overviewOf(of, i, size))) };
    },
    tokens: async ({ span: [first, last] }) => ({ words: Array.from({ length: last - first }, (_, i) => String(first + i)), span: [first, last] }),
    find: async ({ text = 0, letters }) => {
      const wanted = letters.toLowerCase();
      const at = [];
      (meta.tokens[text].words ?? []).forEach((word, i) => { if (word.toLowerCase().includes(wanted)) at.push(i); });
      return { at: at.slice(0, 200), n: at.length };
    },
    top: async (request) => {
      const reads = request.key === undefined;
      const answer = await questions[reads ? "row" : "column"](request);
      const cells = answer[reads ? "row" : "column"].f32;
      const order = [...cells.keys()].sort((i, j) => cells[j] - cells[i]).slice(0, request.n ?? 8).filter((i) => cells[i] > 0);
      return { weights: pack(Float32Array.from(order, (i) => cells[i]), [order.length]),
        at: { shape: [order.length], i32: Int32Array.from(order) } };
    },
  };
  return {
    meta,
    ask: (request) => {
      const question = questions[request.ask];
      return question ? question(request) : Promise.reject(new Error(`this page can't answer ${request.ask}`));
    },
  };
};
