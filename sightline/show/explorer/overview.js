// Overview: all layers and heads as thumbnails, tinted by a number, sorted, filtered, named; click to open.

import { arrayOf, bitmap, choice, clamp, css, inkOn, make, menu, tableOf, weightText } from "./parts.js";

const MEASURES = {
  evenness: ["evenness", "entropy as a share of an even head's: 0 sharp, 1 even"],
  entropy: ["entropy", "of a query's weights, in nats"],
  distance: ["distance", "how many tokens away it looks"],
  first: ["sink share", "the share of all weight on the first key"],
  peak: ["peak", "a query's largest weight"],
  importance: ["importance", "how much the loss depends on the head"],
};

export const overviewView = (ctx) => {
  const element = make("section", "view view-overview");
  const [bar, note, grid] = [make("div", "bar"), make("p", "soft note"), make("div", "grid")];
  let [measure, order, kind] = ["", "layers", ""];
  let layers = []; // what came of each
  const tiles = [];
  let of = null;

  const tint = menu("Tint by", [["", "nothing"]], "", (value) => { measure = value; paint(); });
  const sorted = choice("Order", [["layers", "By layer"], ["sorted", "By tint"]], "layers", (value) => { order = value; paint(); });
  const kinds = menu("Show", [["", "all heads"]], "", (value) => { kind = value; paint(); });
  bar.append(tint, sorted, kinds);
  const table = tableOf("The heads as a table", () => {
    const known = Object.keys(MEASURES).filter(has);
    return [["layer", "head", "called", ...known.map((name) => MEASURES[name][0])],
      ...tiles.map(({ sight, head, numbers }) => [ctx.sights()[sight].name, head, numbers?.kind || "–",
        ...known.map((name) => number(numbers?.[name]))])];
  });
  element.append(bar, note, grid, table);

  const has = (name) => tiles.some(({ numbers }) => typeof numbers?.[name] === "number");
  const number = (x) => (typeof x === "number" ? (Math.abs(x) >= 10 ? x.toFixed(1) : weightText(x)) : "–");

  const build = () => {
    tiles.length = 0;
    layers = ctx.sights().map(() => null);
    ctx.sights().forEach((sight, i) => {
      for (let h = 0; h < sight.heads; h++) {
        const [tile, canvas, label, kind] = [make("button", "tile"), make("canvas"), make("span", "number"), make("span", "kind")];
        tile.type = "button";
        canvas.setAttribute("aria-hidden", "true");
        tile.append(canvas, label, kind);
        tile.addEventListener("click", () => ctx.set({ sight: i, head: h, view: "matrix", queries: null, keys: null }));
        tiles.push({ sight: i, head: h, tile, canvas, label, kind, numbers: null });
      }
    });
  };

  grid.addEventListener("keydown", (event) => {
    const all = [...grid.querySelectorAll(".tile")];
    const at = all.indexOf(document.activeElement ?? grid.getRootNode().activeElement);
    if (at < 0) return;
    const line = Math.max(1, all.findIndex((one) => one.offsetTop > all[0].offsetTop));
    const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: line, ArrowUp: -line }[event.key];
    if (step && all[at + step]) { event.preventDefault(); all[at + step].focus(); }
  });

  const fill = (answer) => {
    for (const one of answer.sights) {
      layers[one.sight] = one;
      const cells = arrayOf(one.thumbnails);
      const [, rows, columns] = cells.shape;
      for (const tile of tiles.filter(({ sight }) => sight === one.sight)) {
        tile.numbers = one.heads[tile.head] ?? {};
        tile.cells = { part: cells.subarray(tile.head * rows * columns, (tile.head + 1) * rows * columns), rows, columns };
      }
    }
    const known = Object.keys(MEASURES).filter(has);
    if (!measure && known.length) measure = known[0];
    tint.fill([["", "nothing"], ...known.map((name) => [name, MEASURES[name][0]])], measure);
    const names = [...new Set(tiles.map(({ numbers }) => numbers?.kind).filter(Boolean))].sort();
    kinds.fill([["", "all heads"], ...names.map((name) => [name, `${name} heads`])], kind);
    paint();
  };

  const paint = () => {
    const colours = ctx.colours();
    const values = tiles.map(({ numbers }) => numbers?.[measure]).filter((x) => typeof x === "number");
    const [low, high] = [Math.min(...values), Math.max(...values)];
    const share = (x) => (high > low ? (x - low) / (high - low) : 0.5);
    for (const { sight, head, tile, canvas, label, kind: name, numbers, cells } of tiles) {
      if (cells) {
        const picture = bitmap(cells.part, cells.rows, cells.columns, 255, colours);
        [canvas.width, canvas.height] = [cells.columns, cells.rows];
        canvas.getContext("2d").drawImage(picture, 0, 0);
      }
      const x = numbers?.[measure];
      const colour = typeof x === "number" ? colours.of(0.08 + 0.72 * share(x)) : null;
      label.style.background = colour ? css(colour) : "";
      label.style.color = colour ? inkOn(colour) : "";
      label.textContent = typeof x === "number" ? `${head} · ${number(x)}` : String(head);
      name.textContent = numbers?.kind ?? "";
      const words = [ctx.sights()[sight].name, `head ${head}`, numbers?.kind, typeof x === "number" ? `${MEASURES[measure][0]} ${number(x)}` : ""];
      tile.setAttribute("aria-label", words.filter(Boolean).join(", "));
      tile.title = words.filter(Boolean).join(", ");
      tile.classList.toggle("current", sight === ctx.state.sight && (head === ctx.state.head || ctx.sights()[sight].heads === 1));
    }
    const about = measure ? `${MEASURES[measure][0]}: ${MEASURES[measure][1]}; from ${number(low)} to ${number(high)}. ` : "";
    const quick = layers.some((one) => one && !one.exact) ? "Thumbnails of this long text show some of its queries. " : "";
    note.textContent = values.length ? `Queries down, keys across. ${about}${quick}` : "Queries down, keys across.";
    arrange();
    table.refresh();
  };

  const arrange = () => {
    const wanted = tiles.filter(({ numbers }) => !kind || numbers?.kind === kind);
    if (order === "sorted" && measure) {
      const by = [...wanted].sort((a, b) => (a.numbers?.[measure] ?? Infinity) - (b.numbers?.[measure] ?? Infinity));
      const line = make("div", "tiles");
      line.append(...by.map(({ tile, sight }) => {
        tile.dataset.layer = ctx.short(sight);
        return tile;
      }));
      grid.replaceChildren(line);
      grid.classList.add("flat");
      return;
    }
    grid.classList.remove("flat");
    grid.classList.toggle("numbered", ctx.sights().every((_, i) => ctx.short(i).length <= 3));
    grid.replaceChildren(...ctx.sights().flatMap((sight, i) => {
      const own = wanted.filter((one) => one.sight === i);
      if (!own.length) return [];
      const [row, name, line] = [make("div", "layer"), make("div", "layer-name"), make("div", "tiles")];
      // A module's name may break after its dots.
      name.append(...ctx.short(i).split(/(?<=\.)/).flatMap((part) => [part, make("wbr")]));
      name.title = sight.name;
      for (const { tile } of own) delete tile.dataset.layer;
      line.append(...own.map(({ tile }) => tile));
      row.append(name, line);
      return [row];
    }));
  };

  return {
    element,
    update: async () => {
      if (of === ctx.state.of) { paint(); return; }
      of = ctx.state.of;
      build();
      arrange();
      const big = ctx.sights().some(({ heads, t, s }) => heads * t * s > 2 ** 24);
      const size = clamp(Math.round(64 * (globalThis.devicePixelRatio || 1)), 32, 96);
      if (!big) { fill(await ctx.ask({ ask: "overview", of: of === "difference" ? 1 : of, size })); return; }
      for (let i = 0; i < layers.length; i++) fill(await ctx.ask({ ask: "overview", of: of === "difference" ? 1 : of, sight: i, size }));
    },
    resize: () => {},
  };
};
