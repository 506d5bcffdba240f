/* Charts by Observable Plot. Colours are the page's variables: light, dark and print follow. */
import { byId } from "./dom.js";
import { takeAway } from "./download.js";
import { loadLibrary } from "./packed.js";

export const tickOf = (value) => Number(value.toPrecision(6)).toLocaleString("en", { maximumSignificantDigits: 6 }).replace("-", "−");
export const TIP = { fill: "var(--card)", stroke: "var(--line)", className: "tip" };
const shortened = (text, most) => (text.length > most ? text.slice(0, most - 1) + "…" : text);

// At most so many round counts on an axis, none between two whole numbers.
const wholeTicks = (most) => (most < 3 ? Array.from({ length: most + 1 }, (_, at) => at) : 3);

export function draw(options) {
  const drawn = Plot.plot({ className: "plot", style: { fontFamily: "var(--sans)", fontSize: "11.5px" }, ...options });
  drawn.setAttribute("role", "img"); // one picture with a name; its parts need none
  for (const part of drawn.querySelectorAll("[aria-label], [aria-description]")) {
    part.removeAttribute("aria-label");
    part.removeAttribute("aria-description");
  }
  return drawn;
}

/* A distribution: `bins` are [from, to, records]. */
export function histogram({ name, bins, mean, interval, description, width = 360, height = 192 }) {
  const [low, high] = [bins[0][0], bins.at(-1)[1]];
  const most = Math.max(1, ...bins.map((bin) => bin[2]));
  return draw({
    width, height, marginLeft: 44, marginRight: 12, marginTop: 34, marginBottom: 26, ariaLabel: name, ariaDescription: description,
    x: { domain: [low, high], ticks: 5, label: null, tickFormat: tickOf },
    y: { ticks: wholeTicks(most), grid: true, label: "records", labelArrow: "none", tickFormat: "~s", domain: [0, most] },
    marks: [
      interval === null ? null : Plot.rect([interval], { x1: "0", x2: "1", y1: 0, y2: most, fill: "var(--ink)", fillOpacity: 0.1 }),
      Plot.rectY(bins, { x1: "0", x2: "1", y: "2", fill: "var(--bar)", inset: 0.6, rx: 1.5,
        title: ([from, to, n]) => tickOf(from) + " to " + tickOf(to) + ": " + n.toLocaleString("en"), tip: TIP }),
      Plot.ruleY([0], { stroke: "var(--soft)" }),
      interval === null ? null : Plot.ruleX(interval, { stroke: "var(--ink)", strokeDasharray: "3 2" }),
      mean === null ? null : Plot.ruleX([mean], { stroke: "var(--ink)", strokeWidth: 1.5 }),
      mean === null ? null : Plot.text([mean], { x: (value) => value, frameAnchor: "top", dy: -12, text: (value) => "mean " + value.toFixed(2), fill: "var(--ink)",
        textAnchor: mean > low + 0.75 * (high - low) ? "end" : mean < low + 0.25 * (high - low) ? "start" : "middle" }),
    ],
  });
}

/* One line a value: its name and number, a dot and its interval. */
function intervals({ name, marks, domain, line, description, width = 360 }) {
  const rows = marks.map((mark, row) => ({ ...mark, row }));
  const above = { y: "row", dy: -11, lineAnchor: "middle", stroke: "var(--card)", strokeWidth: 5 };
  return draw({
    width, height: 30 + 40 * rows.length, marginLeft: 14, marginRight: 14, marginTop: 4, marginBottom: 26, ariaLabel: name, ariaDescription: description,
    x: { domain: d3.nice(...domain, 5), label: null, ticks: 5, grid: true, tickFormat: tickOf },
    y: { type: "band", axis: null, domain: rows.map((mark) => mark.row) },
    marks: [
      line === null ? null : Plot.ruleX([line], { stroke: "var(--soft)" }),
      Plot.text(rows, { ...above, frameAnchor: "left", dx: 4, textAnchor: "start", text: (mark) => shortened(mark.label, Math.floor(width / 7.5)), fill: "var(--soft)" }),
      Plot.text(rows, { ...above, frameAnchor: "right", textAnchor: "end", text: "text", fill: "var(--ink)" }),
      Plot.ruleY(rows.filter((mark) => mark.low !== null), { y: "row", x1: "low", x2: "high", stroke: "var(--bar)", strokeWidth: 3, strokeLinecap: "round", dy: 6 }),
      Plot.dot(rows.filter((mark) => mark.value !== null), { y: "row", x: "value", r: 4.2, fill: "var(--accent)", stroke: "var(--card)", strokeWidth: 1.6, dy: 6 }),
    ],
  });
}

/* What a figure shows, as the rows of a CSV file. */
const ROWS = {
  histogram: ({ title, bins }) => [["metric", "from", "to", "records"], ...bins.map((bin) => [title, ...bin])],
  intervals: ({ marks }) => [Object.keys(marks[0]), ...marks.map(Object.values)],
};
const DRAWN = { histogram, intervals };

/* Draws the figures that the page names, each as wide as its place. */
export async function drawFigures() {
  const figures = JSON.parse(byId("cs-figures").textContent);
  if (!figures.length) return;
  await loadLibrary();
  for (const figure of figures) {
    const place = byId(figure.place);
    const drawn = DRAWN[figure.kind]({ ...figure, width: Math.max(250, Math.min(460, place.clientWidth || 360)) });
    place.append(drawn, takeAway(figure.name, { svg: () => drawn, rows: () => ROWS[figure.kind](figure) }));
  }
}
