// Any view as SVG or PNG: its texts, fills, canvases and drawings, as they stand on the screen.

import { makeSvg } from "./parts.js";

const SCALE = 2; // pixels of a PNG per pixel of the page
const MARGIN = 16; // pixels around a view
const CONTROLS = ".bar, details, input, select, [hidden]";

const visible = (style) => style.visibility !== "hidden" && style.display !== "none" && Number(style.opacity) > 0;
const filled = (colour) => colour && !/^(transparent|rgba\(0, 0, 0, 0\))$/.test(colour);

// A view as an SVG element: all it draws, on the colour of the page; what is scrolled lies open meanwhile.
export const toSvg = ({ element, settle }, root) => {
  element.classList.add("saving");
  settle?.();
  try {
    return drawn(element, root);
  } finally {
    element.classList.remove("saving");
    settle?.();
  }
};
const drawn = (view, root) => {
  const { left, top, width, height } = view.getBoundingClientRect();
  const whole = { left: left - MARGIN, top: top - MARGIN, width: 2 * MARGIN + Math.max(width, view.scrollWidth),
    height: 2 * MARGIN + Math.max(height, view.scrollHeight) };
  const paper = getComputedStyle(root).backgroundColor;
  const svg = makeSvg("svg", { width: whole.width, height: whole.height,
    viewBox: `0 0 ${whole.width} ${whole.height}` });
  const rect = (box, attributes) => svg.append(makeSvg("rect", { x: box.left - whole.left, y: box.top - whole.top,
    width: box.width, height: box.height, ...attributes }));
  rect(whole, { fill: paper });
  const image = (box, href, pixelated) => svg.append(makeSvg("image", { x: box.left - whole.left, y: box.top - whole.top,
    width: box.width, height: box.height, href, preserveAspectRatio: "none", ...(pixelated ? { "image-rendering": "pixelated" } : {}) }));
  const write = (node, style) => {
    const range = document.createRange();
    const letters = node.textContent;
    // A text that is broken into lines becomes one text a line.
    let [start, top] = [0, null];
    const flush = (from, to) => {
      const part = letters.slice(from, to).trim().replace(/\s+/g, " ");
      if (!part) return;
      range.setStart(node, from + letters.slice(from, to).search(/\S/));
      range.setEnd(node, to);
      const [box] = range.getClientRects();
      if (!box) return;
      const text = makeSvg("text", { x: box.left - whole.left, y: box.top - whole.top + box.height * 0.78, fill: style.color,
        "font-size": style.fontSize, "font-family": style.fontFamily, "font-weight": style.fontWeight });
      text.textContent = part;
      svg.append(text);
    };
    for (let i = 0; i < letters.length; i++) {
      range.setStart(node, i);
      range.setEnd(node, i + 1);
      const [box] = range.getClientRects();
      if (!box || box.width === 0) continue;
      if (top !== null && Math.abs(box.top - top) > box.height / 2) { flush(start, i); start = i; }
      top = box.top;
    }
    flush(start, letters.length);
  };
  const walk = (element) => {
    if (element.matches(CONTROLS)) return;
    const style = getComputedStyle(element);
    if (!visible(style)) return;
    const box = element.getBoundingClientRect();
    if (element instanceof HTMLCanvasElement) {
      if (element.width && box.width) image(box, element.toDataURL(), element.width < box.width);
      return;
    }
    if (element instanceof HTMLImageElement) { image(box, element.src, style.imageRendering === "pixelated"); return; }
    if (element instanceof SVGElement) {
      const copy = element.cloneNode(true);
      const [own, copies] = [[element, ...element.querySelectorAll("*")], [copy, ...copy.querySelectorAll("*")]];
      own.forEach((one, i) => {
        const computed = getComputedStyle(one);
        for (const name of ["fill", "stroke", "stroke-width", "opacity", "font-size", "font-family", "font-weight"]) {
          copies[i].setAttribute(name, computed.getPropertyValue(name));
        }
      });
      copy.setAttribute("x", box.left - whole.left);
      copy.setAttribute("y", box.top - whole.top);
      copy.removeAttribute("class");
      svg.append(copy);
      return;
    }
    if (element.matches(".ring")) {
      svg.append(makeSvg("circle", { cx: box.left - whole.left + box.width / 2, cy: box.top - whole.top + box.height / 2, r: 6,
        fill: "none", stroke: "#fff", "stroke-width": 2 }));
      return;
    }
    const border = parseFloat(style.borderTopWidth) > 0 && filled(style.borderTopColor);
    if (filled(style.backgroundColor) || border) {
      rect(box, { fill: filled(style.backgroundColor) ? style.backgroundColor : "none", rx: parseFloat(style.borderRadius) || 0,
        ...(border ? { stroke: style.borderTopColor, "stroke-width": style.borderTopWidth } : {}) });
    }
    for (const node of element.childNodes) {
      if (node.nodeType === Node.TEXT_NODE) write(node, style);
      else if (node.nodeType === Node.ELEMENT_NODE) walk(node);
    }
  };
  walk(view);
  return svg;
};

const download = (blob, name) => {
  const [link, url] = [document.createElement("a"), URL.createObjectURL(blob)];
  Object.assign(link, { href: url, download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
};

export const saveSvg = (view, root, name) => {
  const text = new XMLSerializer().serializeToString(toSvg(view, root));
  download(new Blob([text], { type: "image/svg+xml" }), `${name}.svg`);
};

export const savePng = async (view, root, name) => {
  const svg = toSvg(view, root);
  const text = new XMLSerializer().serializeToString(svg);
  const url = URL.createObjectURL(new Blob([text], { type: "image/svg+xml" }));
  const image = new Image();
  await new Promise((done, failed) => { image.onload = done; image.onerror = failed; image.src = url; });
  const canvas = document.createElement("canvas");
  canvas.width = SCALE * Number(svg.getAttribute("width"));
  canvas.height = SCALE * Number(svg.getAttribute("height"));
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  URL.revokeObjectURL(url);
  download(await new Promise((done) => { canvas.toBlob(done, "image/png"); }), `${name}.png`);
};
