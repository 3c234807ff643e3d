// The charts: one time axis, drawn by uPlot. The tables have the same values as text.

import { ENDED } from "./headline.js";
import { hover, nearest, rankAt, standing, valuesAt } from "./hover.js";
import { chosenLanes, compiling, drawLanes, laneHeight, mark, middle, shade, slower } from "./lanes.js";
import { beginOf, earliest, shifted } from "./past.js";
import { SHORTEST, linear, logarithmic, moments, roundUp, stepped } from "./scales.js";
import { as, colour, items, text } from "./show.js";
import { speed } from "./tables.js";

const PALETTE = [..."abcdefgh"].map((letter) => `line_${letter}`); // of no state
const KEYS = PALETTE.length; // more series than that get no legend entries
const SIDE = 62;
const NAMED = 0.25; // of the width: the maximum for run names beside the lanes
const LETTER = 6.5; // pixels, width of a character in the charts' font
const BELOW = 26;
const AFTER = 5; // seconds of it after the end of all runs
const DRAG = 5; // pixels: less is a click
const WIDE = 20; // times the median: a wider range makes an axis logarithmic
// order of legend entries: phases and states as a run passes through them
const ORDER = [
  "dynamo", "aot_autograd", "inductor", "kernel_compile", "autotune", "cudagraph", "cache_load", "other",
  "outside",
  "starting", "compiling", "recompiling", "warming", "warm", "eager", "stalled", "finished", "failed", "lost",
];
const MARKS = [["▼", "recompile"], ["E", "evaluation"], ["S", "saving"], ["▁", "slower"]];

// whether it ended before the visible window: such a rank needs no lane
function hasEnded({ states }) {
  return states.every(([, name]) => name === null || ENDED.has(name));
}

// rank and run of a line's key, or the index of a GPU and ""
function named(key) {
  const [number, name] = /^(\d+) (.*)$/s.exec(key)?.slice(1) ?? [0, key];
  return [Number(number), name];
}

function hashed(name) {
  let hash = 0;
  for (const letter of name) hash = (hash * 31 + letter.codePointAt(0)) % 65521;
  return hash;
}

// when it ended, or the newest sample if it has not
function endOf({ states, by = 0 }, newest) {
  const last = states.findLast(([, name]) => name !== null);
  return ENDED.has(last?.[1]) ? last[0] : newest + by;
}

export class Charts {
  // moved(change): the user selected a moment or a zoom window
  constructor(root, moved) {
    this.root = root;
    this.moved = moved;
    this.plots = new Map();
    this.colourOf = { "key-rank": new Map(), "key-gpu": new Map() }; // color of each line drawn so far
    this.place = { run: null, rank: null, with: null, at: null, from: null, to: null };
    new ResizeObserver(() => this.#resize()).observe(root);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.#forget());
  }

  // status: the newest whole answer, null before the first; newest: the newest sample
  draw(past, place, status, newest = null) {
    this.past = past;
    this.status = status;
    this.sample = newest;
    this.sampled = new Map((newest?.ranks ?? []).map((rank) => [`${rank.rank} ${rank.run}`, rank]));
    this.reported = new Map((status?.runs ?? []).flatMap((run) => run.ranks.map((rank) => [`${rank.rank} ${run.run}`, rank])));
    this.place = place;
    const until = past.at[past.at.length - 1] ?? Date.now() / 1000;
    this.begin = place.with === null ? null : beginOf(status, place.run);
    const { lanes, cut } = chosenLanes(this.#ranks(until));
    this.lanes = lanes;
    text(document.getElementById("lanes-cut"), this.begin === null ? cut : "(both runs begin at 0)");
    this.several = new Set(lanes.map((one) => one.run)).size > 1;
    for (const words of this.root.querySelectorAll(".one")) words.hidden = this.several;
    this.side = this.#side();
    const gpus = this.begin !== null ? [] : [...past.gpus.values()].sort((a, b) => a.index - b.index);
    this.window = place.from !== null ? [place.from, place.to]
      : this.begin !== null ? [this.begin, Math.max(this.begin + SHORTEST, ...lanes.map((one) => endOf(one, until)))]
        : this.#period(until);
    this.#lanes();
    const name = (one) => (this.several ? `${one.run} rank ${one.rank}` : `rank ${one.rank}`);
    this.#lines("steps", "key-rank", this.#steps().map(([one, column]) => [name(one), column, `${one.rank} ${one.run}`]), { show: as.length, scaled: true });
    // by its place, not its index: the MIG devices of a board share one
    this.#lines("power", "key-gpu", gpus.map((one, nth) => [one.index, one.power_watts, `${nth} `]), { show: as.watts });
    const active = gpus.map((one, nth) => [one.index, one.utilization_ratio.map((v) => (v === null ? null : v * 100)), `${nth} `]);
    this.#lines("activity", "key-gpu", active, { top: 100, show: (v) => as.percent(v / 100) });
  }

  // From the first start to the last end of the ranks, within the chosen range.
  #period(newest) {
    const oldest = newest - this.past.range;
    const over = this.lanes.some((one) => !hasEnded(one)) && this.lanes.every(({ states }) => ENDED.has(states.at(-1)[1]));
    const end = over ? Math.min(newest, Math.max(oldest + SHORTEST, ...this.lanes.map((one) => endOf(one, newest) + AFTER))) : newest;
    return [Math.max(oldest, Math.min(end - SHORTEST, earliest(this.lanes))), end];
  }

  // The selected ranks. Overlaid runs start at the same point of the axis.
  #ranks(newest) {
    const { run, with: over } = this.place;
    const ranks = [...this.past.ranks.values()];
    if (run === null) return ranks.filter((one) => !hasEnded(one));
    const own = ranks.filter((one) => one.run === run);
    const begin = this.begin === null ? null : beginOf(this.status, over);
    if (begin === null) return own;
    const others = ranks.filter((one) => one.run === over);
    return [...own.map((one) => shifted(one, 0, newest)), ...others.map((one) => shifted(one, this.begin - begin, newest))];
  }

  // the ranks with their step-time series, and the timestamps of all these series
  #steps() {
    const groups = Map.groupBy(this.lanes, (one) => one.by ?? 0);
    const lines = [], tables = [];
    for (const [by, ranks] of groups) {
      const at = by ? this.past.at.map((one) => one + by) : this.past.at;
      const columns = ranks.map((one) => stepped(one, at));
      ranks.forEach((one, place) => lines.push([one, columns[place]]));
      tables.push([at, ...columns]);
    }
    this.stepsAt = this.past.at;
    if (tables.length < 2) return lines;
    const [at, ...columns] = uPlot.join(tables);
    this.stepsAt = at;
    return lines.map(([one], place) => [one, columns[place]]);
  }

  #when(at) {
    return this.begin === null ? as.moment(at) : at < this.begin + 0.001 ? "0" : as.duration(at - this.begin);
  }

  // The run that started first has the palette's first colours. Every other line has the colour of its
  // name, or the next free one if a run that started earlier has it. So it is the same in each window,
  // and other lines that appear or disappear do not change it.
  #colours(kind, keys) {
    const known = this.colourOf[kind];
    const began = (key) => this.reported.get(key)?.attached_at ?? Infinity;
    const all = kind === "key-gpu" ? keys : [...new Set([...this.reported.keys(), ...keys])];
    const those = (all.length > KEYS ? [...keys] : all).sort((a, b) => began(a) - began(b) || (a < b ? -1 : 1));
    const oldest = known.size ? null : those[0] && named(those[0])[1];
    for (const key of those) {
      if (known.has(key)) continue;
      if (known.size >= KEYS) for (const old of known.keys()) if (!those.includes(old)) known.delete(old);
      const used = new Set(known.values());
      const [number, name] = named(key);
      const first = (number + (name === oldest ? 0 : hashed(name))) % PALETTE.length;
      known.set(key, [...PALETTE.slice(first), ...PALETTE.slice(0, first)].find((name) => !used.has(name)));
    }
    return keys.map((key) => known.get(key));
  }

  // left margin of the charts: with several runs a label needs the run's name and the rank
  #side() {
    if (!this.several) return SIDE;
    const longest = Math.max(...this.lanes.map((one) => `${one.run} ${one.rank}`.length));
    return Math.round(Math.max(SIDE, Math.min(longest * LETTER + 14, this.#width() * NAMED)));
  }

  #beside({ run, rank }) {
    if (!this.several) return `rank ${rank}`;
    const room = Math.max(4, Math.floor((this.side - 14) / LETTER) - ` ${rank}`.length);
    const letters = [...run]; // an emoji is two characters of a string
    return `${letters.length > room ? this.#cut(letters, room) : run} ${rank}`;
  }

  // the part in which the long names differ; both ends of a name that is alone
  #cut(letters, room) {
    const names = this.lanes.map((one) => [...one.run]).filter((name) => name.length > room);
    const differs = letters.findIndex((letter, at) => names.some((name) => name[at] !== letter));
    const end = Math.floor(room / 2);
    const part = (from, until) => letters.slice(from, until).join("");
    if (differs < room - 1 - end) return `${part(0, room - 1 - end)}…${part(-end)}`;
    const from = Math.min(differs, letters.length - room + 1);
    return `…${part(from, from + room - 1)}`;
  }

  #colour(name) {
    this.colours ??= getComputedStyle(document.documentElement);
    return this.colours.getPropertyValue(`--${name}`).trim();
  }

  #forget() {
    this.colours = null;
    for (const one of this.plots.values()) one.plot.destroy();
    this.plots.clear();
    if (this.past) this.draw(this.past, this.place, this.status, this.sample);
  }

  #lanes() {
    const figure = this.root.querySelector("[data-chart=lanes]");
    figure.hidden = this.lanes.length === 0;
    if (figure.hidden) return;
    const count = this.lanes.length;
    const every = Math.ceil(count / 16);
    const label = (at) => (at % every === 0 && this.lanes[at] ? this.#beside(this.lanes[at]) : "");
    const plot = this.#plot("lanes", `${count}`, () => ({
      height: count * laneHeight(count) + BELOW + 16,
      scales: { x: { time: true }, y: { range: () => [0, count], dir: -1 } },
      series: [{}, { label: "", points: { show: false }, paths: () => null }],
      axes: [this.#times(), {
        ...this.#axis(), size: this.side, grid: { show: false },
        splits: () => this.lanes.map((_, at) => at + middle(count)),
        values: (_, splits) => splits.map((at) => label(Math.floor(at))),
      }],
      hooks: {
        draw: [(u) => {
          drawLanes(u, this.lanes, this.past.at, (name) => this.#colour(name), this.place.rank, (one) => this.#slower(one));
          mark(u, this.place.at, this.#colour("text"));
        }],
        setCursor: [hover((at, u) => rankAt(at, this.#when(at), u, this.lanes, (one) => this.#slower(one)))],
      },
    }));
    this.#set(plot, [this.past.at, this.past.at.map(() => null)]);
    this.#names("states");
    this.#names("phases");
    this.#marks();
  }

  // the visible states or phases with their colors
  #names(kind) {
    const list = document.getElementById(kind);
    const names = [...new Set(this.lanes.flatMap((one) => one[kind].map(([, name]) => name)))].filter(Boolean).sort((a, b) => ORDER.indexOf(a) - ORDER.indexOf(b));
    items(list, names, "key");
    names.forEach((name, at) => colour(list.children[at].querySelector(".dot"), "--dot", name));
  }

  // intervals of the window in which a rank was slower than before
  #slower({ run, rank, by = 0 }) {
    const reported = this.reported.get(`${rank} ${run}`);
    return reported ? slower([reported], this.window[0] - by, this.window[1]).map((period) => period.map((at) => at + by)) : [];
  }

  // legend of the markers that the lanes show
  #marks() {
    const there = new Set(this.lanes.flatMap((one) => [
      ...(one.recompiles.length ? ["recompile"] : []), ...one.pauses.map(([, name]) => name), ...(this.#slower(one).length ? ["slower"] : []),
    ]));
    const list = document.getElementById("marks");
    const shown = MARKS.filter(([, name]) => there.has(name));
    items(list, shown.map(([sign]) => sign), "mark");
    shown.forEach(([, name], at) => {
      text(list.children[at].querySelector("b"), name);
      colour(list.children[at].querySelector("span"), "color", name === "slower" ? "bad" : "text");
    });
  }

  #lines(name, key, series, { top = null, scaled = false, show }) {
    const figure = this.root.querySelector(`[data-chart=${name}]`);
    const known = series.filter(([, column]) => column.some((value) => (value ?? null) !== null));
    figure.hidden = known.length === 0;
    if (name === "steps") document.getElementById("no-steps").hidden = !figure.hidden || !this.lanes.some((one) => one.phases.length && !hasEnded(one));
    if (figure.hidden) return;
    const crowd = known.length > KEYS;
    const at = scaled ? this.stepsAt : this.past.at;
    const colours = crowd ? [] : this.#colours(key, known.map((one) => one[2]));
    const [low, middle, high] = this.#spread(known, at);
    const log = scaled && low > 0 && high > WIDE * middle;
    const log_ = figure.querySelector(".log");
    if (log_) log_.hidden = !log;
    const ticks = log ? logarithmic(low, high) : linear(top ?? roundUp(high));
    const plot = this.#plot(name, `${log} ${colours} ${known.map(([label]) => label).join(" ")}`, () => ({
      height: 150,
      scales: { x: { time: true }, y: { distr: log ? 3 : 1, range: () => { const all = this.ticks.get(name); return [all[0], all[all.length - 1]]; } } },
      series: [{}, ...known.map(([label], place) => ({
        label: String(label), points: { size: 4 },
        width: crowd ? 1 : 1.5, alpha: crowd ? 0.45 : 1,
        stroke: this.#colour(colours[place] ?? PALETTE[0]),
      }))],
      axes: [this.#times(), {
        ...this.#axis(), size: this.side, splits: () => this.ticks.get(name), filter: (_, splits) => splits,
        values: (_, splits) => splits.map((value) => (value === 0 ? "0" : show(value))),
      }],
      hooks: {
        drawClear: [(u) => {
          if (this.several) return; // one run's compilation does not affect another's steps
          shade(u, compiling(this.lanes, u.scales.x.max), this.#colour("compiling"));
          if (scaled) shade(u, this.lanes.flatMap((one) => this.#slower(one)), this.#colour("stalled"));
        }],
        draw: [(u) => mark(u, this.place.at, this.#colour("text"))],
        setCursor: [hover((at) => [this.#when(at), ...valuesAt(at, ...this.known.get(name), show)])],
      },
    }));
    (this.ticks ??= new Map()).set(name, ticks);
    const prefix = key === "key-gpu" ? "GPU " : "";
    (this.known ??= new Map()).set(name, [at, known.map(([label, column]) => [`${prefix}${label}`, column])]);
    this.#set(plot, [at, ...known.map(([, column]) => column)]);
    this.#keys(figure.querySelector(".keys"), key, crowd ? [] : known, colours, at, show);
  }

  // minimum, median and maximum in the window, or of all values if it has none
  #spread(known, at) {
    const within = (_, place) => at[place] >= this.window[0] && at[place] <= this.window[1];
    const of = (columns) => columns.flat().filter((value) => (value ?? null) !== null).sort((a, b) => a - b);
    const inside = of(known.map(([, column]) => column.filter(within)));
    const values = inside.length ? inside : of(known.map(([, column]) => column));
    return [values[0], values[Math.floor(values.length / 2)], values[values.length - 1]];
  }

  // a legend entry for each line, with its value at the selected moment; without one, a rank has the
  // speed of the headline and the table: the line shows each second
  #keys(list, template, known, colours, times, show) {
    const at = nearest(times, this.place.at);
    items(list, known.map(([label]) => label), template);
    known.forEach(([, column, who], index) => {
      const item = list.children[index];
      colour(item.querySelector(".dot"), "--dot", colours[index]);
      const rank = this.place.at === null ? this.reported.get(who) : null;
      const whole = ENDED.has(rank?.state); // its line ends at its last step
      const value = !rank ? standing(column, at) : (whole ? null : this.sampled.get(who)?.a_step_seconds) ?? speed(rank);
      text(item.querySelector("b"), value === null ? "" : `${show(value)}${whole ? " (whole run)" : ""}`);
    });
  }

  #times() {
    return {
      ...this.#axis(), size: BELOW, space: 1, filter: (_, splits) => splits,
      splits: (u, at, from, until) => {
        const begin = this.begin ?? 0; // in an overlay, round times since the start
        return moments(from - begin, until - begin, u.width - this.side).map((at) => at + begin);
      },
      values: (_, splits) => this.#labels(splits),
    };
  }

  // whole minutes without seconds
  #labels(splits) {
    const seconds = (at) => Math.round(at - (this.begin ?? 0));
    const minutes = splits.every((at) => seconds(at) % 60 === 0);
    if (this.begin === null) return splits.map(minutes ? as.minute : as.moment);
    return splits.map((at) => (minutes || !seconds(at) ? this.#when(at) : `${seconds(at)} s`));
  }

  #axis() {
    return { stroke: this.#colour("quiet"), grid: { stroke: this.#colour("line"), width: 1 }, ticks: { show: false } };
  }

  // the plot of a figure; recreated if `shape` changes
  #plot(name, shape, options) {
    const before = this.plots.get(name);
    if (before?.shape === shape && before.side === this.side) return before.plot;
    before?.plot.destroy();
    const place = this.root.querySelector(`[data-chart=${name}] .plot`);
    const made = options();
    (made.hooks.setSelect ??= []).push((u) => this.#zoom(u));
    const plot = new uPlot({
      width: this.#width(), legend: { show: false },
      cursor: { sync: { key: "time" }, y: false, drag: { x: true, y: false, setScale: false, dist: DRAG }, points: { show: false } },
      ...made,
    }, null, place);
    let pressed = 0;
    plot.over.addEventListener("mousedown", (event) => { pressed = event.clientX; });
    plot.over.addEventListener("click", (event) => {
      if (Math.abs(event.clientX - pressed) > DRAG) return; // the end of a drag
      const at = plot.posToVal(event.clientX - plot.over.getBoundingClientRect().left, "x");
      if (Number.isFinite(at)) this.moved({ at: Math.round(at) });
    });
    plot.over.addEventListener("dblclick", () => this.moved({ from: null, to: null, at: null }));
    plot.root.setAttribute("aria-hidden", "true");
    this.plots.set(name, { shape, side: this.side, plot });
    return plot;
  }

  // the dragged range becomes the window of all charts
  #zoom(u) {
    const { left, width } = u.select;
    u.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
    if (width < DRAG || !u.over.matches(":hover")) return; // another chart was dragged
    const [from, to] = [left, left + width].map((x) => u.posToVal(x, "x"));
    if (to - from >= 1) this.moved({ from: Math.floor(from), to: Math.ceil(to) });
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
