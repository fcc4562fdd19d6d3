// Where each word looked: point at a word, and its weights glow over the image, or over the words that were read.
// Data comes as JSON inside the page; every text becomes a text node, never markup.

const read = (id) => JSON.parse(document.getElementById(id).textContent);
const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
const COLOURS = bytes(read("colours"));  // 256 colours of 4 bytes: red, green, blue, opacity
const STRONG = 0.55;  // of the scale, from which a word is dark on its colour in both themes

const make = (tag, name, text) => {
  const element = document.createElement(tag);
  if (name) element.className = name;
  if (text !== undefined) element.textContent = text;
  return element;
};

const paint = (canvas, columns, rows, value) => {  // value(i) is between 0 and 1
  canvas.width = columns;
  canvas.height = rows;
  const context = canvas.getContext("2d");
  const cells = context.createImageData(columns, rows);
  for (let i = 0; i < columns * rows; i++) {
    const colour = Math.max(0, Math.min(255, Math.round(255 * value(i))));
    cells.data.set(COLOURS.subarray(4 * colour, 4 * colour + 4), 4 * i);
  }
  context.putImageData(cells, 0, 0);
};

// Weights come as two bytes each, the largest as 65535.
const unpack = ({ packed, largest }) => {
  const pairs = bytes(packed);
  return Float64Array.from({ length: pairs.length / 2 },
    (_, i) => (pairs[2 * i] + 256 * pairs[2 * i + 1]) / 65535 * largest);
};

// One map of weights per query: the summary, the mean of a layer's heads, or one head.
const mapsOf = (data) => {
  const { layers, heads } = data;
  const [T, S] = [data.queries.length, data.n_keys];
  const [weights, summary] = [unpack(data.weights), unpack(data.summary)];
  return (choice) => (query) => {
    if (choice === null) return summary.subarray(query * S, (query + 1) * S);
    const [layer, head] = choice;
    const chosen = head === null ? [...Array(heads).keys()] : [head];
    const mean = new Float64Array(S);
    for (const h of chosen) {
      const start = ((layer * heads + h) * T + query) * S;
      for (let s = 0; s < S; s++) mean[s] += weights[start + s] / chosen.length;
    }
    return mean;
  };
};

// The keys as patches of an image.
const imageKeys = (figure, data) => {
  const image = figure.querySelector(".image");
  const [canvas, peak, box] = [make("canvas"), make("span", "peak"), make("span", "box")];
  image.append(canvas);
  return {
    clear: () => {
      canvas.getContext("2d").clearRect(0, 0, canvas.width, canvas.height);
      for (const mark of [peak, box]) mark.remove();
    },
    draw: (query, weights, largest, top) => {
      paint(canvas, data.columns, data.rows, (i) => weights[i] / largest);
      peak.style.left = `${100 * ((top % data.columns) + 0.5) / data.columns}%`;
      peak.style.top = `${100 * (Math.floor(top / data.columns) + 0.5) / data.rows}%`;
      image.append(peak);
      const sides = data.boxes[query];
      if (!sides) return;
      const [left, upper, right, lower] = sides.map((side) => `${side}%`);
      Object.assign(box.style, { left, top: upper, width: `calc(${right} - ${left})`,
        height: `calc(${lower} - ${upper})` });
      image.append(box);
    },
  };
};

// The keys as words of a sentence.
const wordKeys = (figure, data) => {
  const line = figure.querySelector(".keys");
  line.textContent = "";
  const keys = data.keys.map((word) => make("span", "key", word));
  for (const key of keys) line.append(key, " ");
  const set = (key, weight, share, isLargest) => {
    key.style.setProperty("--weight", share);
    key.classList.toggle("strong", share > STRONG);
    key.classList.toggle("largest", isLargest);
    key.title = weight === null ? "" : `weight ${weight.toFixed(3)}`;
  };
  return {
    clear: () => keys.forEach((key) => set(key, null, 0, false)),
    draw: (query, weights, largest, top) =>
      keys.forEach((key, s) => set(key, weights[s], weights[s] / largest, s === top)),
  };
};

const choicesOf = (data) => {  // a menu of what can be shown, summary first
  const menu = make("select");
  const choices = [null];
  menu.append(new Option(data.label || "mean of all heads", 0));
  for (let layer = 0; layer < data.layers; layer++) {
    const within = data.layers > 1 ? make("optgroup") : menu;
    if (data.layers > 1) {
      within.label = `layer ${layer}`;
      menu.append(within);
    }
    const add = (text, head) => {
      choices.push([layer, head]);
      within.append(new Option(data.layers > 1 ? `layer ${layer}, ${text}` : text, choices.length - 1));
    };
    if (data.layers > 1 && data.heads > 1) add("mean of its heads", null);
    for (let head = 0; head < data.heads; head++) add(`head ${head}`, head);
  }
  return { menu, chosen: () => choices[Number(menu.value)], count: choices.length };
};

const enliven = (figure) => {
  const data = read(figure.dataset.attention);
  const maps = mapsOf(data);
  const isGrid = data.rows !== undefined;
  const keys = isGrid ? imageKeys(figure, data) : wordKeys(figure, data);
  const words = figure.querySelector(".words");
  const note = make("span", "number");
  const choices = choicesOf(data);
  words.textContent = "";
  let pinned = data.first, largest = 0, map = maps(null);

  const show = (query) => {
    figure.classList.toggle("looking", query !== null);
    buttons.forEach((button, i) => {
      button.classList.toggle("on", i === query);
      button.setAttribute("aria-pressed", String(i === pinned));
    });
    keys.clear();
    note.textContent = "";
    if (query === null) return;
    const weights = map(query);
    const top = weights.indexOf(Math.max(...weights));
    keys.draw(query, weights, largest, top);
    note.textContent = `largest weight ${weights[top].toFixed(3)}`;
  };

  const buttons = data.queries.map((word, i) => {
    const button = make("button", "", word);
    button.type = "button";
    button.addEventListener("mouseenter", () => show(i));
    button.addEventListener("focus", () => show(i));
    button.addEventListener("click", () => { pinned = pinned === i ? null : i; show(pinned); });
    words.append(button);
    return button;
  });
  words.addEventListener("mouseleave", () => show(pinned));
  words.addEventListener("focusout", () => show(pinned));
  words.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    const at = buttons.indexOf(document.activeElement);
    if (step && buttons[at + step]) { event.preventDefault(); buttons[at + step].focus(); }
  });

  const rescale = () => {  // one scale for all words, so that they can be compared
    map = maps(choices.chosen());
    largest = data.queries.reduce((most, _, i) => Math.max(most, ...map(i)), data.least) || 1;
    scaleEnd.textContent = largest.toFixed(2);
    show(pinned);
  };

  const controls = make("div", "controls");
  const scaleEnd = make("span");
  if (choices.count > 2) {
    const label = make("label", "", "show ");
    label.append(choices.menu);
    controls.append(label);
  }
  if (isGrid) {
    const [scale, ramp] = [make("span", "scale"), make("canvas")];
    paint(ramp, 128, 1, (i) => i / 127);
    scale.append("weight 0", ramp, scaleEnd);
    const [squares, label] = [make("input"), make("label", "", " patches as squares")];
    squares.type = "checkbox";
    squares.checked = data.squares;
    const toggle = () => figure.classList.toggle("squares", squares.checked);
    squares.addEventListener("change", toggle);
    toggle();
    label.prepend(squares);
    controls.append(scale, label);
  }
  controls.append(note);
  figure.querySelector(".output").append(controls);
  choices.menu.addEventListener("change", rescale);
  rescale();
};

for (const figure of document.querySelectorAll("figure.attention")) {
  if (document.getElementById(figure.dataset.attention)) enliven(figure);
}
