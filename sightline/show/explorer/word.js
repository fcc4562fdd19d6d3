// Start from a word: what it read, or by whom it was read, in the text, as lines, as a list, in every head.

import { EVEN, ROOT, arrayOf, bitmap, button, choice, clamp, largestOf, legend, linkLines, make, makeSvg, newest, sized, strongest,
  tableOf, weightText } from "./parts.js";
import { pictureBox } from "./picture.js";
import { textBlock } from "./text.js";

const LINES = 5;
const LISTED = 10;
const WINDOW = 1200; // words of a text that are shown at once
const ROW = 7; // pixels of a head in the picture of all heads
const LABEL = 24; // pixels for the number of a layer
const GAP = 3; // pixels between layers

export const wordView = (ctx) => {
  const element = make("section", "view view-word");
  const [bar, columns, main, side] = [make("div", "bar"), make("div", "columns"), make("div", "main"), make("div", "side")];
  const search = make("input");
  search.type = "search";
  search.placeholder = "Find a word";
  search.setAttribute("aria-label", "Find a word in the text");
  const hits = make("span", "soft number");
  const way = choice("Direction", [["reads", "What it reads"], ["read", "By whom it is read"]], "reads",
    (side) => ctx.set({ side }));
  const pages = make("span", "pages");
  bar.append(way, search, hits, pages);
  const scale = legend();
  const heading = make("h2");
  heading.setAttribute("aria-live", "polite");
  const list = make("ol", "links");
  side.append(heading, list, scale);
  const heads = make("div", "heads");
  const headsTitle = make("h2", "", "In every layer and head");
  const [headsCanvas, headsNote] = [make("canvas"), make("p", "soft note number")];
  headsCanvas.setAttribute("role", "img");
  headsCanvas.tabIndex = -1;
  const headsTable = tableOf("What it reads most in every head, as a table", () => [["layer", "head", "word", "weight"],
    ...(every?.heads ?? []).map(([i, h], k) => {
      const [[j, w] = [0, 0]] = strongest(every.rows.subarray(k * every.n, (k + 1) * every.n), 1);
      return [ctx.sights()[i].name, h, ctx.name(ctx.sight(), sides().to, every.at(j)), weightText(w)];
    })]);
  heads.append(headsTitle, make("p", "soft note", "One line a head, one column a word. Click a line to see that head alone."),
    headsCanvas, headsNote, headsTable);
  const left = make("div", "left");
  left.append(main, heads);
  columns.append(left, side);
  const table = tableOf("The weights as a table", () => [["word", "place", "weight"],
    ...strongest(shown.weights, 200).map(([i, w]) => [shown.name(shown.first + i), shown.first + i, weightText(w)])]);
  element.append(bar, columns, table);

  const [asked, askedAll, askedHeads] = [newest(), newest(), newest()];
  let [blocks, layout, lines, point, relink] = [{}, "", null, null, null];
  let shown = { weights: [], first: 0, name: String };
  let found = [];

  const sides = () => {
    const sight = ctx.sight();
    const reads = ctx.state.side !== "read";
    return { sight, reads, from: reads ? "queries" : "keys", to: reads ? "keys" : "queries" };
  };
  const start = (n, at) => (n <= WINDOW ? 0 : clamp(Math.floor((at ?? n - 1) / WINDOW - 0.25) * WINDOW, 0, Math.floor((n - 1) / WINDOW) * WINDOW));

  // One block where queries and keys are the same text, else one for each; patches are the picture.
  const build = async () => {
    const { sight } = sides();
    const at = ctx.state.query;
    const name = JSON.stringify([sight.queries, sight.keys, sight.t, sight.s, sight.query_patches, sight.key_patches,
      start(sight.t, at)]);
    if (name === layout) return;
    layout = name;
    blocks = {};
    main.replaceChildren();
    const one = sight.queries !== null && sight.queries === sight.keys && sight.t === sight.s;
    for (const which of one ? ["queries"] : ["queries", "keys"]) {
      const patches = sight[which === "queries" ? "query_patches" : "key_patches"];
      const n = which === "queries" ? sight.t : sight.s;
      const label = one ? "The text" : which === "queries" ? "The words that look" : "What they look at";
      const around = make("div", "block");
      if (!one) around.append(make("h2", "", label));
      if (patches !== null && ctx.image()) {
        const box = pictureBox(ctx.image(), { label: "What the model looked at",
          touch: (i, kind) => { if (kind === "pick" && i !== null) choose(which, patches + i); } });
        around.append(box.element);
        blocks[which] = { box, patches };
      } else {
        const text = textBlock({ label, pick: (i) => choose(which, i), point: (i) => { point = i; preview(which); } });
        const first = start(n, which === "queries" ? at : null);
        const last = Math.min(n, first + WINDOW);
        text.fill(await ctx.words(sight, which, first, last), first);
        text.list.addEventListener("scroll", () => relink?.());
        around.append(text.element);
        blocks[which] = { text };
      }
      if (one) blocks.keys = blocks.queries;
      main.append(around);
    }
    lines = makeSvg("svg", { class: "lines", "aria-hidden": "true" });
    main.prepend(lines);
    turnPages();
  };
  const turnPages = () => {
    const { sight } = sides();
    const block = blocks.queries?.text;
    pages.replaceChildren();
    if (!block || sight.t <= WINDOW) return;
    const to = (step) => ctx.set({ query: clamp(block.first + step * WINDOW, 0, sight.t - 1) });
    pages.append(button("←", () => to(-1), "Earlier words"),
      make("span", "soft number", `${block.first}–${block.first + block.count - 1} of ${sight.t}`),
      button("→", () => to(1.5), "Later words"));
  };

  const choose = (which, i) => {
    const { sight } = sides();
    const same = sight.queries !== null && sight.queries === sight.keys;
    const side = same ? ctx.state.side : which === "queries" ? "reads" : "read";
    ctx.set({ query: i, side });
  };
  const preview = (which) => {
    const { from } = sides();
    if (blocks.queries !== blocks.keys && which !== from) return;
    draw(point ?? ctx.state.query);
  };

  const draw = async (at) => {
    const { sight, reads, from, to } = sides();
    if (at === null || at >= (reads ? sight.t : sight.s)) return clear();
    const target = blocks[to];
    const patches = target?.box ? target.patches : null;
    const first = patches ?? target?.text?.first ?? 0;
    const n = patches === null ? target?.text?.count ?? 0 : ctx.image().rows * ctx.image().columns;
    if (!n) return undefined; // its words are still on their way
    const signed = ctx.state.of === "difference";
    const request = { ask: reads ? "row" : "column", ...ctx.which(), [reads ? "query" : "key"]: at, [to]: [first, first + n] };
    return asked(ctx.ask(request), (answer) => {
      const weights = arrayOf(answer[reads ? "row" : "column"]);
      const largest = largestOf(weights);
      const colours = ctx.colours();
      shown = { weights, first, name: (i) => ctx.name(sight, to, i) };
      if (blocks.queries !== blocks.keys) blocks[from]?.text?.shade(null);
      if (target.box) target.box.draw(weights, largest, {});
      else target.text.shade(weights, largest, colours, signed);
      for (const block of [blocks.queries, blocks.keys]) {
        block?.text?.select(null, "pointed");
        block?.text?.select(null);
      }
      blocks[from]?.text?.select(ctx.state.query);
      if (at !== ctx.state.query) blocks[from]?.text?.select(at, "pointed");
      if (blocks[from]?.box) blocks[from].box.pick(at - blocks[from].patches);
      const best = strongest(weights, LISTED);
      const isWhole = n === (reads ? sight.s : sight.t) || patches !== null;
      const isBlind = reads && n === sight.s && !signed && weights.every((x) => x === 0); // as padding is
      heading.replaceChildren(make("bdi", "accent", ctx.name(sight, from, at)), isBlind ? " reads nothing" : reads ? " reads" : " is read by");
      if (isWhole) list.replaceChildren(...linkLines(best.map(([i, w]) => [shown.name(first + i), w])));
      else listAll(sight, at, reads, to);
      scale.show(largest, colours, signed, target.box ? ROOT : EVEN);
      relink = () => link(at, best.slice(0, LINES), from, to, first, largest);
      relink();
      table.refresh();
    });
  };
  // Of a long text, of which a part is shown, the strongest links of all.
  const listAll = (sight, at, reads, to) => {
    const request = { ask: "top", ...ctx.which(), [reads ? "query" : "key"]: at, n: LISTED };
    askedAll(ctx.ask(request).then((answer) => ctx.named(sight, to, answer)), (answer) => {
      const [weights, places] = [arrayOf(answer.weights), arrayOf(answer.at)];
      list.replaceChildren(...linkLines([...places].map((i, k) => [`${ctx.name(sight, to, i)} (${i})`, weights[k]])));
    });
  };
  const clear = () => {
    for (const block of new Set([blocks.queries, blocks.keys])) { block?.text?.shade(null); block?.text?.select(null); block?.box?.clear(); }
    heading.textContent = "Point at a word";
    list.replaceChildren();
    scale.hidden = true;
    lines?.replaceChildren();
    shown = { weights: [], first: 0, name: String };
  };

  // Lines from the word to its strongest links, over the text.
  const link = (at, best, from, to, first, largest) => {
    lines.replaceChildren();
    const source = blocks[from]?.text?.span(at);
    if (!source || !blocks[to]?.text) return;
    const sides = main.getBoundingClientRect();
    lines.setAttribute("width", sides.width);
    lines.setAttribute("height", sides.height);
    const middle = (box) => [box.left - sides.left + box.width / 2, box.top - sides.top];
    const [x0, y0] = middle(source.getBoundingClientRect());
    const isIn = (span, block) => {
      const [own, around] = [span.getBoundingClientRect(), block.text.list.getBoundingClientRect()];
      return own.top >= around.top && own.bottom <= around.bottom;
    };
    if (!isIn(source, blocks[from])) return;
    for (const [i, w] of best) {
      const target = blocks[to].text.span(first + i);
      if (!target || target === source || !isIn(target, blocks[to])) continue;
      const [x1, y1] = middle(target.getBoundingClientRect());
      const lift = 10 + 0.12 * Math.abs(x1 - x0);
      const d = `M ${x0} ${y0} C ${x0} ${y0 - lift}, ${x1} ${y1 - lift}, ${x1} ${y1}`;
      lines.append(makeSvg("path", { d, "stroke-width": 1 + 2.5 * Math.abs(w) / largest }));
    }
  };

  // All heads: a line each, the word's weights across.
  let every = null;
  const drawHeads = () => {
    if (!every) return;
    const { heads: ids, rows, n, largest } = every;
    const width = heads.clientWidth || 300;
    every.left = ids.every(([i]) => ctx.short(i).length <= 3) ? LABEL : 0;
    const gaps = ids.map(([i], k) => (k > 0 && ids[k - 1][0] !== i ? 1 : 0));
    const height = ids.length * ROW + gaps.reduce((a, b) => a + b, 0) * GAP;
    headsCanvas.style.height = `${height}px`;
    const context = sized(headsCanvas, width, height);
    const signed = ctx.state.of === "difference";
    const image = bitmap(rows, ids.length, n, largest, ctx.colours(), signed);
    context.imageSmoothingEnabled = false;
    let y = 0;
    every.tops = ids.map((_, k) => {
      y += gaps[k] * GAP;
      context.drawImage(image, 0, k, n, 1, every.left, y, width - every.left, ROW);
      y += ROW;
      return y - ROW;
    });
    context.font = "11px ui-sans-serif, system-ui, sans-serif";
    context.textBaseline = "top";
    context.fillStyle = ctx.paint("soft");
    ids.forEach(([i], k) => { if (every.left && (k === 0 || gaps[k])) context.fillText(ctx.short(i), 0, every.tops[k]); });
    const accent = ctx.paint("accent");
    ids.forEach(([i, h], k) => {
      if (i !== ctx.state.sight || (ctx.state.head !== "mean" && h !== ctx.state.head)) return;
      context.fillStyle = accent;
      context.fillRect(Math.max(0, every.left - 4), every.tops[k], 3, ROW);
    });
  };
  const askHeads = () => {
    const { sight, reads, to } = sides();
    const at = ctx.state.query;
    const length = reads ? sight.s : sight.t;
    heads.hidden = at === null || at >= (reads ? sight.t : sight.s);
    if (heads.hidden) return;
    const request = { ask: "word", of: ctx.state.of, sight: ctx.state.sight, [reads ? "query" : "key"]: at, size: Math.min(length, 600) };
    askedHeads(ctx.ask(request), (answer) => {
      const rows = arrayOf(answer.rows);
      const [first, last] = answer[to];
      const n = rows.shape[1];
      every = { heads: answer.heads, rows, n, largest: largestOf(rows), at: (j) => first + Math.floor((j * (last - first)) / n) };
      headsCanvas.setAttribute("aria-label", `The weights of ${ctx.name(sight, reads ? "queries" : "keys", at)} in ${answer.heads.length} heads`);
      drawHeads();
      headsTable.refresh();
    });
  };
  const headAt = (event) => {
    if (!every?.tops) return null;
    const y = event.offsetY;
    const k = every.tops.findIndex((top) => y >= top && y < top + ROW);
    if (k < 0) return null;
    const share = (event.offsetX - every.left) / (headsCanvas.clientWidth - every.left);
    const j = clamp(Math.floor(share * every.n), 0, every.n - 1);
    return { k, j };
  };
  headsCanvas.addEventListener("pointermove", (event) => {
    const at = headAt(event);
    if (!at) return;
    const { sight, to } = sides();
    const [i, h] = every.heads[at.k];
    const key = every.at(at.j);
    headsNote.textContent = `${ctx.sights()[i].name}, head ${h}: ${ctx.name(sight, to, key)} (${key}) ${weightText(every.rows[at.k * every.n + at.j])}`;
  });
  headsCanvas.addEventListener("pointerleave", () => { headsNote.textContent = "\u00a0"; });
  headsNote.textContent = "\u00a0";
  headsCanvas.addEventListener("click", (event) => {
    const at = headAt(event);
    if (at) { const [sight, head] = every.heads[at.k]; ctx.set({ sight, head }); }
  });

  const find = async () => {
    const { sight } = sides();
    const letters = search.value;
    blocks.queries?.text?.mark([]);
    hits.textContent = "";
    found = [];
    if (!letters || sight.queries === null) return;
    const answer = await ctx.ask({ ask: "find", text: sight.queries, letters });
    if (letters !== search.value) return;
    found = answer.at;
    hits.textContent = answer.n ? `${answer.n} found` : "not found";
    blocks.queries?.text?.mark(found);
  };
  search.addEventListener("input", find);
  search.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || !found.length) return;
    event.preventDefault();
    const next = found.find((i) => i > (ctx.state.query ?? -1)) ?? found[0];
    ctx.set({ query: next });
    hits.textContent = `${found.indexOf(next) + 1} of ${found.length}`;
  });

  return {
    element,
    update: async () => {
      way.choose(ctx.state.side === "read" ? "read" : "reads");
      await build();
      turnPages();
      blocks.queries?.text?.mark(found);
      await draw(ctx.state.query);
      askHeads();
    },
    settle: () => relink?.(),
    resize: () => { drawHeads(); draw(ctx.state.query); },
  };
};
