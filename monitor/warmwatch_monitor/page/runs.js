// One row for each run, with its step durations as a sparkline. Ended runs are collapsed.

import { ENDED, shadeOf, tally, worst } from "./headline.js";
import { union } from "./lanes.js";
import { SHORTEST, stepped } from "./scales.js";
import { as, fill, stated, text } from "./show.js";
import { earliest, stretches } from "./past.js";

const POINTS = 100; // of a sparkline
const SVG = "http://www.w3.org/2000/svg";

export function showRuns(newest, past, place) {
  const { runs } = newest;
  const part = document.getElementById("runs-part");
  part.hidden = runs.length < 2;
  if (part.hidden) return;
  const living = runs.filter((one) => !ENDED.has(one.state));
  const ended = runs.filter((one) => ENDED.has(one.state));
  const alone = living.length === 1 && (place.run === null || place.run === living[0].run); // the headline shows it
  list("runs", !living.length ? ended : alone ? [] : living, newest, past, place);
  const [begin, end] = shownTime(past);
  text(document.getElementById("sparks-time"), end > begin ? `, the last ${as.duration(end - begin)}` : "");
  list("ended", living.length ? ended : [], newest, past, place);
  document.getElementById("ended-part").hidden = !living.length || !ended.length;
  const count = document.getElementById("ended-count");
  text(count, ended.length ? tally(ended, "ended run") : "");
  stated(count, worst(ended));
}

function list(id, runs, newest, past, place) {
  const root = document.getElementById(id);
  const row = () => document.getElementById("run-row").content.firstElementChild.cloneNode(true);
  const shown = id === "runs" || root.closest("details").open;
  runs.forEach((one, at) => {
    const item = root.children[at] ?? root.appendChild(row());
    const state = shadeOf(one);
    fill(item, { ...one, state, place: { run: one.run } });
    stated(item, state);
    item.querySelector("a").setAttribute("aria-current", String(place.run === one.run));
    if (shown) spark(item.querySelector("svg"), [...past.ranks.values()].find((rank) => rank.run === one.run), past);
  });
  while (root.children.length > runs.length) root.lastElementChild.remove();
}

// begin and end of all sparklines
function shownTime(past) {
  const newest = past.at[past.at.length - 1] ?? 0;
  return [Math.max(newest - past.range, Math.min(newest - SHORTEST, earliest([...past.ranks.values()]))), newest];
}

// the first rank's steps, shaded while it compiles; the same as text for the pointer and screen readers
function spark(svg, rank, past) {
  const line = rank ? stepped(rank, past.at) : [];
  const [begin, newest] = shownTime(past);
  const x = (at) => ((at - begin) / (newest - begin)) * 100;
  const every = Math.max(1, Math.ceil(line.length / (POINTS * 2)));
  const lengths = line.filter((value) => value > 0);
  const top = Math.max(...lengths, 0);
  let path = "", open = false;
  line.forEach((value, at) => {
    if (value === null) open = false;
    if (!value || (at % every && open)) return;
    path += `${open ? "L" : "M"}${x(past.at[at]).toFixed(1)} ${(19 - (value / top) * 17).toFixed(1)}`;
    open = true;
  });
  const shades = rank ? union(stretches(rank.phases, newest)).map(([from, end]) => [Math.max(from, begin), end]).filter(([from, end]) => end > from) : [];
  const wanted = ["title", "path", ...shades.map(() => "rect")];
  while (svg.children.length > wanted.length) svg.lastElementChild.remove();
  wanted.forEach((name, at) => svg.children[at] ?? svg.appendChild(document.createElementNS(SVG, name)));
  text(svg.children[0], described(lengths, shades, newest - begin));
  if (svg.children[1].getAttribute("d") !== path) svg.children[1].setAttribute("d", path);
  shades.forEach(([from, end], at) => {
    const rect = svg.children[at + 2];
    const left = x(from);
    for (const [name, value] of [["x", left], ["y", 0], ["width", Math.max(0.5, x(end) - left)], ["height", 20]]) {
      rect.setAttribute(name, value.toFixed ? value.toFixed(1) : value);
    }
  });
}

function described(lengths, shades, seconds) {
  const [least, most] = [Math.min(...lengths), Math.max(...lengths)].map((value) => (lengths.length ? as.length(value) : ""));
  const steps = !lengths.length ? `no step${shades.length ? " without compilation" : ""}` : least === most ? `${least} a step` : `${least} to ${most} a step`;
  const compiled = shades.reduce((sum, [from, end]) => sum + end - from, 0);
  return `The last ${as.duration(seconds)}: ${steps}${compiled ? `; shaded: ${as.duration(compiled)} of compilation` : ""}`;
}
