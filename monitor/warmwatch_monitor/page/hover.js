// Tooltip of the charts: the values at the pointer's moment, as text.

import { spanAt } from "./past.js";
import { as, words } from "./show.js";

const MOST = 8; // maximum lines of the tooltip
const NEAR = 7; // maximum pixels from a marker

// the index of the last value at or before a moment; without a moment, the newest
export function nearest(times, at) {
  if (at === null) return times.length - 1;
  let low = 0, high = times.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (times[middle] <= at) low = middle + 1;
    else high = middle;
  }
  return Math.max(0, low - 1);
}

// the last value of a line, skipping `undefined` (no new value); `null` if there is none
export function standing(column, at) {
  let from = at;
  while (from > 0 && column[from] === undefined) from -= 1;
  return column[from] ?? null;
}

// moves a chart's tooltip; `describe(at, u)` returns its lines, an empty list hides it
export function hover(describe) {
  return (u) => {
    const place = u.root.parentElement;
    let box = place.querySelector(".tip");
    if (!box) {
      box = place.appendChild(document.createElement("div"));
      box.className = "tip";
      box.setAttribute("aria-hidden", "true"); // the tables have the same values
    }
    const { left } = u.cursor;
    const over = u.over.matches(":hover") && left >= 0;
    const lines = over ? describe(u.posToVal(left, "x"), u) : [];
    box.hidden = lines.length === 0;
    if (box.hidden) return;
    words(box, lines.join("\n"));
    const from = u.over.offsetLeft + left;
    const right = from + 16 + box.offsetWidth > place.clientWidth;
    box.style.left = `${Math.max(0, right ? from - box.offsetWidth - 12 : from + 12)}px`;
  };
}

export function valuesAt(at, times, known, show) {
  const place = nearest(times, at);
  const values = known.map(([name, column]) => [name, standing(column, place)]).filter(([, value]) => value !== null);
  if (values.length <= MOST) return values.map(([name, value]) => `${name}: ${show(value)}`);
  const sorted = values.map(([, value]) => value).sort((a, b) => a - b);
  const middle = sorted[Math.floor(sorted.length / 2)];
  return [`${values.length} lines: ${show(sorted[0])} to ${show(sorted[sorted.length - 1])}, median ${show(middle)}`];
}

// the rank of the lane: its state, phase and pause, and a recompile that ended nearby
export function rankAt(at, when, u, lanes, periodsOf) {
  const lane = lanes[Math.floor(u.posToVal(u.cursor.top, "y"))];
  if (!lane) return [];
  const state = spanAt(lane.states, at);
  const head = `${lane.run} rank ${lane.rank}, ${when}`;
  if (!state) return [head, "not measured"];
  const parts = [state, spanAt(lane.phases, at), spanAt(lane.pauses, at), periodsOf(lane).some(([from, until]) => from <= at && at < until) && "slower than before"];
  const near = lane.recompiles.filter((one) => Math.abs(u.valToPos(one.at, "x") - u.cursor.left) <= NEAR);
  const why = near.map((one) => `${one.at_limit ? "reached the recompile limit" : "recompiled"} ${one.called ?? ""}${one.seconds === null || one.at_limit ? "" : ` in ${as.length(one.seconds)}`}: ${one.plain ?? one.reason}`);
  const more = why.length > MOST ? [`and ${why.length - MOST} more`] : [];
  return [head, parts.filter(Boolean).join(", "), ...why.slice(-MOST), ...more];
}
