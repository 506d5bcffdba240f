  /* The few numbers that are computed here: of the records that are shown now. */
  const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;

  function pearson(x, y) {
    const [mx, my] = [mean(x), mean(y)];
    let [xy, xx, yy] = [0, 0, 0];
    for (let i = 0; i < x.length; i += 1) {
      const [dx, dy] = [x[i] - mx, y[i] - my];
      xy += dx * dy;
      xx += dx * dx;
      yy += dy * dy;
    }
    return xx > 0 && yy > 0 ? xy / Math.sqrt(xx * yy) : null; // undefined where one is constant
  }

  // Ranks from 1; ties share the mean of their ranks.
  function ranks(values) {
    const order = values.map((_, index) => index).sort((a, b) => values[a] - values[b]);
    const found = new Array(values.length);
    for (let start = 0; start < order.length;) {
      let end = start;
      while (end + 1 < order.length && values[order[end + 1]] === values[order[start]]) end += 1;
      for (let at = start; at <= end; at += 1) found[order[at]] = (start + end) / 2 + 1;
      start = end + 1;
    }
    return found;
  }

  const spearman = (x, y) => pearson(ranks(x), ranks(y));

  // Twenty bins in round steps over the values, or over given bounds.
  function binned(values) {
    let [low, high] = [Infinity, -Infinity];
    for (const value of values) {
      low = Math.min(low, value);
      high = Math.max(high, value);
    }
    if (!values.length) return { low: 0, high: 1, counts: [0] };
    const span = high - low || Math.abs(high) || 1;
    const power = 10 ** Math.floor(Math.log10(span / 20));
    const step = [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((size) => span / size <= 20);
    low = Math.floor(low / step + 1e-9) * step;
    const n = Math.max(1, Math.ceil((high - low) / step - 1e-9));
    const counts = new Array(n).fill(0);
    for (const value of values) counts[Math.min(n - 1, Math.floor((value - low) / step + 1e-9))] += 1;
    return { low, high: low + n * step, counts };
  }
