/* Elements and numbers as text. Texts are only ever set as textContent: nothing here parses markup. */
export const byId = (id) => document.getElementById(id);

export function el(name, attributes, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (key === "class") element.className = value;
    else element.setAttribute(key, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined)); // strings become text nodes
  return element;
}

export function button(label, action, attributes) {
  const element = el("button", { type: "button", ...attributes }, label);
  element.addEventListener("click", action);
  return element;
}

export const option = (value, label) => el("option", { value }, label);
export const labelled = (label, control, attributes) => el("label", attributes || {}, label, control);
export const fixed = (value) => (value === null ? "–" : value.toFixed(2).replace("-", "−"));
export const whole = (value) => value.toLocaleString("en");

/* A table with a name: `head` are elements or texts, one of a column of numbers with # at its end. */
export function tableOf(name, kind, head, rows) {
  return el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": name },
    el("table", { class: kind }, el("thead", {}, el("tr", {}, ...head.map((title) => (title instanceof Node ? title : el("th", { scope: "col", class: title.endsWith("#") ? "num" : "" }, title.replace(/#$/, "")))))), el("tbody", {}, ...rows)));
}

export function copyButton(code, label) {
  const copy = button("Copy", async () => {
    try {
      await navigator.clipboard.writeText(code.textContent);
      copy.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(code); // no clipboard here: selected, ready for Ctrl+C
      copy.textContent = "Selected";
    }
    setTimeout(() => { copy.textContent = "Copy"; }, 1600);
  }, { class: "copy" });
  copy.setAttribute("aria-label", label);
  return copy;
}

export function addCopyButtons() {
  for (const code of document.querySelectorAll("code.copyable")) {
    code.after(copyButton(code, "Copy: " + code.closest("div").querySelector("dt").textContent));
  }
}
