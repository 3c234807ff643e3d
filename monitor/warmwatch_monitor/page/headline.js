// The answer in large type: state and speed of a run. Title and icon of the window show it too.

import { as, items, stated, words } from "./show.js";

export const ENDED = new Set(["finished", "failed", "lost"]);
const BUSY = new Set(["compiling", "recompiling"]);
export const STEADY = new Set(["warm", "eager"]);
const STEPPING = new Set(["warming", "warm", "eager"]);
const ICONS = {
  starting: "busy", compiling: "busy", warming: "busy", recompiling: "busy", warm: "warm", eager: "warm",
  doubtful: "trouble", stalled: "trouble", failed: "trouble", lost: "trouble", finished: "ended",
};
// worst first: the icon shows the worst state of several runs
const ORDER = [
  "stalled", "recompiling", "compiling", "warming", "starting", "doubtful", "warm", "eager", "failed", "lost", "finished",
];

// the state that colour and icon show: `warm but slower` must not look like `warm`
export function shadeOf(run) {
  return STEADY.has(run.state) && run.state_words !== run.state ? "doubtful" : run.state;
}

// state and its most important figure, of the rank that the sentence describes: so both agree
export function worded(run, newest) {
  const rank = newest.ranks.find((one) => one.run === run.run && one.rank === run.decisive_rank);
  const figure = rank ? figureOf(run, rank, newest.at) : "";
  if (!figure) return run.state_words;
  return `${run.state_words}${/^(?:for|after) /.test(figure) ? "" : ","} ${figure}`;
}

function figureOf({ state, compiling_since }, rank, at) {
  if (ENDED.has(state)) return `after ${rank.steps} ${rank.steps === 1 ? "step" : "steps"}`;
  if (BUSY.has(state) && rank.left_seconds >= 1) return `about ${as.duration(rank.left_seconds)} left`;
  if (BUSY.has(state) && compiling_since) return `for ${as.duration(Math.max(0, at - compiling_since))}`;
  if (STEPPING.has(state)) {
    if (rank.silent) return `no step for ${as.duration(rank.last_step_age_seconds)}`;
    // of a warming one too few clean steps for a speed: the sentence has the last one
    return state === "warming" || rank.a_step_seconds === null ? "" : `${as.length(rank.a_step_seconds)} a step`;
  }
  return rank.since === null ? "" : `for ${as.duration(Math.max(0, at - rank.since))}`;
}

// the newest sentences and figures of a whole answer, in the shape of a sample
export function sampleOf(answer) {
  const ranks = answer.runs.flatMap((run) => run.ranks.map((rank) => ({
    run: run.run, rank: rank.rank, state: rank.state, since: rank.since, steps: rank.steps,
    left_seconds: rank.compile.estimate?.left_seconds ?? null, last_step_age_seconds: rank.last_step_age_seconds,
    a_step_seconds: rank.step_seconds.recent ?? rank.step_seconds.typical,
    silent: rank.conditions.some((one) => one.condition === "silent"),
  })));
  const { at, awaited, summary, details, runs } = answer;
  return { at, awaited, summary, details, runs, ranks };
}

// `newest` is the newest sample
export function showAnswer(newest, place) {
  const { runs } = newest;
  const chosen = runs.find((one) => one.run === place.run);
  const missing = place.run !== null && !chosen; // a link to a run that was removed or has not started
  const living = runs.filter((one) => !ENDED.has(one.state));
  const awaited = newest.awaited && living.length === 0;
  const one = chosen ?? (missing || awaited ? null : living.length === 1 ? living[0] : runs.length === 1 ? runs[0] : null);
  const tallied = !one && !missing && !awaited && runs.length > 0;
  const state = one ? shadeOf(one) : worst(living.length || awaited ? living : runs);
  const headline = missing ? `${place.run} is not seen here. ${newest.summary}` : one ? `${one.run}: ${worded(one, newest)}` : awaited ? "Waiting for the command" : counted(living, runs);
  words(document.getElementById("headline"), unbroken(headline));
  document.getElementById("headline").classList.toggle("tally", tallied);
  const sentence = document.getElementById("summary");
  words(sentence, one ? beyond(one, worded(one, newest)) : newest.summary);
  sentence.hidden = missing || !sentence.textContent || tallied; // with several runs, each has its own sentence below
  stated(document.getElementById("answer"), state);
  const details = document.getElementById("details");
  items(details, (one ? one.details : []) ?? []);
  details.hidden = details.children.length === 0;
  showWindow(missing ? "" : headline, state);
}

// no line ends between a number and its unit
const unbroken = (words) => words.replace(/(\d) (?=(?:µs|ms|s|min|h|d)(?!\w))/g, "$1\u00a0");

// a run's sentence without its name, which the row already shows; a long name has lost its middle
function unnamed({ run, summary = "" }) {
  const signs = [...run];
  const names = [run, `${signs.slice(0, 24).join("")}...${signs.slice(-13).join("")}`];
  const name = names.find((one) => summary.startsWith(`${one}: `));
  return name === undefined ? summary : summary.slice(name.length + 2);
}

// the sentence without what `words` already shows: `since step 344 (62 ms before, 7.7x)`
export function beyond(run, words) {
  const figure = words.slice(run.state_words.length).replace(/^,? /, "");
  let rest = unnamed(run);
  if (rest.startsWith(run.state_words)) rest = rest.slice(run.state_words.length).replace(/^[:;,]? /, "");
  if (figure && rest.startsWith(figure)) rest = rest.slice(figure.length).replace(/^[:;,]?(?: and)? /, "");
  if (figure) rest = rest.replace(`${figure} is the real speed`, "this is the real speed").replace(`${figure} so far`, "the speed so far").replace(`; ${figure}`, "");
  if (figure.startsWith("for ")) rest = rest.replace(/^(?:for [^(,;:]+)?\((\w+)\)/, "$1").replace(/ for [\d.]+ \w+ \((\w+)\)/, ", $1");
  return rest;
}

const rank = (state) => (ORDER.includes(state) ? ORDER.indexOf(state) : ORDER.length);

export const worst = (runs) => runs.map(shadeOf).sort((a, b) => rank(a) - rank(b))[0] ?? null;

// `3 runs: 1 compiling, 2 warm`; `2 ended runs: 1 failed, 1 finished`
function counted(living, runs) {
  if (!runs.length) return "No run found";
  return living.length ? tally(living, "run") : tally(runs, "ended run");
}

export function tally(runs, noun) {
  const by = new Map();
  const ordered = [...runs].sort((a, b) => rank(a.state) - rank(b.state));
  for (const { state_words } of ordered) by.set(state_words, (by.get(state_words) ?? 0) + 1);
  const parts = [...by].map(([state, count]) => `${count} ${state}`);
  return `${runs.length} ${noun}${runs.length === 1 ? "" : "s"}: ${parts.join(", ")}`;
}

function showWindow(headline, state) {
  const title = headline ? `${headline.replaceAll("`", "")} – Warmwatch` : "Warmwatch";
  if (document.title !== title) document.title = title;
  const icon = document.getElementById("icon");
  const path = state && ICONS[state] ? `page/icon-${ICONS[state]}.svg` : "page/icon.svg";
  if (icon.getAttribute("href") !== path) icon.setAttribute("href", path);
}
