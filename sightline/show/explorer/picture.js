// The picture with an overlay: in full colour until something is pointed at, then lit where the weight is.

import { VEIL } from "./palette.js";
import { clamp, glow, level, make } from "./parts.js";

// options: touch(patch, kind) is called for a patch that is pointed at or picked; null when left.
export const pictureBox = ({ url, rows, columns, small, width, height }, { touch, label }) => {
  const [around, image, canvas] = [make("div", "picture"), make("img"), make("canvas")];
  const [ring, box, cell] = [make("span", "ring"), make("span", "box"), make("span", "cell")];
  image.src = url;
  image.alt = label;
  image.draggable = false;
  around.style.aspectRatio = `${width} / ${height}`;
  if (small) around.classList.add("pixels");
  canvas.setAttribute("aria-hidden", "true");
  around.append(image, canvas, box, ring, cell);
  for (const mark of [ring, box, cell]) mark.hidden = true;
  if (touch) {
    around.tabIndex = 0;
    around.setAttribute("role", "application");
    around.setAttribute("aria-roledescription", "patches of the picture");
    around.setAttribute("aria-label", "Patches of the picture: arrow keys step through them, Enter picks one");
  }
  let at = null;

  const place = (mark, i) => {
    const [x, y] = [i % columns, Math.floor(i / columns)];
    Object.assign(mark.style, { left: `${(100 * x) / columns}%`, top: `${(100 * y) / rows}%`,
      width: `${100 / columns}%`, height: `${100 / rows}%` });
    mark.hidden = false;
  };
  const patchOf = (event) => {
    const sides = around.getBoundingClientRect();
    const x = clamp(Math.floor(((event.clientX - sides.left) / sides.width) * columns), 0, columns - 1);
    const y = clamp(Math.floor(((event.clientY - sides.top) / sides.height) * rows), 0, rows - 1);
    return y * columns + x;
  };
  const point = (i, kind) => {
    at = i;
    if (i === null) cell.hidden = true;
    else place(cell, i);
    touch(i, kind);
  };
  if (touch) {
    around.addEventListener("pointermove", (event) => {
      if (event.pointerType !== "touch" && patchOf(event) !== at) point(patchOf(event), "point");
    });
    around.addEventListener("pointerleave", (event) => { if (event.pointerType !== "touch") point(null, "point"); });
    around.addEventListener("click", (event) => point(patchOf(event), "pick"));
    around.addEventListener("keydown", (event) => {
      const now = at ?? 0;
      const to = { ArrowRight: now + 1, ArrowLeft: now - 1, ArrowDown: now + columns, ArrowUp: now - columns,
        Enter: now, " ": now }[event.key];
      if (to === undefined) return;
      event.preventDefault();
      event.stopPropagation();
      if (to >= 0 && to < rows * columns) point(to, event.key === "Enter" || event.key === " " ? "pick" : "point");
    });
  }
  return {
    element: around,
    clear: () => {
      canvas.hidden = ring.hidden = box.hidden = true;
      around.classList.remove("looking");
    },
    // Weights of the patches; kind "light" keeps the picture's colours where the weight is, "heat" paints it.
    draw: (weights, largest, { kind = "light", sides = null, smooth = true } = {}) => {
      [canvas.width, canvas.height] = [columns, rows];
      canvas.style.imageRendering = smooth ? "auto" : "pixelated";
      const context = canvas.getContext("2d");
      const pixels = context.createImageData(columns, rows);
      let top = 0;
      for (let i = 0; i < rows * columns; i++) {
        const share = level(weights[i], largest);
        if (weights[i] > weights[top]) top = i;
        const [colour, alpha] = kind === "heat" ? [glow(share), 0.9 * share ** 0.65] : [VEIL, 0.84 * (1 - share)];
        pixels.data.set([...colour, Math.round(255 * alpha)], 4 * i);
      }
      context.putImageData(pixels, 0, 0);
      canvas.hidden = false;
      around.classList.toggle("looking", true);
      around.classList.toggle("heat", kind === "heat");
      place(ring, top);
      box.hidden = !sides;
      if (sides) {
        const [left, upper, right, lower] = sides;
        Object.assign(box.style, { left: `${left}%`, top: `${upper}%`, width: `${right - left}%`, height: `${lower - upper}%` });
      }
      return top;
    },
    // Several patches at once, such as those that were picked.
    pick: (i) => { if (i === null) cell.hidden = true; else place(cell, i); },

  };
};
