// History in columns: loaded from /history, then one value for each sample.

import { STEADY } from "./headline.js";

export class Past {
  constructor() {
    this.range = 300;
    this.clear();
  }

  clear() {
    this.at = [];
    this.ranks = new Map();
    this.gpus = new Map();
    this.between = new Map(); // state of a rank since the last sample
  }

  // at most `points` values of a column, each for the same number of seconds
  async load(range, points) {
    const reply = await fetch(`history?seconds=${range}&points=${points}`);
    if (!reply.ok) return;
    const answer = await reply.json();
    this.range = range;
    this.clear();
    this.at = answer.at;
    for (const one of answer.ranks) {
      // a moment is the end of its second, in which the state or phase began
      for (const name of SPANS) one[name] = one[name].map(([at, what], place) => [place ? at - 1 : at, what]);
      this.ranks.set(`${one.rank} ${one.run}`, { ...one, spent: null });
    }
    for (const one of answer.gpus) this.gpus.set(one.uuid, one);
  }

  // false: the clock was set back, so the history must be loaded again
  add(sample) {
    const newest = this.at[this.at.length - 1];
    if (sample.at < newest - 2) return false;
    if (newest !== undefined && sample.at - newest < 0.5) return true;
    const begin = sample.at - newest < GAP ? newest : sample.at; // a sample describes the time since the one before
    this.at.push(sample.at);
    const length = this.at.length;
    for (const one of sample.ranks) this.#rank(one, begin, length);
    this.between.clear();
    for (const one of sample.gpus) {
      const series = this.#series(this.gpus, one.uuid, { uuid: one.uuid, index: one.index }, GPU);
      for (const name of GPU) pad(series[name], length - 1).push(one[name]);
    }
    for (const series of this.ranks.values()) {
      for (const name of RANK) pad(series[name], length);
      if (!sample.ranks.some((one) => one.run === series.run && one.rank === series.rank)) {
        for (const name of SPANS) began(series[name], begin, null);
      }
    }
    for (const series of this.gpus.values()) for (const name of GPU) pad(series[name], length);
    this.#trim(sample.at - this.range);
    return true;
  }

  // A state between two samples is that of its second if the sample is warm again, as in /history.
  passed({ run, rank, state }) {
    if (!STEADY.has(state)) this.between.set(`${rank} ${run}`, state);
  }

  // an event with the reason of a recompile
  recompiled({ at, run, rank, compilation }) {
    const known = this.ranks.get(`${rank} ${run}`)?.recompiles;
    if (compilation.reason && known && !known.some((one) => one.id === compilation.id && one.kind === compilation.kind)) {
      known.push({ at, ...compilation });
    }
  }

  // An answer has the seconds of each phase; the sample after a compilation of less than a second names none.
  phased(answer) {
    for (const { run, ranks } of answer.runs) {
      for (const { rank, compile } of ranks) {
        const series = this.ranks.get(`${rank} ${run}`);
        if (!series) continue;
        const before = series.phase_seconds ?? compile.phase_seconds;
        const grown = Object.entries(compile.phase_seconds).map(([name, spent]) => [spent - (before[name] ?? 0), name]);
        const [most, main] = grown.sort((a, b) => b[0] - a[0])[0] ?? [0];
        const last = series.phases.findLastIndex(([, name]) => name !== null);
        if (most > 0) {
          const until = series.phases[last + 1]?.[0] ?? Infinity;
          if (last < 0 || until <= series.answered) continue; // its sample comes later: the next answer names it
          if (series.phases[last][1] === "other") series.phases[last][1] = main;
        }
        series.answered = this.at[this.at.length - 1];
        series.phase_seconds = compile.phase_seconds;
      }
    }
  }

  #rank(one, at, length) {
    const blank = { run: one.run, rank: one.rank, states: [], phases: [], pauses: [], recompiles: [], spent: null };
    const series = this.#series(this.ranks, `${one.rank} ${one.run}`, blank, RANK);
    pad(series.steps, length - 1).push(one.steps);
    pad(series.step_seconds, length - 1).push(one.step_seconds);
    series.a_step = one.a_step_seconds;
    const grown = series.spent === null ? 0 : Math.max(0, one.compile_seconds - series.spent);
    series.spent = one.compile_seconds;
    pad(series.compile_seconds, length - 1).push(Math.min(1, grown));
    const phase = one.phase ?? (grown > 0.01 ? "other" : null);
    const warm = STEADY.has(one.state) && phase !== null;
    began(series.states, at, (warm && this.between.get(`${one.rank} ${one.run}`)) || one.state);
    began(series.phases, at, phase);
    began(series.pauses, at, one.pause ?? null);
  }

  #series(all, key, blank, names) {
    if (!all.has(key)) all.set(key, { ...blank, ...Object.fromEntries(names.map((name) => [name, []])) });
    return all.get(key);
  }

  #trim(until) {
    let passed = 0;
    while (passed < this.at.length && this.at[passed] < until) passed += 1;
    if (passed < 30) return; // evict in batches
    this.at.splice(0, passed);
    for (const series of this.ranks.values()) {
      for (const name of RANK) series[name].splice(0, passed);
      for (const name of SPANS) {
        while (series[name].length > 1 && series[name][1][0] <= until) series[name].shift();
      }
      series.recompiles = series.recompiles.filter((one) => one.at >= until);
    }
    for (const series of this.gpus.values()) for (const name of GPU) series[name].splice(0, passed);
    // a page may be open for weeks: evict ranks without data in the whole period
    for (const [key, series] of this.ranks) if (series.states.every(([, name]) => name === null)) this.ranks.delete(key);
    for (const [key, series] of this.gpus) {
      if (GPU.every((name) => series[name].every((value) => value === null))) this.gpus.delete(key);
    }
  }
}

const GAP = 2.5; // seconds: a longer time without a sample was not measured
const SPANS = ["states", "phases", "pauses"];
const RANK = ["steps", "step_seconds", "compile_seconds"];
const GPU = ["utilization_ratio", "power_watts", "memory_used_bytes"];

function pad(column, length) {
  while (column.length < length) column.push(null);
  return column;
}

function began(list, at, name) {
  if (!list.length || list[list.length - 1][1] !== name) list.push([at, name]);
}

// start of a run in a /status answer: when its first rank attached
export function beginOf(status, run) {
  const ranks = status?.runs.find((one) => one.run === run)?.ranks ?? [];
  const begins = ranks.map((rank) => rank.attached_at).filter((at) => at !== null);
  return begins.length ? Math.min(...begins) : null;
}

// the first moment at which any of the ranks was seen
export function earliest(ranks) {
  return Math.min(...ranks.map(({ states }) => states.find(([, name]) => name !== null)?.[0] ?? Infinity));
}

// a rank's history shifted by `by` seconds, up to `until`; unknown afterwards
export function shifted(rank, by, until) {
  const spans = SPANS.map((name) => [name, [...rank[name], [until, null]].map(([at, what]) => [at + by, what])]);
  const recompiles = rank.recompiles.map((one) => ({ ...one, at: one.at + by }));
  return { ...rank, ...Object.fromEntries(spans), recompiles, by };
}

// [start, end, name] for each named start in a list
export function stretches(list, end) {
  return list.map(([begin, name], at) => [begin, list[at + 1]?.[0] ?? end, name]).filter((one) => one[2]);
}

// the name that a list of starts has at a moment
export function spanAt(list, at) {
  let name = null;
  for (const [begin, next] of list) {
    if (begin > at) break;
    name = next;
  }
  return name;
}
