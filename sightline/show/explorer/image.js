// Image: the picture, lit where the word under the cursor looked; a patch that is touched shows who looked there.

import { arrayOf, check, choice, largestOf, make, newest, strongest, tableOf, weightText } from "./parts.js";
import { cornersOf, pictureBox } from "./picture.js";
import { textBlock } from "./text.js";

const MANY = 48; // small pictures

export const hasPatches = (sight) => sight.key_patches !== null;

export const imageView = (ctx) => {
  const element = make("section", "view view-image");
  const [columns, main, side] = [make("div", "columns"), make("div", "main"), make("div", "side")];
  const image = ctx.image();
  const n = image.rows * image.columns;
  let [kind, smooth, pointed, patch, text] = ["light", true, null, null, null];
  const box = pictureBox(image, { label: `The picture: ${ctx.meta.title}`, touch: (...all) => touched(...all) });
  const bar = make("div", "bar");
  bar.append(choice("Overlay", [["light", "Light"], ["heat", "Heat"]], kind, (value) => { kind = value; draw(); }),
    check("smooth", smooth, (value) => { smooth = value; draw(); }));
  const note = make("p", "readout number");
  note.setAttribute("aria-live", "polite");
  const wordsTitle = make("h2", "", "Its words");
  const words = make("div");
  const lists = make("div", "who");
  main.append(box.element);
  if (image.note) main.append(make("p", "soft note", image.note));
  side.append(wordsTitle, words, note, lists, bar);
  columns.append(main, side);
  const [many, manyTitle, strip] = [make("div", "many"), make("div", "bar"), make("div", "strip")];
  let rows = "words";
  const which = choice("Small pictures", [["words", "Every word"], ["heads", "Every head"]], rows, (value) => { rows = value; askStrip(); });
  manyTitle.append(which);
  many.append(manyTitle, strip);
  let shown = { weights: [], at: null };
  const table = tableOf("The weights as a table", () => [["patch (row, column)", "weight"],
    ...strongest(shown.weights, 60).map(([i, w]) => [`${Math.floor(i / image.columns)}, ${i % image.columns}`, weightText(w)])]);
  element.append(columns, many, table);
  const [asked, askedWho, askedStrip] = [newest(), newest(), newest()];
  const sight = () => ctx.sight();
  const areWords = () => sight().query_patches === null;

  let name = "";
  const build = async () => {
    const own = JSON.stringify([sight().queries, sight().t, areWords()]);
    if (own === name) return;
    name = own;
    words.replaceChildren();
    text = null;
    wordsTitle.textContent = areWords() ? (sight().t > 1 ? "Its words" : "Its answer") : "Its patches";
    const firsts = areWords() ? sight().t : sight().query_patches;
    if (firsts) {
      text = textBlock({ label: "Words: arrow keys step through them", pick: (i) => ctx.set({ query: ctx.state.query === i ? null : i }),
        point: (i) => { pointed = i; draw(); } });
      text.fill(await ctx.words(sight(), "queries", 0, firsts), 0);
      words.append(text.element);
    }
    if (!areWords()) words.append(make("p", "soft note", "Point at a patch to see what it reads; a click keeps it."));
  };

  const draw = async () => {
    if (!hasPatches(sight())) return;
    const at = pointed ?? ctx.state.query;
    text?.select(null, "pointed");
    text?.select(ctx.state.query);
    if (pointed !== null && pointed !== ctx.state.query) text?.select(pointed, "pointed");
    if (at === null) {
      asked(Promise.resolve(null), () => { box.clear(); shown = { weights: [], at: null }; table.refresh(); });
      if (ctx.root.classList.contains("compact")) { note.textContent = "\u00a0"; return; }
      note.textContent = sight().t > 1 || !areWords() ? "Point at a word, or step through them with the arrow keys." : "Point at the answer to see where it looked.";
      return;
    }
    const first = sight().key_patches;
    await asked(ctx.ask({ ask: "row", ...ctx.which(), query: at, keys: [first, first + n] }), (answer) => {
      const weights = arrayOf(answer.row);
      const largest = largestOf(weights);
      const top = box.draw(weights, largest, { kind, smooth, sides: image.boxes[at] ?? null });
      shown = { weights, at };
      const sum = weights.reduce((a, b) => a + b, 0);
      note.textContent = `${ctx.name(sight(), "queries", at)}: largest weight ${weightText(weights[top])} at row ${Math.floor(top / image.columns)}, `
        + `column ${top % image.columns}${sum < 0.995 ? `; ${weightText(sum)} of all its weight is on the picture` : ""}`;
      element.dataset.weight = weights[top];
      table.refresh();
    });
  };
  // Where the summary of an answer comes from: what the class token reads in every head; null where there is none.
  const classHeads = () => {
    const i = ctx.sights().findIndex((one) => !one.summary && hasPatches(one) && one.query_patches > 0);
    const first = ctx.sights()[i]?.key_patches;
    return i < 0 ? null : { sight: i, query: 0, keys: [first, first + n] };
  };
  // Small pictures: one a word, or one a head for the word that is picked.
  let stripName = "";
  const askStrip = () => {
    const isCompact = ctx.root.classList.contains("compact");
    const own = sight();
    const first = own.key_patches;
    const span = [first, first + n];
    const byWords = areWords() && own.t > 1 && own.t <= MANY;
    const at = ctx.state.query ?? (own.t === 1 ? 0 : null);
    which.hidden = !byWords;
    const kind = byWords && rows === "words" ? "words" : "heads";
    const inHeads = own.summary && own.t === 1 ? classHeads() : at === null ? null : { sight: ctx.state.sight, query: at, keys: span };
    const request = kind === "words" ? { ask: "map", ...ctx.which(), queries: [0, own.t], keys: span, size: [own.t, n] }
      : inHeads && { ask: "word", of: ctx.state.of, ...inHeads };
    const name = JSON.stringify([request, isCompact]);
    many.hidden = isCompact || !(byWords || ctx.sights().length > 1 || own.heads > 1);
    if (many.hidden || name === stripName) return markStrip();
    stripName = name;
    if (!request) return strip.replaceChildren(...(own.t > 1 ? [make("p", "soft note", "Pick a word to see it in every head.")] : []));
    return askedStrip(ctx.ask(request), (answer) => {
      const cells = arrayOf(kind === "words" ? answer.map : answer.rows);
      const count = cells.shape[0];
      strip.replaceChildren(...Array.from({ length: Math.min(count, MANY) }, (_, i) => {
        const weights = cells.subarray(i * n, (i + 1) * n);
        const [layer, head] = kind === "words" ? [null, null] : answer.heads[i];
        const label = kind === "words" ? ctx.name(own, "queries", i) : `${ctx.short(layer)} · head ${head}`;
        const one = make("button", "small");
        one.type = "button";
        const small = pictureBox(image, { label: "" });
        small.draw(weights, largestOf(weights), { kind: "light" });
        one.append(small.element, make("bdi", "", label));
        one.title = label;
        if (kind === "words") { one.dataset.query = i; one.setAttribute("aria-pressed", "false"); }
        one.addEventListener("click", () => ctx.set(kind === "words" ? { query: ctx.state.query === i ? null : i } : { sight: layer, head, query: request.query }));
        return one;
      }));
      markStrip();
    });
  };
  const markStrip = () => {
    for (const one of strip.querySelectorAll("[data-query]")) one.setAttribute("aria-pressed", String(Number(one.dataset.query) === ctx.state.query));
  };

  // Who looked at a patch, or at a region; where queries are patches too, what the patch reads.
  const touched = (i, how, corner) => {
    if (!areWords()) {
      pointed = i === null ? null : sight().query_patches + i;
      if (how === "pick" && i !== null) ctx.set({ query: sight().query_patches + i });
      else draw();
      return;
    }
    patch = i;
    if (i === null) { text?.shade(null); lists.replaceChildren(); return; }
    const [[x0, y0], [x1, y1]] = cornersOf(i, corner, image.columns);
    const lines = Array.from({ length: y1 - y0 + 1 }, (_, y) => sight().key_patches + (y0 + y) * image.columns);
    const size = [sight().t, 1]; // of each word, the mean over a line of the region
    askedWho(Promise.all(lines.map((first) => ctx.ask({ ask: "map", ...ctx.which(), queries: [0, sight().t],
      keys: [first + x0, first + x1 + 1], size }))), (answers) => {
      if (patch === null) return;
      const means = answers.map((answer) => arrayOf(answer.map));
      const weights = means[0].map((_, q) => (x1 - x0 + 1) * means.reduce((sum, mean) => sum + mean[q], 0));
      text?.shade(weights, largestOf(weights), ctx.colours());
      const best = strongest(weights, 3).map(([q, w]) => `${ctx.name(sight(), "queries", q)} ${weightText(w)}`);
      lists.replaceChildren(make("p", "note number", `Here looked most: ${best.join(", ")}`));
    });
  };
  element.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (event.defaultPrevented || !step || event.target.closest("select, input")) return;
    event.preventDefault();
    const to = (ctx.state.query ?? (step > 0 ? -1 : sight().t)) + step;
    if (to >= 0 && to < sight().t) ctx.set({ query: to });
  });
  return {
    element,
    update: async () => {
      if (!hasPatches(sight())) { ctx.set({ sight: ctx.sights().findIndex(hasPatches), head: "mean" }); return; }
      await build();
      await draw();
      await askStrip();
    },
    resize: () => {},
  };
};
