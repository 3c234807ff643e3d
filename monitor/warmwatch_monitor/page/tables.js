// The tables of a /status answer. `place` selects the expanded rank.

import { ENDED } from "./headline.js";
import { fill, items, rows, text } from "./show.js";

const MOST_RANKS = 128; // maximum rows; a selected run shows all of its ranks
const MOST_FUNCTIONS = 20;

// `newest` is the newest sample
export function showTables(answer, newest, place) {
  // ended runs are collapsed as in the list above, which is hidden if no run is alive
  document.querySelector("main").dataset.several = String(answer.runs.length > 1);
  const part = document.getElementById("ended-part");
  const collapsed = !part.hidden && !part.open;
  const isHidden = ({ state }) => place.run === null && collapsed && ENDED.has(state);
  const shownRuns = answer.runs.filter((one) => !isHidden(one) && (place.run === null || one.run === place.run || one.run === place.with));
  const hidden = answer.runs.filter(isHidden);
  const runs = [...shownRuns].sort((a, b) => ENDED.has(a.state) - ENDED.has(b.state)); // living ones first
  const now = new Map(newest.ranks.map((rank) => [`${rank.rank} ${rank.run}`, rank]));
  const all = runs.reduce((sum, run) => sum + run.ranks.length, 0);
  const shown = place.run === null ? MOST_RANKS : Infinity;
  rows("ranks", first(each(runs, (rank, of) => [[rank, of, now.get(`${of.rank} ${of.run}`)]]), shown).map(([rank, of, sampled]) => ({
    ...of, state: rank.state, compiles: rank.compile.phase, detail: rank.compile.phase ?? beyond(rank), steps: sampled?.steps ?? rank.steps, age: sampled?.last_step_age_seconds,
    step: (ENDED.has(rank.state) ? null : sampled?.a_step_seconds) ?? speed(rank), compile: (sampled?.compile_seconds ?? rank.compile.seconds) || (rank.compile.graphs_before ? null : 0), graphs: rank.compile.graphs,
    breaks: rank.compile.graph_breaks, recompiles: counted(rank.compile), host: rank.host,
  })));
  note("more-ranks", all > shown && `${shown} of ${all} ranks; choose a run to see all of its ranks.`);
  const listed = each(runs, recompiles);
  rows("recompiles", listed);
  const unlisted = ({ compile }) => Math.max(0, (compile.recompiles ?? 0) - compile.last.filter((one) => recompiled(one) && one.category && !one.at_limit).length);
  const left = runs.map((run) => [run.run, total(run, unlisted)]).filter(([, count]) => count > 0);
  const more = left.map(([run, count]) => `${listed.length ? "and " : ""}${count} ${listed.length ? "more " : ""}recompile${count === 1 ? "" : "s"}: warmwatch report ${quoted(run)} -v`);
  const ended = hidden.filter((run) => total(run, (rank) => rank.compile.recompiles ?? 0) > 0);
  if (ended.length) more.push(`${ended.length} ended run${ended.length === 1 ? "" : "s"} recompiled: open the list of ended runs, or choose a run`);
  note("more-recompiles", more.join("; "));
  none("recompiles", "recompile", place, hidden, left.length > 0);
  const functions = each(runs, (rank, of) => (rank.compile.functions ?? []).map((one) => ({ ...one, ...of, name: one.called })));
  const named = functions.filter((one) => one.name).sort((a, b) => b.seconds - a.seconds);
  const known = functions.reduce((sum, one) => sum + (one.others || 1), 0);
  rows("functions", first(named, MOST_FUNCTIONS));
  none("functions", "compilation", place, hidden);
  note("more-functions", known > Math.min(named.length, MOST_FUNCTIONS) && `${Math.min(named.length, MOST_FUNCTIONS)} of ${known} functions, the most expensive.`);
  showMachine(answer);
  showRank(answer, place);
}

// the length of a step of a rank of a /status answer: of the whole run if it has ended, as in a report
export function speed({ state, step_seconds: { recent, typical, median } }) {
  return (ENDED.has(state) ? null : recent) ?? typical ?? median;
}

// how many recompiles, with the one in progress, as in the terminal
function counted({ recompiles, underway }) {
  const now = underway && recompiled(underway) && !underway.backward;
  return recompiles !== null && now ? recompiles + 1 : recompiles;
}

// what qualifies "warm" or "eager", or how a rank ended, as in the terminal
function beyond({ state, conditions = [], end }) {
  if (end && end.how !== "interrupted" && end.how !== "detached") {
    return end.out_of_memory ? "out of memory" : end.exception ?? end.signal ?? (end.exit_code ? `exit code ${end.exit_code}` : null);
  }
  if (end) return end.how;
  const holds = conditions.map((held) => held.condition);
  if (holds.includes("exiting")) return "exiting";
  if (state !== "warm" && state !== "eager") return null;
  return holds.includes("silent") ? "no step" : holds.includes("slower") ? "slower" : null;
}

function each(runs, found) {
  return runs.flatMap((run) => run.ranks.flatMap((rank) => {
    const place = { run: run.run, rank: rank.rank };
    return found(rank, { run: run.run, rank: rank.rank, place });
  }));
}

function recompiles(rank, of) {
  const { varying, last } = rank.compile;
  return last.filter(recompiled).map((one) => {
    const remedy = varying.find((dim) => dim.name === one.name && dim.file === one.file && dim.line === one.line);
    const guarded = one.plain === null ? null : `Guard, in PyTorch's words: ${one.reason}`;
    return {
      ...of, key: `${of.run} ${of.rank} ${one.id} ${one.kind}`, name: one.called, seconds: one.at_limit ? null : one.total_seconds ?? one.seconds,
      plain: `${one.at_limit ? "reached the recompile limit: " : ""}${one.plain ?? one.reason}`, reason: guarded, remedy: remedy?.words ?? one.advice, where: placed(one), checked: checked(one),
    };
  }).reverse();
}

// the source lines named in the record
function placed({ file, line, caller }) {
  const own = file ? `In ${file}${line ? `, line ${line}` : ""}` : "";
  return caller ? `${own || "In library code"}, called from ${caller}` : own;
}

// the source lines of the value that the guard checks
function checked({ reason }) {
  const places = new Set(reason.match(/[\w.+@-]+\.py:\d+ in [\w.<>]+/g));
  return places.size ? `The guard checks a value of ${[...places].join(", ")}` : null;
}

const recompiled = (one) => Boolean(one.reason);

// a run's name in a command: it may be another user's choice
const quoted = (name) => (/^[\w@%+=:,./-]+$/.test(name) ? name : `'${name.replaceAll("'", `'"'"'`)}'`);

const total = ({ ranks }, count) => ranks.reduce((sum, rank) => sum + count(rank), 0);

// the sentence of an empty table: of which runs it is true. `counted`: a note has the number
function none(table, noun, place, hidden, counted = false) {
  const sentence = document.querySelector(`.none[data-of=${table}]`);
  sentence.hidden ||= counted;
  text(sentence, `No ${noun} ${place.run !== null ? "of this run " : hidden.length ? "of a living run " : ""}in the records.`);
}

// what a table leaves out; `words` is false if it is complete
function note(id, words) {
  const place = document.getElementById(id);
  place.hidden = !words;
  text(place, words || "");
}

function first(list, count) {
  return list.length > count ? list.slice(0, count) : list;
}

function showMachine(answer) {
  const users = new Map();
  for (const run of answer.runs) for (const rank of run.ranks) for (const uuid of rank.gpus) {
    users.set(uuid, [...(users.get(uuid) ?? []), `${run.run} ${rank.rank}`]);
  }
  rows("gpus", answer.gpus.map((gpu) => ({ ...gpu, ranks: users.get(gpu.uuid)?.join(", "), throttled: gpu.throttled?.join(", ") })));
  // a host without an NVIDIA GPU has no NVML to read: that is no failure
  const without = (one) => one.source === "nvml" && !one.up && one.last_success === null && answer.host?.pci_gpus === 0;
  rows("sources", answer.sources.map((one) => (without(one) ? { ...one, up: null } : one)));
  const known = answer.sources.filter((one) => !without(one));
  const down = known.filter((one) => !one.up).map(({ source, error }) => `; ${source}: ${error ?? "not read yet"}`);
  const gpu = known.length < answer.sources.length ? "; no NVIDIA GPU here" : "";
  text(document.getElementById("sources-count"), `${known.length - down.length} of ${known.length} up${down.join("")}${gpu}`);
  rows("refusals", answer.refusals);
  document.getElementById("refused").hidden = answer.refusals.length === 0;
  rows("observed", answer.observed.map((one) => ({ ...one, evidence: one.evidence.join("; ") })));
  document.getElementById("observed-part").hidden = answer.observed.length === 0;
  document.getElementById("no-gpus").hidden = answer.gpus.length > 0;
  document.getElementById("gpus-part").hidden = answer.gpus.length === 0;
}

function showRank(answer, place) {
  const part = document.getElementById("rank");
  const run = answer.runs.find((one) => one.run === place.run);
  const rank = run?.ranks.find((one) => String(one.rank) === place.rank);
  part.hidden = !rank;
  if (!rank) return;
  const compiles = rank.state === "compiling" || rank.state === "recompiling";
  fill(part, { ...rank, run: run.run, since: (compiles ? run.compiling_since : null) ?? rank.since });
  items(document.getElementById("evidence"), [...rank.conditions.map((one) => one.words), ...rank.evidence]);
  const phases = Object.entries(rank.compile.phase_seconds).sort((a, b) => b[1] - a[1]);
  rows("spent", phases.map(([name, seconds]) => ({ name, seconds })));
}
