  /* The overview's figures; its tables are in the page already. */
  async function drawOverview() {
    await loadLibrary();
    for (const metric of overviewData.metrics) {
      const place = byId(metric.place);
      if (!metric.histogram) continue;
      const { low, high, counts } = metric.histogram;
      const drawn = histogram({ ...metric, low, high, counts });
      const step = (high - low) / counts.length;
      place.append(drawn, takeAway("Distribution of " + metric.name, {
        svg: () => drawn,
        rows: () => [["metric", "from", "to", "records"], ...counts.map((n, bin) => [metric.name, low + bin * step, low + (bin + 1) * step, n])],
      }));
    }
    for (const chart of overviewData.groups) {
      if (!chart.groups.length) continue;
      const drawn = groupChart(chart);
      byId(chart.place).append(figure(chart.name, drawn, [takeAway(chart.name + " by " + chart.column, { svg: () => drawn })]));
    }
  }
