/* Charts by Observable Plot. Colours are the page's variables: light, dark and print follow. */
import { byId } from "./dom.js";
import { takeAway } from "./download.js";
import { loadLibrary } from "./packed.js";

export const tickOf = (value) => Number(value.toPrecision(6)).toLocaleString("en", { maximumSignificantDigits: 6 }).replace("-", "−");
export const TIP = { fill: "var(--card)", stroke: "var(--line)", className: "tip" };
const shortened = (text, most) => (text.length > most ? text.slice(0, most - 1) + "…" : text);
const signed = (value, digits) => value.toFixed(digits).replace("-", "−");

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

/* One line a group: the box of its values, and its mean with the interval. */
function boxes({ name, groups, description, within, width = 360 }) {
  const longest = Math.min(23, Math.max(...groups.map((group) => group.level.length)));
  const at = { y: "level" };
  const inside = (value) => (within ? Math.max(within[0], Math.min(within[1], value)) : value);
  const said = (group) => group.level + "\nmean " + signed(group.mean, 2) + (group.half_width === null ? "" : " ± " + group.half_width.toFixed(2)) + "\n" + group.n.toLocaleString("en") + " records";
  return draw({
    width, height: 46 + 32 * groups.length, marginLeft: 14 + 6.6 * longest, marginRight: 16, marginTop: 8, marginBottom: 30, ariaLabel: name, ariaDescription: description,
    x: { label: null, ticks: 5, grid: true, nice: true, tickFormat: tickOf },
    y: { label: null, domain: groups.map((group) => group.level), tickFormat: (level) => shortened(level, 23), tickSize: 0 },
    marks: [
      Plot.ruleY(groups, { ...at, x1: "low", x2: "high", stroke: "var(--soft)", strokeOpacity: 0.55 }),
      Plot.barX(groups, { ...at, x1: "q1", x2: "q3", fill: "var(--bar)", fillOpacity: 0.32, insetTop: 5, insetBottom: 5, rx: 2 }),
      Plot.tickX(groups, { ...at, x: "median", stroke: "var(--soft)", strokeWidth: 1.5, insetTop: 5, insetBottom: 5 }),
      Plot.ruleY(groups.filter((group) => group.half_width !== null),
        { ...at, x1: (group) => inside(group.mean - group.half_width), x2: (group) => inside(group.mean + group.half_width), strokeLinecap: "round", stroke: "var(--accent)", strokeWidth: 3 }),
      Plot.dot(groups, { ...at, x: "mean", fill: "var(--accent)", stroke: "var(--card)", r: 4.5, title: said, tip: TIP }),
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
      Plot.ruleX([line], { stroke: "var(--soft)" }),
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
  boxes: ({ groups }) => [Object.keys(groups[0]), ...groups.map((group) => Object.values(group).map((value) => (Array.isArray(value) ? value.join(" ") : value)))],
  intervals: ({ marks }) => [Object.keys(marks[0]), ...marks.map(Object.values)],
};
const DRAWN = { histogram, boxes, intervals };

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
