// Round labels of axes, and the columns of the charts.

import { ENDED } from "./headline.js";

// seconds between two labels of a time axis; those in between are for an axis with room for three labels
const ROUND = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21600, 43200, 86400, 172800, 432000];
const TIMES = [...ROUND, 3, 4, 6, 8, 12, 20, 25, 40, 45, 180, 1200, 10800, 14400].sort((a, b) => a - b);
const APART = 130; // pixels between two labels of a wide time axis
export const SHORTEST = 60; // minimum seconds of a time axis
const FACTORS = [1, 1.5, 2, 3, 4, 5, 6, 8, 10]; // their halves have two digits, as labels do

// The round times in a range: as many as its width has room for, but three at least. They are spread
// over the whole range, so less than a third of it is without a label at either end.
export function moments(from, until, width) {
  const fits = ROUND.find((one) => one >= ((until - from) * APART) / width);
  const step = fits * 3 <= until - from ? fits : TIMES.findLast((one) => one * 3 <= until - from) ?? 1;
  const first = Math.ceil(from / step), count = Math.floor(until / step) - first + 1;
  return Array.from({ length: count }, (_, at) => (first + at) * step);
}

// the smallest round number that is at least `value`
export function roundUp(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return FACTORS.find((one) => one * power >= value * 0.9999) * power;
}

// [0, half, top]
export function linear(top) {
  return [0, top / 2, top];
}

// the powers of ten around the values, and one in between
export function logarithmic(low, high) {
  const [from, to] = [Math.floor(Math.log10(low) + 1e-9), Math.ceil(Math.log10(high) - 1e-9)];
  const [first, last] = [10 ** from, 10 ** Math.max(to, from + 1)];
  return [first, 10 ** ((from + Math.max(to, from + 1)) / 2), last];
}

const STILL = new Set(["stalled", ...ENDED]);
const LATE = 2.5; // seconds that the next sample may take

// The step duration at each moment with a new one. `undefined`: no new value, the line continues.
// `null` ends the line until the next value: at a compilation or a pause, without a measurement,
// or if a rank is gone or restarts. A step with a compilation has no point: it does not show the speed. Neither
// has the last step of a rank that had ended or stalled when it was first seen: it was earlier.
export function stepped({ steps, step_seconds: lengths, phases = [], pauses = [], states = [] }, at) {
  const compiling = spans(phases), paused = spans(pauses);
  const line = new Array(steps.length);
  const old = STILL.has(states.find(([, name]) => name !== null)?.[1]) ? steps.findIndex((count) => (count ?? null) !== null) : null;
  let last = null, before = null;
  for (let place = 0; place < steps.length; place += 1) {
    const count = steps[place] ?? null, earlier = before;
    before = count;
    const restarted = earlier !== null && (count === null || count < earlier);
    const length = count > 0 && count !== earlier && place !== old ? lengths[place] || null : null;
    if (length === null) {
      // uPlot would draw the end of a gap that is `undefined`
      line[place] = restarted || line[place - 1] === null ? null : undefined;
      if (restarted) last = null;
      continue;
    }
    const now = at?.[place] ?? null;
    const timed = now !== null && last !== null;
    const apart = timed && (overlaps(compiling, last, now) || overlaps(paused, last, now) || now - last > 2 * length + LATE);
    if ((restarted || apart) && line[place - 1] === undefined) line[place - 1] = null;
    line[place] = now !== null && overlaps(compiling, now - length, now) ? null : length;
    last = line[place] === null ? null : now;
  }
  return line;
}

function spans(begins) {
  return begins.map(([from, name], at) => [from, begins[at + 1]?.[0] ?? Infinity, name]).filter((one) => one[2]);
}

// whether one of the sorted spans overlaps the time from `from` to `until`
function overlaps(list, from, until) {
  let low = 0, high = list.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (list[middle][1] > from) high = middle;
    else low = middle + 1;
  }
  return low < list.length && list[low][0] <= until;
}
