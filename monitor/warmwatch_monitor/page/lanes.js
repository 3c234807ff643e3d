// One lane for each rank: its state below, its compile phases above it.

import { stretches } from "./past.js";

export function laneHeight(lanes) {
  return Math.max(6, Math.min(26, Math.floor(420 / Math.max(1, lanes))));
}

export function drawLanes(plot, ranks, colours, chosen) {
  const { ctx, bbox } = plot;
  ctx.save();
  ctx.beginPath();
  ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
  ctx.clip();
  const lane = bbox.height / Math.max(1, ranks.length);
  const gap = Math.max(1, lane * 0.12);
  const end = plot.scales.x.max;
  ranks.forEach((rank, at) => {
    const top = bbox.top + at * lane + gap / 2;
    const high = lane - gap;
    ctx.globalAlpha = chosen === null || String(rank.rank) === chosen ? 1 : 0.35;
    paint(plot, stretches(rank.states, end), top + high * 0.6, high * 0.4, colours);
    paint(plot, stretches(rank.phases, end), top, high * 0.6, colours);
  });
  ctx.restore();
}

function paint(plot, list, top, high, colours) {
  for (const [begin, end, name] of list) {
    const left = plot.valToPos(begin, "x", true);
    const right = plot.valToPos(end, "x", true);
    plot.ctx.fillStyle = colours(name);
    plot.ctx.fillRect(left, top, Math.max(2, right - left), high);
  }
}

// spans of time as a shade over a whole chart
export function shade(plot, spans, colour) {
  const { ctx, bbox } = plot;
  ctx.save();
  ctx.beginPath();
  ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
  ctx.clip();
  ctx.fillStyle = colour;
  ctx.globalAlpha = 0.16;
  for (const [begin, end] of union(spans)) {
    const left = plot.valToPos(begin, "x", true);
    ctx.fillRect(left, bbox.top, Math.max(2, plot.valToPos(end, "x", true) - left), bbox.height);
  }
  ctx.restore();
}

// compile activity of any of the ranks
export function compiling(ranks, end) {
  return ranks.flatMap((rank) => stretches(rank.phases, end));
}

// times in which any of the ranks was slower than before
export function slower(ranks, end) {
  const periods = ranks.flatMap((rank) => rank.slower_periods ?? []);
  return periods.filter((one) => one.began_at !== null).map((one) => [one.began_at, one.ended_at ?? end]);
}

function union(spans) {
  const joined = [];
  for (const [begin, until] of [...spans].sort((a, b) => a[0] - b[0])) {
    const last = joined[joined.length - 1];
    if (last && begin <= last[1]) last[1] = Math.max(last[1], until);
    else joined.push([begin, until]);
  }
  return joined;
}

// the moment that is looked at
export function mark(plot, at, colour) {
  if (at === null || at < plot.scales.x.min || at > plot.scales.x.max) return;
  const { ctx, bbox } = plot;
  const left = plot.valToPos(at, "x", true);
  ctx.save();
  ctx.strokeStyle = colour;
  ctx.lineWidth = 2;
  ctx.beginPath();
  ctx.moveTo(left, bbox.top);
  ctx.lineTo(left, bbox.top + bbox.height);
  ctx.stroke();
  ctx.restore();
}
