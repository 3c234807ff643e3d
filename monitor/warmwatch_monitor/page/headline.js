// The answer in large type: state and speed of a run. Title and icon of the window show it too.

import { items, stated, words } from "./show.js";

export const ENDED = new Set(["finished", "failed", "lost"]);
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
  return run.qualified_by ? "doubtful" : run.state;
}

// the newest sentences and figures of a whole answer, in the shape of a sample
export function sampleOf(answer) {
  const ranks = answer.runs.flatMap((run) => run.ranks.map((rank) => ({
    run: run.run, rank: rank.rank, state: rank.state, steps: rank.steps,
    last_step_age_seconds: rank.last_step_age_seconds, a_step_seconds: rank.step_seconds.recent ?? rank.step_seconds.typical,
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
  const headline = missing ? `${place.run} is not seen here. ${newest.summary}` : one ? `${one.run}: ${one.title}` : awaited ? "Waiting for the command" : counted(living, runs);
  words(document.getElementById("headline"), unbroken(headline));
  document.getElementById("headline").classList.toggle("tally", tallied);
  const sentence = document.getElementById("summary");
  words(sentence, one ? one.subtitle : newest.summary);
  sentence.hidden = missing || !sentence.textContent || tallied; // with several runs, each has its own sentence below
  stated(document.getElementById("answer"), state);
  const details = document.getElementById("details");
  items(details, one ? detailsOf(one) : []);
  details.hidden = details.children.length === 0;
  showWindow(missing ? "" : headline, state);
}

// no line ends between a number and its unit
const unbroken = (words) => words.replace(/(\d) (?=(?:µs|ms|s|min|h|d)(?!\w))/g, "$1\u00a0");

// what the sentence of a run has no room for
const detailsOf = ({ clauses }) => clauses.filter(({ short, text }) => short !== text).map(({ text }) => text);

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
