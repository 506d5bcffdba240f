/* Figures and tables to take away. */
import { button, el } from "./dom.js";

const slug = (text) => text.toLowerCase().replace(/[^\p{L}\p{N}]+/gu, "-").replace(/^-|-$/g, "").slice(0, 60) || "figure";

function save(name, blob) {
  const address = URL.createObjectURL(blob);
  const link = el("a", { href: address, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}

// A text that a spreadsheet would take for a formula gets an apostrophe before it.
function csvCell(value) {
  if (value === null || value === undefined) return "";
  if (typeof value === "number") return String(value);
  const text = /^'*[=+\-@\t\r\n\uFF1D\uFF0B\uFF0D\uFF20]/.test(value) && !Number.isFinite(Number(value)) ? "'" + value : String(value);
  return /[",\r\n]/.test(text) ? '"' + text.replaceAll('"', '""') + '"' : text;
}

const csvText = (rows) => rows.map((row) => row.map(csvCell).join(",")).join("\r\n") + "\r\n";
export const saveCsv = (name, rows) => save(slug(name) + ".csv", new Blob(["\ufeff" + csvText(rows)], { type: "text/csv;charset=utf-8" }));

// What a table says, with cells that stand for a number in another form giving it as data-value.
function tableRows(table) {
  const said = (cell) => cell.dataset.value ?? (cell.querySelector(".name") || cell).textContent.trim();
  return [...table.rows].map((row) => [...row.cells].map(said));
}

function svgText(svg) {
  const copy = svg.cloneNode(true);
  const { width, height } = svg.viewBox.baseVal;
  copy.querySelectorAll(".mark-only, style").forEach((part) => part.remove());
  copy.setAttribute("width", width);
  copy.setAttribute("height", height);
  copy.setAttribute("font-family", "system-ui, sans-serif");
  const back = document.createElementNS(svg.namespaceURI, "rect");
  for (const [key, value] of Object.entries({ width: "100%", height: "100%", fill: "var(--card)" })) back.setAttribute(key, value);
  copy.prepend(back);
  // The page's colours are variables; a file of its own has the light ones.
  const light = el("i", { class: "light", hidden: "" });
  document.body.append(light);
  const colours = getComputedStyle(light);
  const text = new XMLSerializer().serializeToString(copy)
    .replace(/var\((--[\w-]+)\)/g, (_, name) => colours.getPropertyValue(name).trim().replaceAll("\"", "'") || "currentColor")
    .replaceAll("currentColor", colours.getPropertyValue("--ink").trim());
  light.remove();
  return text;
}

async function savePng(name, svg) {
  const image = new Image();
  image.src = "data:image/svg+xml;charset=utf-8," + encodeURIComponent(svgText(svg));
  await image.decode();
  const { width, height } = svg.viewBox.baseVal;
  const canvas = el("canvas", { width: width * 3, height: height * 3 });
  canvas.getContext("2d").drawImage(image, 0, 0, width * 3, height * 3);
  canvas.toBlob((blob) => save(slug(name) + ".png", blob), "image/png");
}

/* Buttons under a figure; `svg()` and `rows()` give what is shown when they are pressed. */
export function takeAway(name, { svg, rows }) {
  const bar = el("div", { class: "take", role: "group", "aria-label": "Download: " + name });
  const add = (label, action) => bar.append(button(label, action, { class: "small", "aria-label": label + ": " + name }));
  if (svg) {
    add("SVG", async () => save(slug(name) + ".svg", new Blob([svgText(await svg())], { type: "image/svg+xml" })));
    add("PNG", async () => savePng(name, await svg()));
  }
  if (rows) add("CSV", () => saveCsv(name, rows()));
  return bar;
}

/* Every table of the page that has a name can be taken away. */
export function addTableDownloads() {
  for (const table of document.querySelectorAll("table[data-csv]")) {
    (table.closest(".scroll") || table).after(takeAway(table.dataset.csv, { rows: () => tableRows(table) }));
  }
}
