// Charts of the verdicts of runs over time. The figures beside a chart have the same numbers.
"use strict";

(() => {
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const resolved = (name) => { // resolves light-dark() to a colour for the canvas
    const probe = document.createElement("i");
    probe.style.color = colour(name);
    document.body.append(probe);
    const resolvedColour = getComputedStyle(probe).color;
    probe.remove();
    return resolvedColour;
  };
  const drawn = new WeakMap();
  const address = (element) => // the chart above a list uses the filters of the list
    element.dataset.trend || `/trend${document.querySelector("#results").getAttribute("hx-get").slice(1)}`;

  const sum = (counts) => counts.reduce((all, count) => all + count, 0);

  const stacked = ({ time, passed, failed, not_evaluated: unknown }) => [
    time,
    passed.map((count, at) => count + failed[at] + unknown[at]),
    passed.map((count, at) => count + failed[at]),
    passed,
  ];

  const options = (element, columns) => {
    const bars = uPlot.paths.bars({ size: [0.85, 40], align: 1, gap: 1 });
    const grid = { stroke: resolved("--line"), width: 1 };
    const axis = { stroke: resolved("--quiet"), grid, ticks: grid, font: "11px system-ui, sans-serif" };
    const counts = [columns.not_evaluated, columns.failed, columns.passed];
    const series = (label, name, row) => ({
      label, fill: resolved(name), stroke: resolved(name), width: 0, paths: bars, points: { show: false },
      value: (chart, value, index, position) => (position == null ? sum(counts[row]) : counts[row][position]), // no position: the total
    });
    return {
      width: element.clientWidth - 14, height: 100, padding: [6, 6, 0, 0], legend: { live: true }, cursor: { y: false },
      scales: { x: { range: (chart, low, high) => [low, high + (columns.time[1] - columns.time[0])] }, y: { range: (chart, low, high) => [0, Math.max(1, high)] } },
      axes: [{ ...axis, size: 24 }, { ...axis, size: 50, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5] }],
      series: [{ label: "time", value: (chart, value) => (value == null ? "all" : new Date(value * 1000).toLocaleString()) }, series("not evaluated", "--bar-none", 0), series("failed", "--bar-bad", 1), series("passed", "--bar-good", 2)],
    };
  };

  const requestedAddress = new WeakMap();
  const draw = async (element) => {
    const source = address(element);
    requestedAddress.set(element, source);
    let columns;
    try {
      const answer = await fetch(source, { headers: { Accept: "application/json" } });
      if (!answer.ok) return;
      columns = await answer.json();
    } catch { return; } // without data there is no chart; the figures are shown anyway
    if (!element.isConnected || requestedAddress.get(element) !== source) return; // the filters changed meanwhile
    drawn.get(element)?.chart.destroy();
    element.replaceChildren();
    element.hidden = columns.time.length < 2;
    if (element.hidden) return;
    element.setAttribute("role", "img");
    element.setAttribute("aria-label", `${element.dataset.title || "Runs over time"}: ${sum(columns.passed)} passed, ${sum(columns.failed)} failed, ${sum(columns.not_evaluated)} not evaluated`);
    const chart = new uPlot(options(element, columns), stacked(columns), element);
    drawn.set(element, { chart, columns });
  };
  const all = () => document.querySelectorAll("[data-trend]");
  const drawAll = () => { for (const element of all()) draw(element); };
  const again = () => {
    for (const element of all()) {
      const known = drawn.get(element);
      if (!known) continue;
      known.chart.destroy();
      drawn.set(element, { ...known, chart: new uPlot(options(element, known.columns), stacked(known.columns), element) });
    }
  };
  let resting = null;
  window.addEventListener("resize", () => { clearTimeout(resting); resting = setTimeout(again, 150); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);
  document.addEventListener("goldspan:shown", () => {
    clearTimeout(resting);
    resting = setTimeout(drawAll, 300);
  });
  drawAll();
})();
