// Where each word looked: hover, focus or click a word and its weights glow over the picture.
// Data comes as JSON inside the page; every text becomes a text node, never markup. Before this file the page
// defines COLOURS, the scale of colours in base64.

const read = (id) => JSON.parse(document.getElementById(id).textContent);
const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
const table = bytes(COLOURS);  // 256 colours of 4 bytes: red, green, blue and how much they cover

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
    cells.data.set(table.subarray(4 * colour, 4 * colour + 4), 4 * i);
  }
  context.putImageData(cells, 0, 0);
};

// The weights of one word over the patches, of one head or of the mean of all.
const weightsOf = (told, packed, word, head) => {
  const { heads, rows, columns, largest } = told;
  const patches = rows * columns;
  const found = new Float64Array(patches);
  const chosen = head === null ? [...Array(heads).keys()] : [head];
  for (const h of chosen) {
    const start = 2 * (word * heads + h) * patches;
    for (let p = 0; p < patches; p++) {
      found[p] += (packed[start + 2 * p] + 256 * packed[start + 2 * p + 1]) / 65535 * largest / chosen.length;
    }
  }
  return found;
};

const enliven = (figure) => {
  const told = read(figure.dataset.told);
  const packed = bytes(told.weights);
  const seen = figure.querySelector(".seen");
  const words = figure.querySelector(".words");
  const canvas = make("canvas");
  const peak = make("span", "peak");
  const box = make("span", "box");
  const said = make("span", "said");
  seen.append(canvas);
  words.textContent = "";
  let head = null, pinned = null, most = 0;

  const buttons = told.words.map((word, i) => {
    const button = make("button", "word", word);
    button.type = "button";
    button.setAttribute("aria-pressed", "false");
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

  const show = (word) => {
    figure.classList.toggle("looking", word !== null);
    buttons.forEach((button, i) => {
      button.classList.toggle("on", i === word);
      button.setAttribute("aria-pressed", String(i === pinned));
    });
    for (const mark of [peak, box]) mark.remove();
    if (word === null) {
      canvas.getContext("2d").clearRect(0, 0, canvas.width, canvas.height);
      said.textContent = "";
      return;
    }
    const weights = weightsOf(told, packed, word, head);
    const top = weights.indexOf(Math.max(...weights));
    paint(canvas, told.columns, told.rows, (i) => weights[i] / most);
    peak.style.left = `${100 * ((top % told.columns) + 0.5) / told.columns}%`;
    peak.style.top = `${100 * (Math.floor(top / told.columns) + 0.5) / told.rows}%`;
    seen.append(peak);
    const where = told.boxes[word];
    if (where) {
      const [left, upper, right, lower] = where;
      Object.assign(box.style, { left: `${left}%`, top: `${upper}%`, width: `${right - left}%`,
        height: `${lower - upper}%` });
      seen.append(box);
    }
    said.textContent = `largest weight ${weights[top].toFixed(3)}`;
  };

  const controls = make("div", "controls");
  const choice = make("select");
  choice.append(new Option("mean of all heads", ""));
  for (let h = 0; h < told.heads; h++) choice.append(new Option(`head ${h}`, h));
  const labelled = make("label", "", "heads ");
  labelled.append(choice);
  const scale = make("span", "scale");
  const [least, ramp, greatest] = [make("span", "", "0"), make("canvas"), make("span")];
  scale.title = "weight on a patch";
  scale.append("weight", least, ramp, greatest);
  const cells = make("input");
  cells.type = "checkbox";
  const plain = make("label", "", " patches as they are");
  plain.prepend(cells);
  controls.append(...(told.heads > 1 ? [labelled] : []), scale, plain, said);
  figure.querySelector(".telling").append(controls);

  const rescale = () => {  // one scale for all words, so that they can be compared
    most = told.least;
    told.words.forEach((_, i) => { most = Math.max(most, ...weightsOf(told, packed, i, head)); });
    greatest.textContent = most.toFixed(2);
    paint(ramp, 128, 1, (i) => i / 127);
    show(pinned);
  };
  choice.addEventListener("change", () => { head = choice.value === "" ? null : Number(choice.value); rescale(); });
  cells.addEventListener("change", () => figure.classList.toggle("cells", cells.checked));
  if (told.first !== null) pinned = told.first;
  rescale();
};

document.querySelectorAll("figure.told").forEach(enliven);
