// Creates elements, and formats numbers and times. Values from the API become text, never markup.

export const $ = (id) => document.getElementById(id);

export function make(tag, text = "", className = "") {
  const element = document.createElement(tag);
  element.textContent = text;
  if (className) element.className = className;
  return element;
}

export function makeButton(text, onClick, className = "") {
  const button = make("button", text, className);
  button.type = "button";
  button.addEventListener("click", onClick);
  return button;
}

// Returns a table cell. On a narrow screen it is shown as a line that begins with the name of its column.
export function cell(name, text, className = "") {
  const made = make("td", text, className);
  made.dataset.name = name;
  return made;
}

export const paragraph = (text) => make("p", text, "word");
export const number = (value) => (value === undefined || value === null ? "–" : value.toLocaleString("en"));
export const at = (ms) => new Date(ms).toISOString().replace("T", " ").replace(/\.000Z$/, "Z");
export const clock = (ms) => `${new Date(ms).toISOString().slice(5, 16).replace("T", " ")}Z`;

export function counted(count, noun, plural = `${noun}s`) {
  return `${number(count)} ${count === 1 ? noun : plural}`;
}

export function span(ms) {
  for (const [unit, size] of [["d", 86400000], ["h", 3600000], ["min", 60000], ["s", 1000]]) {
    if (ms >= size) return `${Number((ms / size).toFixed(1))} ${unit}`;
  }
  return `${Math.max(Math.round(ms), 0)} ms`;
}

export const inFuture = (ms) => (ms <= Date.now() ? "now" : `in ${span(ms - Date.now())}`);

// Shows the result of the latest action. The late result of an earlier action replaces neither a newer result nor a
// button that the user is about to press.
export class Region {
  #turn = 0;

  constructor(id) {
    this.element = $(id);
    this.element.tabIndex = -1;
  }

  // Returns a function that shows elements in this region and returns true. Once a later action has begun, the function
  // shows nothing and returns false.
  begin() {
    const mine = (this.#turn += 1);
    return (...elements) => {
      if (mine !== this.#turn) return false;
      const hadFocus = this.element.contains(document.activeElement);
      this.element.replaceChildren(...elements);
      if (hadFocus) this.element.focus();
      return true;
    };
  }
}

// Returns the values of the fields of a form that are not empty.
export function fieldsOf(form) {
  const fields = [...new FormData(form)].map(([name, value]) => [name, value.trim()]);
  return Object.fromEntries(fields.filter(([, value]) => value));
}

// Adds, changes and removes the children of a list one by one. A child with a known key stays in place, so that a
// refresh loses neither a click nor the focus. `build` makes a child, `fill` writes the present values into it.
export function updateChildren(parent, items, keyOf, build, fill) {
  const known = new Map([...parent.children].map((child) => [child.dataset.key, child]));
  items.forEach((item, index) => {
    const key = keyOf(item);
    let child = known.get(key);
    known.delete(key);
    if (!child) {
      child = build(item);
      child.dataset.key = key;
    }
    fill(child, item);
    if (parent.children[index] !== child) parent.insertBefore(child, parent.children[index] ?? null);
  });
  for (const child of known.values()) child.remove();
}
