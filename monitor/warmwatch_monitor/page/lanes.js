// One lane for each rank, in the color of its state; on top of it pauses, compile phases, slower
// periods and recompiles.

import { ENDED } from "./headline.js";
import { stretches } from "./past.js";

const MOST = 64; // maximum lanes; with more ranks, only the first rank of each run has one
const MARKS = 9; // pixels above the bar of a lane: a recompile is marked there, where it hides no letter
const ROOMY = 26; // pixels: a lower lane has its recompiles on the bar, and no letters
const CAP = 8; // pixels: the end of a run is a moment, and the lane is free for the next start
const ONE_SAMPLE = 1.5; // seconds: a shorter pause is of one sample
const THIN = 12; // pixels: in a lower lane, a phase covers the state

export function chosenLanes(ranks) {
  const all = [...ranks].sort((a, b) => (a.run < b.run ? -1 : a.run > b.run ? 1 : a.rank - b.rank));
  if (all.length <= MOST) return { lanes: all, cut: "" };
  const several = new Set(all.map((one) => one.run)).size > 1;
  const lanes = several ? all.filter((one, at) => at === 0 || all[at - 1].run !== one.run) : all.slice(0, MOST);
  return { lanes, cut: several ? "(first rank of each run; choose a run to see all)" : `(the first ${MOST} of ${all.length})` };
}

export function laneHeight(lanes) {
  return Math.max(6, Math.min(40, Math.floor(420 / Math.max(1, lanes))));
}

// the middle of a lane's bar, as a part of its height
export function middle(lanes) {
  const high = laneHeight(lanes);
  return 0.5 + (high < ROOMY ? 0 : MARKS / high / 2);
}

export function drawLanes(plot, ranks, times, colours, chosen, periodsOf) {
  clipped(plot, (ctx, bbox) => {
    const lane = bbox.height / Math.max(1, ranks.length);
    const gap = Math.max(1, lane * 0.15);
    const end = plot.scales.x.max;
    const cap = ((end - plot.scales.x.min) * CAP * devicePixelRatio) / bbox.width;
    const thin = lane < THIN * devicePixelRatio;
    const above = lane < ROOMY * devicePixelRatio ? 0 : MARKS * devicePixelRatio;
    ranks.forEach((rank, at) => {
      const top = bbox.top + at * lane + gap / 2 + above;
      const high = lane - gap - above;
      ctx.globalAlpha = chosen === null || String(rank.rank) === chosen ? 1 : 0.35;
      const states = stretches(rank.states, end).map(([begin, until, name]) => [begin, ENDED.has(name) ? Math.min(until, begin + cap) : until, name]);
      if (states.length > 1 && ENDED.has(states[0][2])) states.shift(); // it ended before the first sample
      paint(plot, states, top, high, colours);
      const phases = stretches(rank.phases, end);
      for (const [begin, ends, name] of stretches(rank.pauses, end)) {
        const until = ends - begin > ONE_SAMPLE ? ends : begin; // how much of a second it took is not known
        const compiles = phases.some(([from, to]) => from < until && to > begin); // in the upper half
        pause(plot, begin, until, name, [top, high, !above ? high : compiles ? high / 2 : 0], colours);
      }
      paint(plot, phases, top, thin ? high : high * 0.5, colours);
      for (const [begin, until] of periodsOf(rank)) below(plot, begin, until, top + high, colours("bad"));
      for (const start of restarts(rank, times)) paint(plot, [[start - cap / 4, start + cap / 4, "ground"]], top, high, colours);
      for (const one of rank.recompiles) recompile(plot, one.at, top, above || high * 0.6, above, colours);
    });
  });
}

// the moments at which the count of steps begins again: another start of the run
export function restarts({ steps, by = 0 }, times) {
  let before = 0;
  return times.filter((_, at) => {
    before = steps[at] ?? before;
    return (steps[at + 1] ?? before) < before; // a value describes the time since the one before
  }).map((start) => start + by);
}

function clipped(plot, draw) {
  const { ctx, bbox } = plot;
  ctx.save();
  ctx.beginPath();
  ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
  ctx.clip();
  draw(ctx, bbox);
  ctx.restore();
}

function across(plot, begin, until) {
  const left = plot.valToPos(begin, "x", true);
  return [left, Math.max(2, plot.valToPos(until, "x", true) - left)];
}

function paint(plot, list, top, high, colours) {
  for (const [begin, until, name] of list) {
    const [left, wide] = across(plot, begin, until);
    plot.ctx.fillStyle = colours(name);
    plot.ctx.fillRect(left, top, wide, high);
  }
}

// evaluations and saves are gaps with a letter, because they are not states; `covered`: height of
// the upper part without room for it
function pause(plot, begin, until, name, [top, high, covered], colours) {
  const { ctx } = plot;
  const [left, wide] = across(plot, begin, until);
  ctx.fillStyle = colours("ground");
  ctx.fillRect(left, top, wide, high);
  ctx.strokeStyle = ctx.fillStyle = colours("text");
  ctx.lineWidth = 1;
  ctx.strokeRect(left + 0.5, top + 0.5, Math.max(1, wide - 1), Math.max(1, high - 1));
  const room = high - covered;
  if (wide < 12 || room < 9) return;
  ctx.font = `${Math.round(Math.min(room * 0.85, 14))}px sans-serif`;
  ctx.textAlign = "center";
  ctx.textBaseline = "middle";
  ctx.fillText(name[0].toUpperCase(), left + wide / 2, top + covered + room / 2 + 1);
}

function below(plot, begin, until, bottom, colour) {
  const [left, wide] = across(plot, begin, until);
  plot.ctx.fillStyle = colour;
  plot.ctx.fillRect(left, bottom - 2, wide, 3);
}

// a triangle that points to the moment at which the recompile ended; `above`: the part over the bar
function recompile(plot, at, top, size, above, colours) {
  const { ctx } = plot;
  const x = plot.valToPos(at, "x", true);
  ctx.fillStyle = colours("text");
  ctx.strokeStyle = colours("ground");
  ctx.beginPath();
  ctx.moveTo(x - size * 0.75, top - above);
  ctx.lineTo(x + size * 0.75, top - above);
  ctx.lineTo(x, top - above + size);
  ctx.closePath();
  ctx.fill();
  ctx.stroke();
}

// shades time spans over a whole chart
export function shade(plot, spans, colour) {
  clipped(plot, (ctx, bbox) => {
    ctx.fillStyle = colour;
    ctx.globalAlpha = 0.2;
    for (const [begin, until] of union(spans)) {
      const [left, wide] = across(plot, begin, until);
      ctx.fillRect(left, bbox.top, wide, bbox.height);
    }
  });
}

// compile activity of any of the ranks
export function compiling(ranks, end) {
  return ranks.flatMap((rank) => stretches(rank.phases, end));
}

// intervals in which any rank of a /status answer was slower than before, if they are in the window
export function slower(ranks, begin, end) {
  const periods = ranks.flatMap((rank) => rank.slower_periods ?? []).filter((one) => one.began_at !== null);
  return periods.map((one) => [one.began_at, one.ended_at ?? end]).filter(([from, until]) => until > begin && from < end);
}

export function union(spans) {
  const joined = [];
  for (const [begin, until] of [...spans].sort((a, b) => a[0] - b[0])) {
    const last = joined[joined.length - 1];
    if (last && begin <= last[1]) last[1] = Math.max(last[1], until);
    else joined.push([begin, until]);
  }
  return joined;
}

// the selected moment
export function mark(plot, at, colour) {
  if (at === null || at < plot.scales.x.min || at > plot.scales.x.max) return;
  clipped(plot, (ctx, bbox) => {
    const left = plot.valToPos(at, "x", true);
    ctx.strokeStyle = colour;
    ctx.lineWidth = 2;
    ctx.beginPath();
    ctx.moveTo(left, bbox.top);
    ctx.lineTo(left, bbox.top + bbox.height);
    ctx.stroke();
  });
}
