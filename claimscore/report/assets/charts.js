  /* Charts by Observable Plot. Colours are the page's variables: light, dark and print follow. */
  const FONT = { fontFamily: "var(--sans)", fontSize: "11.5px" };
  const tickOf = (value) => Number(value.toPrecision(6)).toLocaleString("en", { maximumSignificantDigits: 6 }).replace("-", "−");

  const TIP = { fill: "var(--card)", stroke: "var(--line)", className: "tip" };
  // At most so many round counts on an axis, none between two whole numbers.
  const wholeTicks = (most) => (most < 3 ? Array.from({ length: most + 1 }, (_, at) => at) : 3);

  function draw(options) {
    const drawn = Plot.plot({ className: "plot", style: FONT, ...options });
    drawn.setAttribute("role", "img"); // one picture with a name; its parts need none
    for (const part of drawn.querySelectorAll("[aria-label], [aria-description]")) {
      part.removeAttribute("aria-label");
      part.removeAttribute("aria-description");
    }
    return drawn;
  }

  function histogram({ name, low, high, counts, mean, half, description, width = 360, height = 176 }) {
    const step = (high - low) / counts.length;
    const bins = counts.map((n, index) => ({ from: low + index * step, to: low + (index + 1) * step, n }));
    return draw({
      width, height, marginLeft: 44, marginRight: 12, marginTop: 18, marginBottom: 26,
      ariaLabel: "Distribution of " + name, ariaDescription: description,
      x: { domain: [low, high], ticks: 5, label: null, tickFormat: tickOf },
      y: { ticks: wholeTicks(Math.max(1, ...counts)), grid: true, label: null, tickFormat: "~s", domain: [0, Math.max(1, ...counts)] },
      marks: [
        mean !== null && half !== null ? Plot.rect([0], { x1: () => Math.max(low, mean - half), x2: () => Math.min(high, mean + half), y1: 0, y2: Math.max(1, ...counts), fill: "var(--ink)", fillOpacity: 0.13 }) : null,
        Plot.rectY(bins, { x1: "from", x2: "to", y: "n", fill: "var(--bar)", inset: 0.6, rx: 1.5,
          title: (bin) => tickOf(bin.from) + " to " + tickOf(bin.to) + ": " + bin.n.toLocaleString("en"), tip: TIP }),
        Plot.ruleY([0], { stroke: "var(--soft)" }),
        mean === null ? null : Plot.ruleX([mean], { stroke: "var(--ink)", strokeWidth: 1.5 }),
        mean === null ? null : Plot.text([mean], { x: (value) => value, frameAnchor: "top", dy: -12, text: (value) => "mean " + value.toFixed(2), fill: "var(--ink)",
          textAnchor: mean > low + 0.75 * (high - low) ? "end" : mean < low + 0.25 * (high - low) ? "start" : "middle" }),
      ],
    });
  }

  /* One line a group: the box of its values, and its mean with the interval. */
  function groupChart({ name, column, groups }) {
    const longest = Math.max(...groups.map((group) => group.level.length));
    return draw({
      width: 430, height: 46 + 28 * groups.length, marginLeft: Math.min(170, 20 + 6.4 * longest), marginRight: 16, marginTop: 8, marginBottom: 30,
      ariaLabel: name + " by " + column, ariaDescription: "A line for each value of " + column + ": the box of the values, and the mean with its interval.",
      x: { label: null, ticks: 5, grid: true, tickFormat: tickOf },
      y: { label: null, domain: groups.map((group) => group.level), tickFormat: (level) => (level.length > 23 ? level.slice(0, 22) + "…" : level), tickSize: 0 },
      marks: [
        Plot.ruleY(groups, { y: "level", x1: "low", x2: "high", stroke: "var(--soft)", strokeOpacity: 0.55 }),
        Plot.barX(groups, { y: "level", x1: "q1", x2: "q3", fill: "var(--bar)", fillOpacity: 0.32, insetTop: 5, insetBottom: 5, rx: 2 }),
        Plot.tickX(groups, { y: "level", x: "median", stroke: "var(--soft)", strokeWidth: 1.5, insetTop: 5, insetBottom: 5 }),
        Plot.ruleY(groups.filter((group) => group.half !== null), { y: "level", x1: (group) => group.mean - group.half, x2: (group) => group.mean + group.half, stroke: "var(--accent)", strokeWidth: 3, strokeLinecap: "round" }),
        Plot.dot(groups, { y: "level", x: "mean", fill: "var(--accent)", stroke: "var(--card)", r: 4.5,
          title: (group) => group.level + "\nmean " + group.mean.toFixed(2) + (group.half === null ? "" : " ± " + group.half.toFixed(2)) + "\n" + group.n.toLocaleString("en") + " records", tip: TIP }),
      ],
    });
  }

  function figure(title, drawing, parts) {
    return el("figure", {}, el("figcaption", {}, title), drawing, ...(parts || []));
  }
