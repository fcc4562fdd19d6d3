// The page: takes an image or a text, sends it to the model, and mounts the explorer on what comes back.

import { mount } from "./explorer.js";

const TRIES = 8; // how often a busy server is asked again
const WORDS = {
  caption: {
    question: "What is in the picture?",
    lead: "Give the model a picture. It writes a caption, and you see where it looked for every word.",
    output: "The model's caption",
    others: "Other captions it considered",
  },
  classify: {
    question: "Which class is it?",
    lead: "Give the model a picture. It names a class, and you see what it looked at to tell.",
    output: "The model's class",
    others: "The classes it considered",
  },
  translate: {
    question: "Translate a sentence",
    lead: "Type one and see, for every word that the model writes, which words it read.",
    output: "The model's translation",
    others: "Other translations it considered",
  },
  read: {
    question: "What does every token read?",
    lead: "Give the model something to read, and see what each token attends to, in every layer and head.",
    output: "",
  },
};
const OTHER = {
  question: "What does the model make of it?",
  lead: "Give the model an input, and see what it attended to.",
  output: "The model's output",
  others: "Other outputs it considered",
};

const $ = (id) => document.getElementById(id);
const page = { about: null, words: OTHER, asked: null, explorer: null, shown: null };

class Problem extends Error {}

async function request(address, options = {}) {
  for (let attempt = 1; ; attempt++) {
    let response;
    try {
      response = await fetch(address, { cache: "no-store", ...options });
    } catch (problem) {
      if (problem.name === "AbortError") throw problem;
      throw new Problem("The server does not answer. Is it still running?");
    }
    if (response.status === 503 && response.headers.has("retry-after") && attempt < TRIES) {
      if (options.onBusy) options.onBusy();
      await wait(1000 * Number(response.headers.get("retry-after")) * (0.6 + 0.4 * attempt), options.signal);
      continue;
    }
    const answer = await response.json().catch(() => ({ error: `the server answered ${response.status}` }));
    if (!response.ok) throw new Problem(sentence(answer.error));
    return answer;
  }
}

const wait = (milliseconds, signal) =>
  new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, milliseconds);
    signal?.addEventListener("abort", () => {
      clearTimeout(timer);
      reject(signal.reason);
    });
  });

const sentence = (text) => `${text.charAt(0).toUpperCase()}${text.slice(1)}${/[.!?]$/.test(text) ? "" : "."}`;

function say(text, busy = false) {
  $("status").textContent = text;
  document.body.classList.toggle("busy", busy);
  $("result").setAttribute("aria-busy", String(busy));
}

function complain(text) {
  say("");
  $("problem").textContent = text;
  $("problem").hidden = !text;
}

const look = (options) => askFor("api/look", { method: "POST", ...options }, "The model is looking…");

// A result from an address of the server; the last one that was asked for is shown.
async function askFor(address, options, status) {
  page.asked?.abort();
  const control = (page.asked = new AbortController());
  complain("");
  say(status, true);
  try {
    const result = await request(address, {
      signal: control.signal,
      onBusy: () => say("The model is busy with others; waiting for a turn…", true),
      ...options,
    });
    if (page.asked === control) show(result);
  } catch (problem) {
    if (page.asked !== control || problem.name === "AbortError") return;
    complain(problem instanceof Problem ? problem.message : `The page failed: ${problem.message}`);
  }
}

function lookAtFile(file) {
  if (!file) return;
  if (file.size > page.about.limits.upload) {
    const [most, got] = [page.about.limits.upload, file.size].map((n) => `${(n / 1e6).toFixed(1)} MB`);
    complain(`A file may have ${most}, this one has ${got}. Send a smaller one.`);
    return;
  }
  const form = new FormData();
  form.append("image", file, "image"); // its name stays here
  look({ body: form });
}

const lookAtText = (text) =>
  look({ body: JSON.stringify({ text }), headers: { "content-type": "application/json" } });

// The address says which result is shown: a reload, a copied link and the way back bring it again.
const lookInAddress = () => new URLSearchParams(location.hash.slice(1)).get("look");

function followAddress() {
  const id = lookInAddress();
  if (id === page.shown) return;
  if (id) {
    askFor(`api/looks/${encodeURIComponent(id)}`, {}, "Fetching the result…");
    return;
  }
  page.asked?.abort();
  page.shown = null;
  complain("");
  $("result").hidden = true;
  document.title = `${page.about.title} · Sightline`;
}

function show(result) {
  say("");
  page.shown = result.id;
  if (lookInAddress() !== result.id) history.pushState(null, "", `#${new URLSearchParams({ look: result.id })}`);
  if (result.given) $("text").value = result.given;
  $("result").hidden = false;
  $("output-kind").textContent = page.words.output;
  $("output").textContent = result.text || (page.about.takes === "text" ? "What it attended to" : "What it looked at");
  document.title = `${result.text || page.about.title} · Sightline`;
  showOthers(result);
  page.explorer?.unmount();
  const root = document.createElement("div");
  $("explorer").replaceChildren(root);
  const address = `api/looks/${encodeURIComponent(result.id)}/ask`;
  const ask = (question) =>
    request(address, {
      method: "POST",
      body: JSON.stringify(question),
      headers: { "content-type": "application/json" },
    });
  page.explorer = mount(root, { meta: result.meta, ask }, { address: { look: result.id } });
  const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
  $("result").scrollIntoView({ behavior: still ? "auto" : "smooth", block: "start" });
  $("result").focus({ preventScroll: true });
}

function showOthers(result) {
  const several = result.alternatives.length > 1;
  const isShare = page.about.kind === "classify";
  $("others").hidden = !several;
  $("others").firstElementChild.textContent = page.words.others ?? OTHER.others;
  $("score-name").textContent = isShare ? "probability" : "score";
  $("other-list").replaceChildren(
    ...result.alternatives.map(({ text, score }) => {
      const row = document.createElement("tr");
      const cells = [text, isShare ? `${(100 * score).toFixed(1)} %` : score.toFixed(3)];
      row.append(...cells.map((cell) => Object.assign(document.createElement("td"), { textContent: cell })));
      return row;
    }),
  );
}

function showExamples(examples) {
  $("examples").hidden = examples.length === 0;
  const isImage = page.about.takes === "image";
  $("example-list").replaceChildren(
    ...examples.map(({ label }, number) => {
      const item = document.createElement("li");
      const button = document.createElement("button");
      button.type = "button";
      button.setAttribute("aria-pressed", "false");
      if (isImage) {
        const image = document.createElement("img");
        Object.assign(image, { src: `api/examples/${number}.png`, alt: label, width: 88, height: 88 });
        button.append(image);
      } else {
        button.textContent = label;
        button.className = "words";
      }
      button.addEventListener("click", () => tryExample(button, label, number, isImage));
      item.append(button);
      return item;
    }),
  );
}

async function tryExample(button, label, number, isImage) {
  press(button);
  if (!isImage) {
    $("text").value = label;
    lookAtText(label);
    return;
  }
  const response = await fetch(`api/examples/${number}.png`);
  lookAtFile(await response.blob());
}

function press(button) {
  for (const other of $("example-list").querySelectorAll("button")) {
    other.setAttribute("aria-pressed", String(other === button));
  }
}

function listenForImages() {
  $("image-form").hidden = false;
  $("file").accept = page.about.formats.map((name) => `image/${name.toLowerCase()}`).join(",");
  const { upload, pixels } = page.about.limits;
  const formats = page.about.formats.join(", ");
  $("file-help").textContent = `${formats}; up to ${(upload / 1e6).toFixed(0)} MB and ${pixels / 1e6} megapixels`;
  $("file").addEventListener("change", () => {
    press(null);
    lookAtFile($("file").files[0]);
    $("file").value = ""; // so that the same file can be chosen again
  });
  $("image-form").addEventListener("submit", (event) => event.preventDefault());
  addEventListener("paste", (event) => {
    const file = [...event.clipboardData.files].find((x) => x.type.startsWith("image/"));
    if (file) {
      press(null);
      lookAtFile(file);
    }
  });
  for (const name of ["dragenter", "dragover"]) {
    addEventListener(name, (event) => {
      if (![...event.dataTransfer.types].some((type) => type === "Files" || type === "text/uri-list")) return;
      event.preventDefault();
      document.body.classList.add("dropping");
    });
  }
  addEventListener("dragleave", (event) => {
    if (!event.relatedTarget) document.body.classList.remove("dropping");
  });
  addEventListener("drop", (event) => {
    event.preventDefault();
    document.body.classList.remove("dropping");
    press(null);
    const dragged = /\/api\/examples\/(\d+)\.png$/.exec(event.dataTransfer.getData("text/uri-list"));
    if (dragged) $("example-list").querySelectorAll("button")[Number(dragged[1])]?.click();
    else if (event.dataTransfer.files.length) lookAtFile(event.dataTransfer.files[0]);
    else complain("That was no file. Drop a picture from a folder of yours.");
  });
}

function listenForTexts() {
  $("text-form").hidden = false;
  $("text").maxLength = page.about.limits.text;
  $("text-label").textContent = page.about.kind === "translate" ? "A sentence to translate" : "A text to read";
  $("send").textContent = page.about.kind === "translate" ? "Translate" : "Look";
  $("text-help").textContent = "or Ctrl + Enter";
  const send = () => {
    press(null);
    if ($("text").value.trim()) lookAtText($("text").value);
    else complain("There is nothing to read yet: type a text, or take one of the examples.");
  };
  $("text-form").addEventListener("submit", (event) => {
    event.preventDefault();
    send();
  });
  addEventListener("dragover", (event) => event.preventDefault());
  addEventListener("drop", async (event) => {
    const [file] = event.dataTransfer.files;
    if (!file) return;
    event.preventDefault();
    $("text").value = (await file.slice(0, 4 * page.about.limits.text).text()).slice(0, page.about.limits.text);
    send();
  });
  $("text").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      send();
    }
  });
}

async function start() {
  page.about = await request("api/about");
  page.words = WORDS[page.about.kind] ?? OTHER;
  $("model").textContent = `· ${page.about.title}`;
  $("question").textContent = page.words.question;
  $("lead").textContent = page.words.lead;
  document.title = `${page.about.title} · Sightline`;
  if (page.about.takes === "image") listenForImages();
  else listenForTexts();
  addEventListener("hashchange", followAddress);
  followAddress();
  showExamples(await request("api/examples"));
}

start().catch((problem) => complain(problem.message));
