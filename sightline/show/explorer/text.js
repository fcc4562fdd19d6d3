// A text whose words can be pointed at, picked and shaded: a list box that the keyboard walks through.

import { EVEN, css, inkOn, level, make, printable, signedLevel, weightText } from "./parts.js";

let count = 0;

// options: label, pick(i), point(i or null). Words are numbered in the whole text.
export const textBlock = ({ label, pick, point }) => {
  const [around, list] = [make("div", "text"), make("div", "words")];
  list.setAttribute("role", "listbox");
  list.setAttribute("aria-label", label);
  list.tabIndex = 0;
  list.dir = "auto";
  around.append(list);
  const own = `sl-words-${count++}`;
  let [first, spans, selected] = [0, [], null];

  const indexOf = (event) => {
    const word = event.target.closest?.("[role=option]");
    return word && list.contains(word) ? Number(word.dataset.i) : null;
  };
  let last = null;
  const pointAt = (i) => { if (i !== last) { last = i; point?.(i); } };
  list.addEventListener("pointermove", (event) => { if (event.pointerType !== "touch") pointAt(indexOf(event)); });
  list.addEventListener("pointerleave", () => pointAt(null));
  list.addEventListener("click", (event) => { const i = indexOf(event); if (i !== null) pick?.(i); });
  list.addEventListener("keydown", (event) => {
    const n = first + spans.length;
    const at = selected ?? first - 1;
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1, ArrowDown: below(1), ArrowUp: below(-1),
      Home: first, End: n - 1 }[event.key];
    if (to === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    if (to >= first && to < n) pick?.(to);
  });
  // The word nearest above or below the selected one.
  const below = (step) => {
    if (selected === null || !spans[selected - first]) return first;
    const here = spans[selected - first].getBoundingClientRect();
    let [best, distance] = [selected, Infinity];
    spans.forEach((span, i) => {
      const box = span.getBoundingClientRect();
      const dy = step * (box.top - here.top);
      const away = dy * 4 + Math.abs(box.left - here.left);
      if (dy > here.height / 2 && away < distance) [best, distance] = [first + i, away];
    });
    return best;
  };

  return {
    element: around,
    list,
    get first() { return first; },
    get count() { return spans.length; },
    fill: (words, from = 0) => {
      first = from;
      spans = words.map((word, i) => {
        const span = make("span", "word", printable(word));
        span.setAttribute("role", "option");
        span.setAttribute("aria-selected", "false");
        span.id = `${own}-${from + i}`;
        span.dataset.i = from + i;
        return span;
      });
      list.replaceChildren(...spans.flatMap((span) => [span, " "]));
    },
    // Weights of the words from the first shown on; null clears.
    shade: (weights, largest, colours, signed = false) => spans.forEach((span, i) => {
      const w = weights?.[i];
      if (w === undefined || w === null) {
        span.style.background = span.style.color = "";
        span.title = "";
        return;
      }
      const colour = signed ? colours.both(signedLevel(w, largest, EVEN)) : colours.of(level(w, largest, EVEN));
      span.style.background = css(colour);
      span.style.color = inkOn(colour);
      span.title = `${span.textContent} (${first + i}): ${weightText(w)}`;
    }),
    select: (i, kind = "picked") => {
      for (const span of list.querySelectorAll(`.${kind}`)) span.classList.remove(kind);
      const span = i === null ? null : spans[i - first];
      span?.classList.add(kind);
      if (kind !== "picked") return;
      selected = i;
      for (const other of list.querySelectorAll('[aria-selected="true"]')) other.setAttribute("aria-selected", "false");
      span?.setAttribute("aria-selected", "true");
      if (span) {
        list.setAttribute("aria-activedescendant", span.id);
        const [own, around] = [span.getBoundingClientRect(), list.getBoundingClientRect()];
        if (own.top < around.top || own.bottom > around.bottom) list.scrollTop += own.top - around.top - around.height / 2;
      }
      else list.removeAttribute("aria-activedescendant");
    },
    mark: (hits) => {
      const set = new Set(hits);
      spans.forEach((span, i) => span.classList.toggle("hit", set.has(first + i)));
    },
    span: (i) => spans[i - first],
  };
};
