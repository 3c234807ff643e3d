// Connects the daemon's events with the charts and tables. `place` selects the visible part.

import { Charts } from "./charts.js";
import { nearest } from "./hover.js";
import { ENDED, sampleOf, showAnswer } from "./headline.js";
import { listen } from "./live.js";
import { beginOf, Past } from "./past.js";
import * as places from "./place.js";
import { showRuns } from "./runs.js";
import { as, text } from "./show.js";
import { showTables } from "./tables.js";

const FRESH_MS = 5000; // maximum age of the tables
const SHORTEST_MS = 1000;
const RANGES = [300, 900, 3600];

const by = (id) => document.getElementById(id);
const past = new Past();
const charts = globalThis.uPlot ? new Charts(by("charts"), (change) => places.go(change)) : null;
let place = places.read();
let status = null;
let newest = null; // the newest sample, or a whole answer in the shape of one
let requested = 0;
let requesting = false;
let following = false;

function draw() {
  if (document.hidden) return;
  if (newest) {
    showAnswer(newest, place);
    showRuns(newest, past, place);
  }
  if (status) showTables(status, newest, place);
  charts?.draw(past, place, status, newest);
  moments();
}

function moments() {
  const range = by("moment");
  const [first, last] = [past.at[0] ?? 0, past.at[past.at.length - 1] ?? 0];
  range.min = Math.floor(first);
  range.max = Math.ceil(last);
  range.disabled = !last;
  if (place.at === null || document.activeElement !== range) range.value = place.at ?? Math.ceil(last);
  const at = past.at[nearest(past.at, place.at)];
  text(by("at"), at === undefined ? "" : as.moment(place.at ?? at));
  range.setAttribute("aria-valuetext", by("at").textContent);
  by("now").hidden = place.at === null;
  by("whole").hidden = place.from === null;
}

// the whole answer, unless nobody sees it
async function request() {
  if (document.hidden || requesting) return;
  requesting = true;
  requested = Date.now();
  try {
    const reply = await fetch("status");
    if (reply.ok) present(await reply.json(), "status");
  } catch {
    // the connection to the events shows that the daemon does not answer
  } finally {
    requesting = false;
  }
}

function soon() {
  setTimeout(request, Math.max(0, requested + SHORTEST_MS - Date.now()));
}

function present(answer, kind) {
  document.querySelector("main").dataset.answered = "true";
  const first = status === null && place.from === null && place.at === null;
  status = answer;
  newest = sampleOf(answer);
  requested = Date.now();
  choices(answer.runs);
  if (kind !== "status") load(first ? ofEnded(answer) : past.range);
  else draw();
}

function choices(runs) {
  const names = runs.map((run) => run.run);
  choice(by("run"), names, place.run);
  choice(by("with"), names.filter((name) => name !== place.run), place.with);
  by("overlay").hidden = place.run === null || names.length < 2;
}

function choice(select, names, chosen) {
  if (chosen !== null && !names.includes(chosen)) names.push(chosen);
  while (select.options.length > names.length + 1) select.lastElementChild.remove();
  names.forEach((name, at) => {
    const option = select.options[at + 1] ?? select.appendChild(document.createElement("option"));
    text(option, name);
    option.value = name;
  });
  select.value = chosen ?? "";
}

// a range with the start of the chosen run, or of the last one, if none of them is alive
function ofEnded({ runs }) {
  const shown = runs.filter((run) => place.run === null || run.run === place.run);
  const alive = shown.some((run) => !ENDED.has(run.state));
  const begins = shown.map((run) => beginOf(status, run.run)).filter((at) => at !== null);
  return alive || !begins.length ? past.range : Math.max(past.range, reaching(Math.max(...begins)));
}

// the shortest range that starts before a moment
function reaching(oldest) {
  const ago = Date.now() / 1000 - oldest;
  return RANGES.find((range) => ago < range) ?? RANGES[RANGES.length - 1];
}

async function load(chosen) {
  const begins = place.with === null ? [] : [place.run, place.with].map((run) => beginOf(status, run) ?? Infinity);
  const range = Math.max(chosen, reaching(Math.min(...begins))); // an overlay shows the start of both runs
  document.querySelector(`#range [value="${range}"]`).checked = true;
  try {
    await past.load(range);
  } catch {
    return;
  }
  draw();
}

// what the charts lack, unless nobody sees them
async function follow() {
  if (document.hidden || following || !newest) return;
  following = true;
  try {
    await past.follow(newest.at);
  } catch {
    // as above
  } finally {
    following = false;
  }
  draw();
}

function sample(one) {
  newest = one;
  if (one.late_seconds !== null) {
    text(by("late"), as.moment(one.at));
    by("connection").dataset.is = "late";
  }
  text(by("seen"), as.moment(one.at));
  if (Date.now() - requested > FRESH_MS) request();
  showAnswer(one, place); // title and icon also of a page in the background
  follow();
}

function change(event, kind) {
  if (kind === "run") text(by("news"), event.summary.replaceAll("`", ""));
  soon();
}

function connection(is) {
  if (by("connection").dataset.is !== is) by("connection").dataset.is = is;
  if (is === "lost" && !newest) text(by("headline"), "The daemon does not answer");
}

function go(next) {
  const opened = next.rank !== null && (next.rank !== place.rank || next.run !== place.run);
  const overlaid = next.with !== null && next.with !== place.with;
  const chosen = next.run !== place.run && next.from === null && next.at === null;
  place = next;
  if (status) choices(status.runs);
  const range = status && chosen ? ofEnded(status) : past.range;
  if (overlaid || range !== past.range) load(range);
  draw();
  if (opened && !by("rank").hidden) by("h-rank").focus();
}

function start() {
  by("no-charts").hidden = charts !== null;
  by("charts").hidden = charts === null;
  const oldest = place.from ?? place.at;
  if (oldest !== null) past.range = reaching(oldest);
  by("range").addEventListener("change", (event) => {
    places.go({ from: null, to: null });
    load(Number(event.target.value));
  });
  by("run").addEventListener("change", (event) => places.go({ run: event.target.value || null, rank: null, with: null }));
  by("with").addEventListener("change", (event) => places.go({ with: event.target.value || null, from: null, to: null, at: null }));
  by("moment").addEventListener("input", (event) => places.go({ at: Number(event.target.value) }));
  by("now").addEventListener("click", () => places.go({ at: null }));
  by("whole").addEventListener("click", () => places.go({ from: null, to: null }));
  by("close").addEventListener("click", () => places.go({ rank: null }));
  by("ended-part").addEventListener("toggle", draw);
  document.addEventListener("visibilitychange", () => {
    soon();
    follow();
  });
  places.follow(go);
  listen({ present, sample, change, connection });
}

start();
