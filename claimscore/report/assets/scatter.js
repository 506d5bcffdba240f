/* Two numbers of the shown records against each other, and the distribution of each. */
import { draw, histogram, tickOf, TIP } from "./charts.js";
import { button, el, fixed, labelled, option, whole } from "./dom.js";
import { takeAway } from "./download.js";
import { loadLibrary } from "./packed.js";
import { addressOf, levelOf, number, page, pearson, spearman, state } from "./selection.js";

const MAX_COLOURS = 9;
const axes = { x: "", y: "" };
const scatterBox = el("div", { class: "plots" });
let pointAt = -1; // the point that the buttons have come to, in the order of x
let afterChoice = null; // everything again, after a choice

const colourOf = (place) => (place < MAX_COLOURS ? "var(--c" + place + ")" : "var(--soft)");

export const numericNames = () => [...page.data.metrics, ...page.data.numbers.keys()];

const figureOf = (title, drawing, parts) => el("figure", {}, el("figcaption", { dir: "auto" }, title), drawing, ...parts);

export function buildScatter(again) {
  afterChoice = again;
  const names = numericNames();
  if (!names.length) return el("p", { class: "note" }, "There is no number to draw.");
  axes.x ||= names[0];
  axes.y ||= names.find((name) => name.startsWith("ratings.") && name !== axes.x) || names[1] || names[0]; // against people, where they are
  const controls = { x: el("select"), y: el("select") };
  for (const [axis, control] of Object.entries(controls)) {
    const other = axis === "x" ? "y" : "x";
    control.append(...names.map((name) => option(name, name)));
    control.value = axes[axis];
    control.addEventListener("change", () => {
      if (control.value === axes[other]) axes[other] = axes[axis]; // nothing against itself
      axes[axis] = control.value;
      controls[other].value = axes[other];
      drawScatter();
    });
  }
  const box = el("details", { class: "charts", open: "" }, el("summary", {}, "Charts"),
    names.length > 1 ? el("div", { class: "controls" }, labelled("Across", controls.x), labelled("Up", controls.y)) : "", scatterBox);
  box.addEventListener("toggle", () => { if (box.open) drawScatter(); });
  return box;
}

function points() {
  const [x, y] = [number(axes.x), number(axes.y)];
  return page.order.filter((index) => x[index] !== null && y[index] !== null)
    .map((index) => ({ index, x: x[index], y: y[index], level: state.group ? levelOf(state.group, index) ?? "–" : null }));
}

// The levels by how many points they have: the first ones have colours of their own.
function coloured(shown) {
  return d3.rollups(shown, (members) => members.length, (point) => point.level)
    .sort((a, b) => b[1] - a[1] || d3.ascending(a[0], b[0])).map(([level]) => level);
}

const about = (point) => page.data.ids[point.index] + "\n" + axes.x + " " + fixed(point.x) + "\n" + axes.y + " " + fixed(point.y) + (point.level === null ? "" : "\n" + state.group + " " + point.level);

function scatterPlot(shown, levels) {
  const place = new Map(levels.map((level, at) => [level, at]));
  const across = scatterBox.clientWidth * (scatterBox.clientWidth > 700 ? 0.6 : 1) - 40;
  const drawn = draw({
    width: Math.max(290, Math.min(640, across || 620)), height: 410, marginLeft: 52, marginBottom: 42, marginTop: 30, marginRight: 14,
    ariaLabel: axes.y + " against " + axes.x, ariaDescription: "A point for each of " + whole(shown.length) + " records.",
    x: { label: axes.x, labelArrow: "none", labelAnchor: "center", labelOffset: 36, grid: true, ticks: 6, nice: true, tickFormat: tickOf },
    y: { label: axes.y, labelArrow: "none", grid: true, ticks: 6, nice: true, tickFormat: tickOf },
    marks: [
      Plot.dot(shown, { x: "x", y: "y", r: shown.length > 1500 ? 2.2 : 3.6, fill: (point) => (state.group ? colourOf(place.get(point.level)) : "var(--accent)"), fillOpacity: shown.length > 400 ? 0.55 : 0.8 }),
      Plot.tip(shown, Plot.pointer({ x: "x", y: "y", title: about, lineWidth: 26, ...TIP })),
    ],
  });
  drawn.classList.add("points");
  drawn.addEventListener("click", () => { if (drawn.value) location.hash = addressOf(drawn.value.index); });
  return drawn;
}

function legendOf(levels) {
  if (!state.group) return null;
  const shown = levels.slice(0, MAX_COLOURS);
  const item = (level, at) => {
    const swatch = el("b", { "aria-hidden": "true" });
    swatch.style.background = colourOf(at);
    return el("li", { dir: "auto" }, swatch, level);
  };
  return el("ul", { class: "legend" }, ...shown.map(item),
    levels.length > shown.length ? item(whole(levels.length - shown.length) + " more", MAX_COLOURS) : null);
}

/* The points one after the other, for the keyboard: what is under the ring is said. */
function stepper(shown, drawn) {
  const sorted = [...shown].sort((a, b) => a.x - b.x || a.y - b.y);
  const said = el("span", { class: "said", "aria-live": "polite", dir: "auto" });
  const open = button("Open", () => { location.hash = addressOf(sorted[pointAt].index); }, { class: "small" });
  open.disabled = true;
  pointAt = -1;
  const go = (step) => {
    pointAt = Math.max(0, Math.min(sorted.length - 1, pointAt + step));
    const point = sorted[pointAt];
    drawn.querySelector(".ring")?.remove();
    d3.select(drawn).append("circle").attr("class", "ring mark-only").attr("r", 8)
      .attr("cx", drawn.scale("x").apply(point.x)).attr("cy", drawn.scale("y").apply(point.y));
    said.textContent = (pointAt + 1) + " of " + sorted.length + ": " + about(point).split("\n").join(", ");
    open.disabled = false;
  };
  const bar = el("div", { class: "stepper", role: "group", "aria-label": "Points, from left to right" },
    button("←", () => go(-1), { class: "small", "aria-label": "Point before" }), button("→", () => go(1), { class: "small", "aria-label": "Next point" }), open, said);
  bar.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (step) { event.preventDefault(); go(step); }
  });
  return bar;
}

function correlations(shown) {
  if (shown.length < 3) return "";
  const [x, y] = [shown.map((point) => point.x), shown.map((point) => point.y)];
  const say = (value) => (value === null ? "undefined" : value.toFixed(3).replace("-", "−"));
  return "Pearson r " + say(pearson(x, y)) + " · Spearman ρ " + say(spearman(x, y)) + " · ";
}

/* A distribution to drag over: what is under the bar is shown. */
function brushed(name) {
  const values = page.order.map((index) => number(name)[index]).filter((value) => value !== null);
  const found = d3.bin().thresholds(20)(values);
  const bins = values.length && found[0].x0 < found.at(-1).x1 ? found.map((bin) => [bin.x0, bin.x1, bin.length]) : [[(values[0] ?? 0) - 0.5, (values[0] ?? 0) + 0.5, values.length]];
  const middle = values.length ? d3.mean(values) : null;
  const title = "Distribution of " + name;
  const drawn = histogram({ name: title, bins, mean: middle, interval: null, height: 150,
    description: whole(values.length) + " values" + (middle === null ? "" : ", mean " + fixed(middle)) });
  const scale = drawn.scale("x");
  const [left, right] = scale.range;
  const brush = d3.brushX().extent([[left, 34], [right, 124]]).on("end", ({ selection, sourceEvent }) => {
    if (!sourceEvent) return;
    if (selection) state.ranges.set(name, selection.map((at) => Number(scale.invert(at).toPrecision(4))));
    else state.ranges.delete(name);
    afterChoice();
  });
  d3.select(drawn).append("g").attr("class", "brush mark-only").call(brush);
  return figureOf(name, drawn, [takeAway(title + ", shown records", { svg: () => drawn, rows: () => [["from", "to", "records"], ...bins] })]);
}

export async function drawScatter() {
  const box = scatterBox.closest("details");
  if (!box || !box.open) return;
  await loadLibrary();
  const shown = points();
  if (!shown.length) {
    scatterBox.replaceChildren(el("p", { class: "note" }, "None of these records has both numbers."));
    return;
  }
  const distributions = [el("p", { class: "hint" }, "Drag over a distribution to keep a range; press beside it to let it go."), ...[...new Set([axes.x, axes.y])].map(brushed)];
  if (axes.x === axes.y) {
    scatterBox.replaceChildren(el("div", { class: "sides-by" }, ...distributions));
    return;
  }
  const levels = coloured(shown);
  const drawn = scatterPlot(shown, levels);
  const title = axes.y + " against " + axes.x;
  scatterBox.replaceChildren(
    figureOf(title, drawn, [legendOf(levels), el("p", { class: "hint" }, correlations(shown) + whole(shown.length) + " records. Press a point to open its record."),
      stepper(shown, drawn), takeAway(title, { svg: () => drawn,
        rows: () => [["id", axes.x, axes.y, ...(state.group ? [state.group] : [])], ...shown.map((point) => [page.data.ids[point.index], point.x, point.y, ...(state.group ? [point.level] : [])])] })].filter(Boolean)),
    el("div", { class: "sides-by" }, ...distributions));
}
