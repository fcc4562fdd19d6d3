// Compare: two of a kind side by side, linked, and their difference.

import { make } from "./parts.js";
import { matrixPicture } from "./matrix.js";

export const compareView = (ctx) => {
  const element = make("section", "view view-compare");
  const [note, three] = [make("p", "soft note"), make("div", "three")];
  const [before, after] = ctx.meta.compare.names;
  note.textContent = `The same window of both. Orange: ${after} looks there more; blue: less.`;
  const pictures = [];
  const kinds = [[0, before], [1, after], ["difference", "the difference"]];
  for (const [of, title] of kinds) {
    const around = make("div", "one");
    const picture = matrixPicture(ctx, { of, height: 460, linked: (view, at) => {
      for (const other of pictures) if (other !== picture) other.follow(view, at);
    } });
    around.append(make("h2", "", title), picture.legend, picture.element, picture.table);
    pictures.push(picture);
    three.append(around);
  }
  element.append(note, three);
  return {
    element,
    update: () => pictures.forEach((picture) => picture.update()),
    resize: () => pictures.forEach((picture) => picture.resize()),
  };
};
