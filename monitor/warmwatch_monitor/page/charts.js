// The charts: one time axis, drawn by uPlot. What they show stands in the tables too.

import { compiling, drawLanes, laneHeight, mark, shade, slower } from "./lanes.js";
import { as, colour, items, text } from "./show.js";

const PALETTE = ["dynamo", "inductor", "aot_autograd", "autotune", "kernel_compile", "cudagraph", "cache_load", "other"];
const KEYS = PALETTE.length; // more series than that are one crowd, without a key for each
const SIDE = 58;
const NAMED = 0.25; // of the width, what names of runs beside the lanes take at most
const LETTER = 6.5; // pixels, of the charts' font
const BELOW = 26;
const SHORTEST = 60; // seconds that the time axis shows at least

export class Charts {
  // chosen(at): somebody pointed to a moment
  constructor(root, chosen) {
    this.root = root;
    this.chosen = chosen;
    this.plots = new Map();
    this.place = { run: null, rank: null, at: null };
    new ResizeObserver(() => this.#resize()).observe(root);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.#forget());
  }

  // status: the newest whole answer, null before the first
  draw(past, place, status) {
    this.past = past;
    this.status = status;
    this.place = place;
    const of = [...past.ranks.values()];
    this.ranks = of.filter((one) => place.run === null || one.run === place.run);
    this.lanes = [...this.ranks].sort((a, b) => (a.run < b.run ? -1 : a.run > b.run ? 1 : a.rank - b.rank));
    const runs = (status?.runs ?? []).filter((one) => place.run === null || one.run === place.run);
    this.reported = runs.flatMap((one) => one.ranks);
    this.several = new Set(this.lanes.map((one) => one.run)).size > 1;
    this.side = this.#side();
    const gpus = [...past.gpus.values()].sort((a, b) => a.index - b.index);
    const newest = past.at[past.at.length - 1] ?? Date.now() / 1000;
    const oldest = past.at[0] ?? newest;
    this.window = [Math.max(newest - past.range, Math.min(oldest, newest - SHORTEST)), newest];
    this.#lanes();
    const steps = this.lanes.map((one) => [this.several ? `${one.run} rank ${one.rank}` : `rank ${one.rank}`, stepped(one)]);
    this.#lines("steps", "key-rank", steps, { log: true, show: as.seconds });
    this.#lines("power", "key-gpu", gpus.map((one) => [one.index, one.power_watts]), { show: as.watts });
    const active = gpus.map((one) => [one.index, one.utilization_ratio.map((v) => (v === null ? null : v * 100))]);
    this.#lines("activity", "key-gpu", active, { top: 100, show: (v) => as.percent(v / 100) });
  }

  // how wide the charts begin: a rank's number alone says nothing beside those of other runs
  #side() {
    if (!this.several) return SIDE;
    const longest = Math.max(...this.lanes.map((one) => `${one.run} ${one.rank}`.length));
    return Math.round(Math.max(SIDE, Math.min(longest * LETTER + 14, this.#width() * NAMED)));
  }

  #beside({ run, rank }) {
    if (!this.several) return rank;
    const room = Math.max(4, Math.floor((this.side - 14) / LETTER) - ` ${rank}`.length);
    return `${run.length > room ? `${run.slice(0, room - 1)}…` : run} ${rank}`;
  }

  #colour(name) {
    this.colours ??= getComputedStyle(document.documentElement);
    return this.colours.getPropertyValue(`--${name}`).trim();
  }

  #forget() {
    this.colours = null;
    for (const one of this.plots.values()) one.plot.destroy();
    this.plots.clear();
    if (this.past) this.draw(this.past, this.place, this.status);
  }

  #lanes() {
    const figure = this.root.querySelector("[data-chart=lanes]");
    figure.hidden = this.lanes.length === 0;
    if (figure.hidden) return;
    const count = this.lanes.length;
    const every = Math.ceil(count / 16);
    const shown = (at) => Number.isInteger(at) && at % every === 0 && this.lanes[at];
    const label = (at) => (shown(at - 0.5) ? this.#beside(this.lanes[at - 0.5]) : null);
    const plot = this.#plot("lanes", `${count}`, () => ({
      height: count * laneHeight(count) + BELOW + 16,
      scales: { x: { time: true }, y: { range: () => [0, count], dir: -1 } },
      series: [{}, { label: "", points: { show: false }, paths: () => null }],
      axes: [this.#times(), {
        ...this.#axis(), size: this.side, grid: { show: false },
        splits: () => this.lanes.map((_, at) => at + 0.5),
        values: (_, splits) => splits.map((at) => label(at) ?? ""),
      }],
      hooks: { draw: [(u) => {
        drawLanes(u, this.lanes, (name) => this.#colour(name), this.place.rank);
        mark(u, this.place.at, this.#colour("text"));
      }] },
    }));
    this.#set(plot, [this.past.at, this.past.at.map(() => null)]);
    this.#names("states");
    this.#names("phases");
  }

  // the states or phases that the lanes show, each with its colour
  #names(kind) {
    const list = document.getElementById(kind);
    const names = [...new Set(this.lanes.flatMap((one) => one[kind].map(([, name]) => name)))].filter(Boolean).sort();
    items(list, names, "key");
    names.forEach((name, at) => colour(list.children[at].querySelector(".dot"), "--dot", name));
  }

  #lines(name, key, series, { log = false, top = null, show }) {
    const figure = this.root.querySelector(`[data-chart=${name}]`);
    const known = series.filter(([, column]) => column.some((value) => (value ?? null) !== null));
    figure.hidden = known.length === 0;
    if (figure.hidden) return;
    const crowd = known.length > KEYS;
    const plot = this.#plot(name, known.map(([label]) => label).join(" "), () => ({
      height: 150,
      scales: { x: { time: true }, y: log ? { distr: 3 } : { range: (_, low, high) => [0, top ?? Math.max(1, high * 1.1)] } },
      series: [{}, ...known.map(([label], at) => ({
        label: String(label), points: { size: 4 },
        width: crowd ? 1 : 1.5, alpha: crowd ? 0.45 : 1,
        stroke: this.#colour(crowd ? "dynamo" : PALETTE[at % KEYS]),
      }))],
      axes: [this.#times(), { ...this.#axis(), size: this.side }],
      hooks: {
        drawClear: [(u) => {
          shade(u, compiling(this.ranks, u.scales.x.max), this.#colour("compiling"));
          if (name === "steps") shade(u, slower(this.reported, u.scales.x.max), this.#colour("stalled"));
        }],
        draw: [(u) => mark(u, this.place.at, this.#colour("text"))],
      },
    }));
    this.#set(plot, [this.past.at, ...known.map(([, column]) => column)]);
    this.#keys(figure.querySelector(".keys"), key, crowd ? [] : known, show);
  }

  // a key for each line, with its value at the moment that is looked at, or now
  #keys(list, template, known, show) {
    const at = nearest(this.past.at, this.place.at);
    items(list, known.map(([label]) => label), template);
    known.forEach(([, column], index) => {
      const item = list.children[index];
      colour(item.querySelector(".dot"), "--dot", PALETTE[index % KEYS]);
      const value = standing(column, at);
      text(item.querySelector("b"), value === null ? "" : show(value));
    });
  }

  #times() {
    return { ...this.#axis(), size: BELOW, space: 80, values: (_, splits) => splits.map(as.moment) };
  }

  #axis() {
    return { stroke: this.#colour("quiet"), grid: { stroke: this.#colour("line"), width: 1 }, ticks: { show: false } };
  }

  // the plot of a figure, made anew where `shape` is another
  #plot(name, shape, options) {
    const before = this.plots.get(name);
    if (before?.shape === shape && before.side === this.side) return before.plot;
    before?.plot.destroy();
    const place = this.root.querySelector(`[data-chart=${name}] .plot`);
    const plot = new uPlot({
      width: this.#width(), legend: { show: false }, cursor: { sync: { key: "time" }, y: false, drag: { x: false, y: false }, points: { show: false } },
      ...options(),
    }, null, place);
    plot.over.addEventListener("click", (event) => {
      const at = plot.posToVal(event.clientX - plot.over.getBoundingClientRect().left, "x");
      if (Number.isFinite(at)) this.chosen(Math.round(at));
    });
    plot.root.setAttribute("aria-hidden", "true");
    this.plots.set(name, { shape, side: this.side, plot });
    return plot;
  }

  #set(plot, data) {
    plot.batch(() => {
      plot.setData(data, false);
      plot.setScale("x", { min: this.window[0], max: this.window[1] });
    });
  }

  #width() {
    return Math.max(240, Math.floor(this.root.getBoundingClientRect().width));
  }

  #resize() {
    const width = this.#width();
    for (const { plot } of this.plots.values()) {
      if (plot.width !== width) plot.setSize({ width, height: plot.height });
    }
  }
}

// a step's length where there was one. Until the next nothing is known (undefined), and the line goes
// on; where a rank is gone or has begun anew, null ends it
export function stepped({ steps, step_seconds: lengths }) {
  const line = [];
  steps.forEach((count, at) => {
    const before = steps[at - 1] ?? null;
    const length = count > 0 && count !== before ? lengths[at] || undefined : undefined;
    const anew = before !== null && (count === null || count < before);
    if (anew && length !== undefined) line[at - 1] ??= null;
    line.push(anew ? length ?? null : length);
  });
  return line;
}

// the place of the last value at or before a moment; without one, the newest
export function nearest(times, at) {
  if (at === null) return times.length - 1;
  let found = 0;
  while (found + 1 < times.length && times[found + 1] <= at) found += 1;
  return found;
}

// what a line stands at: its last value, where nothing new is known (undefined) since; null: nothing is
export function standing(column, at) {
  let from = at;
  while (from > 0 && column[from] === undefined) from -= 1;
  return column[from] ?? null;
}
