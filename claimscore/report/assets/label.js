/* Labels: one item at a time; what was said is kept in the browser and saved as the CSV file. */
import { button, byId, el } from "./dom.js";
import { saveCsv } from "./download.js";
import { block } from "./packed.js";

const NAMES = { claim: "Claim", evidence: "Nearest evidence", source: "Source", text: "Where the claim is made" };
const MARKED = { source: "evidence", text: "sentence" };
const verdicts = JSON.parse(byId("cs-verdicts").textContent);

/* The text with a passage marked, where it stands there word for word. */
function marked(text, passage, id) {
  const at = passage ? text.indexOf(passage) : -1;
  return at < 0 ? [text] : [text.slice(0, at), el("mark", { id }, passage), text.slice(at + passage.length)];
}

block("cs-items").then(({ key, columns, rows }) => {
  const place = Object.fromEntries(columns.map((name, at) => [name, at]));
  const shown = columns.filter((name) => !["metric", "id", "claim_position", "sentence", "policy", "weight", "label"].includes(name));
  const kept = "claimscore-labels-" + key;
  let at = 0;
  let labels = {};
  try {
    labels = JSON.parse(localStorage.getItem(kept)) || {};
  } catch { /* a browser that keeps nothing: the page says so below */ }

  function keep() {
    try {
      localStorage.setItem(kept, JSON.stringify(labels));
      return "";
    } catch {
      return " This browser keeps nothing from a page on a disk: save before you close it.";
    }
  }

  function tell() {
    const n = Object.keys(labels).length;
    byId("progress").textContent = n + " of " + rows.length + " labelled." + (n === rows.length ? " Now save them." : "") + keep();
  }

  function show(number, focus = true) {
    at = Math.max(0, Math.min(rows.length - 1, number));
    const row = rows[at];
    byId("item-title").textContent = "Item " + (at + 1) + " of " + rows.length + ": record " + row[place.id];
    byId("item").replaceChildren(...shown.filter((name) => row[place[name]]).map((name) => {
      const attributes = { dir: "auto" };
      if (name !== "claim" && name !== "evidence") Object.assign(attributes, { class: "text", tabindex: "0", role: "region", "aria-label": NAMES[name] || name });
      return el("section", { class: name === "claim" ? "side asked" : "side" }, el("h3", {}, NAMES[name] || name, name === "evidence" && row[place.source].includes(row[place.evidence]) ? el("a", { href: "#evidence" }, "in the source") : ""),
        el("p", attributes, ...marked(row[place[name]], row[place[MARKED[name]]], MARKED[name])));
    }));
    const mark = byId("evidence");
    if (mark) mark.parentNode.scrollTop = mark.offsetTop - 40;
    for (const choice of byId("choices").querySelectorAll("button")) choice.setAttribute("aria-pressed", String(labels[at] === choice.dataset.label));
    byId("back").disabled = at === 0;
    byId("next").disabled = at === rows.length - 1;
    tell();
    if (!focus) return;
    byId("item-title").scrollIntoView({ behavior: "instant" });
    byId("item-title").focus({ preventScroll: true });
  }

  function choose(label) {
    const before = labels[at];
    if (label !== undefined && before !== undefined && before !== label && !confirm("Item " + (at + 1) + " has the label " + before + ". Make it " + label + "?")) return;
    if (label === undefined) delete labels[at];
    else labels[at] = label;
    show(label === undefined ? at : at + 1);
  }

  /* The number of the first item from there on without a label, then of those before it. */
  function unlabelled(from) {
    const order = [...rows.keys()].map((number) => (from + number) % rows.length);
    return order.find((number) => !(number in labels));
  }

  verdicts.forEach((verdict, number) => {
    byId("choices").append(button(verdict, () => choose(verdict), { "data-label": verdict, "aria-pressed": "false" }));
    byId("choices").lastChild.prepend(el("kbd", {}, String(number + 1)), " ");
  });
  byId("back").addEventListener("click", () => show(at - 1));
  byId("next").addEventListener("click", () => show(at + 1));
  byId("open").addEventListener("click", () => show(unlabelled(at + 1) ?? at));
  byId("save").addEventListener("click", () => {
    saveCsv("labels", [columns, ...rows.map((row, number) => row.map((cell, column) => (column === place.label ? labels[number] ?? "" : cell)))]);
  });
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input")) return;
    if (event.key === "ArrowRight") show(at + 1);
    else if (event.key === "ArrowLeft") show(at - 1);
    else if (event.key === "0") choose(undefined);
    else if (verdicts[event.key - 1]) choose(verdicts[event.key - 1]);
  });
  byId("policy").open = Object.keys(labels).length === 0;
  show(unlabelled(0) ?? 0, false);
  document.documentElement.dataset.ready = "#item";
});
