// The last hour of the daemon, in columns: a copy of what `/history` has. It asks again for the
// newest seconds, which replace those that it had: the newest of all was not over.

const POINTS = 900; // the most values of a requested column; twice as many are loaded again
const RECENT = 10; // seconds that are asked for again: the same number on each page, which share an answer
const OVERLAP = 3; // seconds of them that it has
const LONGEST_MS = 10000; // of a request: a network that drops all packets must not stop the charts
const SPANS = ["states", "phases", "pauses"];
const RANK = ["steps", "step_seconds"];
const GPU = ["utilization_ratio", "power_watts"];

export class Past {
  constructor() {
    this.range = 300;
    this.loading = null;
    this.clear();
  }

  clear() {
    this.at = [];
    this.ranks = new Map();
    this.gpus = new Map();
  }

  async load(range) {
    const own = (this.loading = {});
    try {
      const answer = await columns(range);
      if (this.loading !== own) return; // another range was chosen meanwhile
      this.range = range;
      this.clear();
      this.join(answer);
    } finally {
      if (this.loading === own) this.loading = null;
    }
  }

  // what came until a moment; everything after a gap, or if the clock was set back
  async follow(until) {
    if (this.loading) return;
    const since = until - this.at[this.at.length - 1];
    const isNear = since > -OVERLAP && since < RECENT - OVERLAP && this.at.length < 2 * POINTS;
    if (isNear) this.join(await columns(RECENT));
    else await this.load(this.range);
  }

  // these columns replace what it had of their time
  join({ at, ranks, gpus }) {
    if (!at.length) return;
    const [first, oldest] = [at[0], at[at.length - 1] - this.range];
    const until = this.at.filter((one) => one < first).length;
    const from = this.at.filter((one) => one < Math.min(first, oldest)).length;
    const column = (had, now) => [...(had ?? new Array(until).fill(null)).slice(from, until), ...(now ?? new Array(at.length).fill(null))];
    const all = (names, had, now, join) => Object.fromEntries(names.map((name) => [name, join(had?.[name], now?.[name])]));
    const isFirst = !this.at.length;
    this.at = column(this.at, at);
    this.ranks = united(this.ranks, ranks, ({ run, rank }) => `${rank} ${run}`, (had, now) => ({
      ...all(RANK, had, now, column),
      ...all(SPANS, had, now, (list = [], later = [[first, null]]) => spans(list, later, isFirst, first, oldest)),
      recompiles: both(had?.recompiles ?? [], now?.recompiles ?? []).filter((one) => one.at >= oldest),
    }));
    this.gpus = united(this.gpus, gpus, ({ uuid }) => uuid, (had, now) => all(GPU, had, now, column));
    // a page may be open for weeks: evict what has no data in the whole range
    for (const [key, { states }] of this.ranks) if (states.every(([, name]) => name === null)) this.ranks.delete(key);
    for (const [key, one] of this.gpus) if (GPU.every((name) => one[name].every((value) => value === null))) this.gpus.delete(key);
  }
}

async function columns(seconds) {
  const reply = await fetch(`history?seconds=${seconds}&points=${POINTS}`, { signal: AbortSignal.timeout(LONGEST_MS) });
  if (!reply.ok) throw new Error(`/history answers with ${reply.status}`);
  return reply.json();
}

// the entries of a map and of a list, each joined with the one of the same key
function united(had, list, keyOf, join) {
  const now = new Map(list.map((one) => [keyOf(one), one]));
  return new Map([...new Set([...had.keys(), ...now.keys()])].map((key) => [
    key, { ...had.get(key), ...now.get(key), ...join(had.get(key), now.get(key)) },
  ]));
}

// Starts of states, phases or pauses. A moment is the end of its second, in which the state began.
function spans(had, now, isFirst, first, oldest) {
  const list = had.filter(([at]) => at < first - 1);
  for (const [at, name] of now) {
    if (!list.length || list[list.length - 1][1] !== name) list.push([isFirst && !list.length ? at : at - 1, name]);
  }
  const begin = list.findLastIndex(([at]) => at <= oldest);
  return list.slice(Math.max(0, begin));
}

// recompiles, each once: an answer has only those of its seconds
function both(had, now) {
  const same = (one, other) => one.id === other.id && one.kind === other.kind && Math.abs(one.at - other.at) < 1;
  return [...had.filter((one) => !now.some((other) => same(one, other))), ...now];
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
