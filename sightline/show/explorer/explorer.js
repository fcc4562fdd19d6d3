// The explorer: mount(root, source) draws all views of what was seen into an element.
// source = {meta, ask(request) -> Promise<answer>}

import { make } from "./parts.js";

export function mount(root, source, options = {}) {
  root.textContent = "";
  root.append(make("h2", "", source.meta.title));
}
