// Wires the page: what is told goes into the charts and tables, and the place says which of it.

import { Charts, nearest } from "./charts.js";
import { listen } from "./live.js";
import { Past } from "./past.js";
import * as places from "./place.js";
import { as, text } from "./show.js";
import { showAnswer, showTables } from "./tables.js";

const POINTS = 900;
const FRESH_MS = 5000; // tables are as old as that at most
const SHORTEST_MS = 1000;
const RANGES = [300, 900, 3600];

const by = (id) => document.getElementById(id);
const past = new Past();
const charts = globalThis.uPlot ? new Charts(by("charts"), (at) => places.go({ at })) : null;
let place = places.read();
let status = null;
let said = null; // the newest sentences: a sample's, or a whole answer's
let asked = 0;
let asking = false;

function draw() {
  if (document.hidden) return;
  if (said) showAnswer(said, place);
  if (status) showTables(status, place);
  charts?.draw(past, place, status);
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
}

async function ask() {
  if (asking) return;
  asking = true;
  asked = Date.now();
  try {
    const reply = await fetch("status");
    if (reply.ok) present(await reply.json(), "status");
  } catch {
    // the connection to the events says that the daemon is away
  } finally {
    asking = false;
  }
}

function soon() {
  setTimeout(ask, Math.max(0, asked + SHORTEST_MS - Date.now()));
}

function present(answer, kind) {
  status = said = answer;
  asked = Date.now();
  choices(answer.runs);
  if (kind !== "status") load(past.range);
  else draw();
}

function choices(runs) {
  const select = by("run");
  const names = runs.map((run) => run.run);
  if (place.run !== null && !names.includes(place.run)) names.push(place.run);
  while (select.options.length > names.length + 1) select.lastElementChild.remove();
  names.forEach((name, at) => {
    const option = select.options[at + 1] ?? select.appendChild(document.createElement("option"));
    text(option, name);
    option.value = name;
  });
  select.value = place.run ?? "";
}

async function load(range) {
  try {
    await past.load(range, POINTS);
  } catch {
    return;
  }
  draw();
}

function sample(told) {
  said = told;
  if (!past.add(told)) load(past.range);
  if (told.late_seconds !== null) {
    text(by("late"), as.moment(told.at));
    by("connection").dataset.is = "late";
  }
  text(by("seen"), as.moment(told.at));
  if (Date.now() - asked > FRESH_MS) ask();
  draw();
}

function change(told, kind) {
  if (kind === "run") text(by("news"), told.summary);
  soon();
}

function connection(is) {
  if (by("connection").dataset.is !== is) by("connection").dataset.is = is;
}

function go(next) {
  const opened = next.rank !== null && (next.rank !== place.rank || next.run !== place.run);
  place = next;
  draw();
  if (opened && !by("rank").hidden) by("h-rank").focus();
}

function start() {
  by("no-charts").hidden = charts !== null;
  by("charts").hidden = charts === null;
  if (place.at !== null) {
    const ago = Date.now() / 1000 - place.at;
    past.range = RANGES.find((range) => ago < range) ?? RANGES[RANGES.length - 1];
    document.querySelector(`#range [value="${past.range}"]`).checked = true;
  }
  by("range").addEventListener("change", (event) => load(Number(event.target.value)));
  by("run").addEventListener("change", (event) => places.go({ run: event.target.value || null, rank: null }));
  by("moment").addEventListener("input", (event) => places.go({ at: Number(event.target.value) }));
  by("now").addEventListener("click", () => places.go({ at: null }));
  by("close").addEventListener("click", () => places.go({ rank: null }));
  document.addEventListener("visibilitychange", draw);
  places.follow(go);
  listen({ present, sample, change, connection });
}

start();
