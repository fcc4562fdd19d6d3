// How a matrix is moved about: by mouse, by touch and by keys.
//   acts = {isReady, placeAt(x, y), toPlace(x, y), pixelsPer(), size(), point(at), pick(at), pan(dq, dk), panBy(q, k),
//           zoom(factor, q, k), zoomIn(factor), all(), step(dq, dk)}

import { clamp } from "./parts.js";

const STILL = 4; // pixels that a click may move

export const handle = (canvas, acts) => {
  const fingers = new Map();
  let [moved, spread] = [0, 0];
  const local = (x, y) => {
    const sides = canvas.getBoundingClientRect();
    return [x - sides.left, y - sides.top];
  };
  const placeOf = (event) => acts.placeAt(...local(event.clientX, event.clientY));

  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    fingers.set(event.pointerId, [event.clientX, event.clientY]);
    [moved, spread] = [0, 0];
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!acts.isReady()) return;
    const before = fingers.get(event.pointerId);
    if (!before) { acts.point(placeOf(event)); return; }
    const [dx, dy] = [event.clientX - before[0], event.clientY - before[1]];
    moved += Math.abs(dx) + Math.abs(dy);
    fingers.set(event.pointerId, [event.clientX, event.clientY]);
    const [px, py] = acts.pixelsPer();
    if (fingers.size === 1) { if (moved > STILL) acts.pan(-dy / py, -dx / px); return; }
    const [[x0, y0], [x1, y1]] = [...fingers.values()];
    const apart = Math.hypot(x1 - x0, y1 - y0);
    if (spread) acts.zoom(spread / apart, ...acts.toPlace(...local((x0 + x1) / 2, (y0 + y1) / 2)));
    spread = apart;
  });
  const lift = (event) => {
    if (fingers.delete(event.pointerId) && moved <= STILL && event.type === "pointerup" && acts.isReady()) {
      const at = placeOf(event);
      acts.point(at);
      if (at) acts.pick(at);
    }
    spread = 0;
  };
  canvas.addEventListener("pointerup", lift);
  canvas.addEventListener("pointercancel", lift);
  canvas.addEventListener("pointerleave", (event) => { if (event.pointerType !== "touch" && !fingers.size) acts.point(null); });
  canvas.addEventListener("dblclick", (event) => { const at = placeOf(event); if (at) acts.zoom(0.4, ...at.exact); });
  // A wheel scrolls the page until the picture was clicked, or with Ctrl.
  canvas.addEventListener("wheel", (event) => {
    const isFocused = canvas === canvas.getRootNode().activeElement;
    if (!event.ctrlKey && !event.metaKey && !isFocused) return;
    event.preventDefault();
    const at = placeOf(event);
    if (at) acts.zoom(Math.exp(clamp(event.deltaY, -60, 60) * 0.008), ...at.exact);
  }, { passive: false });
  canvas.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || !acts.isReady()) return;
    const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    const act = { "+": () => acts.zoomIn(0.6), "=": () => acts.zoomIn(0.6), "-": () => acts.zoomIn(1 / 0.6), 0: acts.all, Home: acts.all,
      Enter: () => acts.pick() }[event.key];
    if (!step && !act) return;
    event.preventDefault();
    if (act) act();
    else if (event.shiftKey) acts.panBy(0.2 * step[0], 0.2 * step[1]);
    else acts.step(...step);
  });
  canvas.addEventListener("blur", () => acts.point(null));
};
