// What was so, in columns: first as /history has it, then a value for each sample.

export class Past {
  constructor() {
    this.range = 300;
    this.clear();
  }

  clear() {
    this.at = [];
    this.ranks = new Map();
    this.gpus = new Map();
  }

  // keeps no more than `points` values of a column, of so many seconds each
  async load(range, points) {
    const reply = await fetch(`history?seconds=${range}&points=${points}`);
    if (!reply.ok) return;
    const told = await reply.json();
    this.range = range;
    this.clear();
    this.at = told.at;
    for (const one of told.ranks) {
      this.ranks.set(`${one.rank} ${one.run}`, { ...one, spent: null });
    }
    for (const one of told.gpus) this.gpus.set(one.uuid, one);
  }

  // false: the clock was set back, and what is there has to be loaded again
  add(sample) {
    const newest = this.at[this.at.length - 1];
    if (sample.at < newest - 2) return false;
    if (newest !== undefined && sample.at - newest < 0.5) return true;
    this.at.push(sample.at);
    const length = this.at.length;
    for (const one of sample.ranks) this.#rank(one, sample.at, length);
    for (const one of sample.gpus) {
      const kept = this.#series(this.gpus, one.uuid, { uuid: one.uuid, index: one.index }, GPU);
      for (const name of GPU) pad(kept[name], length - 1).push(one[name]);
    }
    for (const kept of this.ranks.values()) {
      for (const name of RANK) pad(kept[name], length);
      if (!sample.ranks.some((one) => one.run === kept.run && one.rank === kept.rank)) {
        began(kept.states, sample.at, null);
        began(kept.phases, sample.at, null);
      }
    }
    for (const kept of this.gpus.values()) for (const name of GPU) pad(kept[name], length);
    this.#trim(sample.at - this.range);
    return true;
  }

  #rank(one, at, length) {
    const blank = { run: one.run, rank: one.rank, states: [], phases: [], spent: null };
    const kept = this.#series(this.ranks, `${one.rank} ${one.run}`, blank, RANK);
    pad(kept.steps, length - 1).push(one.steps);
    pad(kept.step_seconds, length - 1).push(one.step_seconds);
    const grown = kept.spent === null ? 0 : Math.max(0, one.compile_seconds - kept.spent);
    kept.spent = one.compile_seconds;
    pad(kept.compile_seconds, length - 1).push(Math.min(1, grown));
    began(kept.states, at, one.state);
    began(kept.phases, at, one.phase ?? (grown > 0.01 ? "other" : null));
  }

  #series(all, key, blank, names) {
    if (!all.has(key)) all.set(key, { ...blank, ...Object.fromEntries(names.map((name) => [name, []])) });
    return all.get(key);
  }

  #trim(until) {
    let passed = 0;
    while (passed < this.at.length && this.at[passed] < until) passed += 1;
    if (passed < 30) return; // now and then
    this.at.splice(0, passed);
    for (const kept of this.ranks.values()) {
      for (const name of RANK) kept[name].splice(0, passed);
      for (const list of [kept.states, kept.phases]) {
        while (list.length > 1 && list[1][0] <= until) list.shift();
      }
    }
    for (const kept of this.gpus.values()) for (const name of GPU) kept[name].splice(0, passed);
    // a page may be open for weeks: who was not there in all of this time has no lane any more
    for (const [key, kept] of this.ranks) if (kept.states.every(([, name]) => name === null)) this.ranks.delete(key);
    for (const [key, kept] of this.gpus) {
      if (GPU.every((name) => kept[name].every((value) => value === null))) this.gpus.delete(key);
    }
  }
}

const RANK = ["steps", "step_seconds", "compile_seconds"];
const GPU = ["utilization_ratio", "power_watts", "memory_used_bytes"];

function pad(column, length) {
  while (column.length < length) column.push(null);
  return column;
}

function began(list, at, name) {
  if (!list.length || list[list.length - 1][1] !== name) list.push([at, name]);
}

// stretches [begin, end, name] of a list of begins
export function stretches(list, end) {
  return list.map(([begin, name], at) => [begin, list[at + 1]?.[0] ?? end, name]).filter((one) => one[2]);
}
