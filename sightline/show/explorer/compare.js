// Compare: two of a kind side by side, and their difference. Where both have as many queries and keys, windows and
// cursor are linked; else the cursor is, by the tokens that both have.

import { make } from "./parts.js";
import { matrixPicture } from "./matrix.js";
import { sharedPlaces } from "./shared.js";

const LONGEST = 4096; // tokens of a text that are looked up in the other

export const compareView = (ctx) => {
  const element = make("section", "view view-compare");
  const [note, three] = [make("p", "soft note"), make("div", "three")];
  const [before, after] = ctx.meta.compare.names;
  const pictures = [];
  let shared = null; // of each of the two: {queries, keys}, places in the other

  const link = (from, view, at) => {
    const isSame = ctx.whyNoDifference() === null;
    for (const { of, picture } of pictures) {
      if (of === from) continue;
      if (isSame) picture.follow(view, at);
      else if (of !== "difference" && at !== undefined) picture.follow(undefined, at && inOther(from, at));
    }
  };
  const inOther = (from, { q, k }) => {
    const places = shared?.[from];
    const at = places ? { q: places.queries[q] ?? -1, k: places.keys[k] ?? -1 } : null;
    return at && at.q >= 0 && at.k >= 0 ? at : null;
  };
  for (const [of, title] of [[0, before], [1, after], ["difference", "the difference"]]) {
    const around = make("div", "one");
    const picture = matrixPicture(ctx, { of, title, height: 460, linked: (view, at) => link(of, view, at) });
    around.append(make("h2", "", title), picture.legend, picture.element, picture.table);
    pictures.push({ of, around, picture });
    three.append(around);
  }
  element.append(note, three);

  // Tokens without names are the same where their numbers are.
  const align = async () => {
    shared = null;
    const both = [ctx.sight(0), ctx.sight(1)];
    if (!both[1]) return;
    const texts = async (side) => Promise.all(both.map((sight) => ctx.words(sight, side, 0, Math.min(sight[side === "queries" ? "t" : "s"], LONGEST))));
    const [queries, keys] = await Promise.all([texts("queries"), texts("keys")]);
    shared = [[0, 1], [1, 0]].map(([a, b]) => ({ queries: sharedPlaces(queries[a], queries[b]), keys: sharedPlaces(keys[a], keys[b]) }));
  };
  let aligned = "";
  return {
    element,
    update: async () => {
      const why = ctx.whyNoDifference();
      note.textContent = why === null ? `The same window of both. Orange: ${after} looks there more; blue: less.`
        : `${why} A cell of two words that both have is marked in both.`;
      for (const { of, around, picture } of pictures) {
        around.hidden = of === "difference" ? why !== null : !ctx.sight(of);
        if (!around.hidden) picture.update();
      }
      const own = JSON.stringify([ctx.state.sight, why]);
      if (why === null || own === aligned) return;
      aligned = own;
      await align();
    },
    resize: () => pictures.forEach(({ around, picture }) => { if (!around.hidden) picture.resize(); }),
  };
};
