// The picture with an overlay: in full colour until something is pointed at, then lit where the weight is.

import { VEIL } from "./palette.js";
import { clamp, glow, level, make } from "./parts.js";

// The upper left and the lower right of the region between two patches, as column and row.
export const cornersOf = (i, other, columns) => {
  const [xs, ys] = [[i % columns, other % columns], [Math.floor(i / columns), Math.floor(other / columns)]];
  return [[Math.min(...xs), Math.min(...ys)], [Math.max(...xs), Math.max(...ys)]];
};

// options: touch(patch, kind, corner) is called for a patch that is pointed at or picked, or for the region from it to the
// corner, which a drag or shift and arrow keys mark; with null when it is left.
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
    around.setAttribute("aria-label", "Patches of the picture: arrow keys step through them, with shift they mark a region, Enter picks");
  }
  let [at, corner, isKept] = [null, null, false]; // where the pointer is, where a region begins, whether it stays

  const place = (mark, i, other = i) => {
    const [[x0, y0], [x1, y1]] = cornersOf(i, other, columns);
    Object.assign(mark.style, { left: `${(100 * x0) / columns}%`, top: `${(100 * y0) / rows}%`,
      width: `${(100 * (x1 - x0 + 1)) / columns}%`, height: `${(100 * (y1 - y0 + 1)) / rows}%` });
    mark.hidden = false;
  };
  const patchOf = (event) => {
    const sides = around.getBoundingClientRect();
    const x = clamp(Math.floor(((event.clientX - sides.left) / sides.width) * columns), 0, columns - 1);
    const y = clamp(Math.floor(((event.clientY - sides.top) / sides.height) * rows), 0, rows - 1);
    return y * columns + x;
  };
  const point = (i, kind, other = i) => {
    at = i;
    if (i === null) cell.hidden = true;
    else place(cell, i, other);
    touch(i, kind, other);
  };
  if (touch) {
    around.addEventListener("pointerdown", (event) => { if (event.pointerType !== "touch") corner = patchOf(event); });
    around.addEventListener("pointermove", (event) => {
      if (event.pointerType === "touch" || (isKept && !event.buttons) || patchOf(event) === at) return;
      point(patchOf(event), "point", event.buttons ? corner ?? undefined : undefined);
    });
    around.addEventListener("pointerleave", (event) => { if (event.pointerType !== "touch" && !isKept) point(null, "point"); });
    around.addEventListener("click", (event) => {
      const to = patchOf(event);
      isKept = corner !== null && corner !== to;
      point(to, "pick", isKept ? corner : to);
      corner = null;
    });
    around.addEventListener("keydown", (event) => {
      const now = at ?? 0;
      if (event.key === "Escape" && at !== null) { isKept = false; point(null, "point"); return; }
      const to = { ArrowRight: now + 1, ArrowLeft: now - 1, ArrowDown: now + columns, ArrowUp: now - columns,
        Enter: now, " ": now }[event.key];
      if (to === undefined) return;
      event.preventDefault();
      event.stopPropagation();
      if (to < 0 || to >= rows * columns) return;
      if (!event.shiftKey) corner = null;
      else corner ??= now;
      isKept = corner !== null;
      point(to, event.key === "Enter" || event.key === " " ? "pick" : "point", corner ?? to);
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
    pick: (i) => { if (i === null) cell.hidden = true; else place(cell, i); },
  };
};
