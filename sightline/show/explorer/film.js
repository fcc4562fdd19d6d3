// Generation: the steps of a decoding like a film: the token, what it read, what else it might have been.

import { arrayOf, button, largestOf, linkLines, make, newest, strongest, tableOf, weightText } from "./parts.js";
import { hasPatches } from "./image.js";
import { pictureBox } from "./picture.js";
import { textBlock } from "./text.js";

const PACE = 900; // milliseconds a step

export const filmView = (ctx) => {
  const element = make("section", "view view-film");
  const { steps } = ctx.meta;
  const image = ctx.image();
  const [bar, columns, main, side] = [make("div", "bar"), make("div", "columns"), make("div", "main"), make("div", "side")];
  const slider = make("input");
  Object.assign(slider, { type: "range", min: 0, max: steps.length - 1, value: 0 });
  slider.setAttribute("aria-label", "Step of the decoding");
  const counter = make("span", "soft number");
  let [timer, name, text] = [0, "", null];
  const play = button("▶ Play", () => (timer ? stop() : start()));
  const step = () => ctx.state.step ?? 0;
  const go = (i) => ctx.set({ step: Math.max(0, Math.min(steps.length - 1, i)) });
  const stop = () => { clearInterval(timer); timer = 0; play.textContent = "▶ Play"; };
  const start = () => {
    if (step() >= steps.length - 1) go(0);
    play.textContent = "❚❚ Pause";
    timer = setInterval(() => { if (!element.isConnected || step() >= steps.length - 1) { stop(); return; } go(step() + 1); }, PACE);
  };
  bar.append(play, button("←", () => { stop(); go(step() - 1); }, "Step back"), button("→", () => { stop(); go(step() + 1); }, "Step on"), slider, counter);
  slider.addEventListener("input", () => { stop(); go(Number(slider.value)); });
  const written = make("p", "written");
  written.dir = "auto";
  written.setAttribute("aria-live", "polite");
  const reads = make("h2");
  const alternatives = make("ol", "links");
  const links = make("p", "readout number");
  const box = image ? pictureBox(image, { label: `The picture: ${ctx.meta.title}` }) : null;
  const read = make("div", "block");
  main.append(read);
  side.append(reads, alternatives, links);
  columns.append(main, side);
  const likely = (p) => (p === null ? "–" : weightText(p));
  const table = tableOf("The steps as a table", () => [["step", "token", "probability", "other tokens"],
    ...steps.map(({ token, probability, alternatives: others }, i) => [i + 1, ctx.shown(token), likely(probability),
      others.filter((one) => one.token !== token).map((one) => `${ctx.shown(one.token)} ${likely(one.probability)}`).join(", ")])]);
  element.append(bar, written, columns, table);
  const asked = newest();

  const build = async () => {
    const sight = ctx.sight();
    const own = JSON.stringify([sight.keys, sight.s, hasPatches(sight)]);
    if (own === name) return;
    name = own;
    if (hasPatches(sight) && box) { text = null; read.replaceChildren(make("h2", "", "It looks at"), box.element); return; }
    text = textBlock({ label: "What it reads", pick: () => {} });
    text.fill(await ctx.words(sight, "keys", 0, Math.min(sight.s, 2000)), 0);
    read.replaceChildren(make("h2", "", "It reads"), text.element);
  };
  return {
    element,
    update: async () => {
      const i = Math.min(step(), steps.length - 1);
      const { token, probability, alternatives: others, query } = steps[i];
      slider.value = i;
      slider.setAttribute("aria-valuetext", `step ${i + 1} of ${steps.length}: ${ctx.shown(token)}`);
      counter.textContent = `${i + 1} of ${steps.length}`;
      written.replaceChildren(...steps.slice(0, i + 1).flatMap((one, j) => [make("bdi", j === i ? "now" : "", ctx.shown(one.token)), " "]));
      reads.replaceChildren(make("bdi", "accent", ctx.shown(token)), probability === null ? "" : ` with probability ${weightText(probability)}`);
      alternatives.replaceChildren(...linkLines(others.map((one) => [ctx.shown(one.token), one.probability])));
      others.forEach((one, j) => alternatives.children[j].classList.toggle("chosen", one.token === token));
      await build();
      const sight = ctx.sight();
      if (query >= sight.t) { links.textContent = "This layer does not look from the words that are written."; return; }
      const first = hasPatches(sight) ? sight.key_patches : 0;
      const last = hasPatches(sight) && image ? first + image.rows * image.columns : Math.min(sight.s, 2000);
      await asked(ctx.ask({ ask: "row", ...ctx.which(), query, keys: [first, last] }), (answer) => {
        const weights = arrayOf(answer.row);
        const largest = largestOf(weights);
        if (text) text.shade(weights, largest, ctx.colours());
        else box.draw(weights, largest, { sides: image.boxes[query] ?? null });
        const best = strongest(weights, 3).map(([j, w]) => `${ctx.name(sight, "keys", first + j)} ${weightText(w)}`);
        links.textContent = `reads ${best.join(", ")}`;
      });
    },
    resize: () => {},
  };
};
