// The tables, of a /status answer. Which rank is opened, the place says.

import { fill, items, rows, text } from "./show.js";

const ENDED = new Set(["finished", "failed", "lost"]);

export function showTables(answer, place) {
  const runs = answer.runs.filter((run) => place.run === null || run.run === place.run);
  rows("runs", answer.runs.map((run) => ({
    ...run, ranks: run.ranks.length, place: { run: run.run },
  })));
  rows("ranks", each(runs, (rank, of) => [{
    ...of, state: rank.state, phase: rank.compile.phase, steps: rank.steps, last: rank.step_seconds.last,
    median: rank.step_seconds.recent ?? rank.step_seconds.typical ?? rank.step_seconds.median, compile: rank.compile.seconds, graphs: rank.compile.graphs,
    breaks: rank.compile.graph_breaks, recompiles: rank.compile.recompiles, host: rank.host,
  }]));
  rows("recompiles", each(runs, recompiles));
  const functions = each(runs, (rank, of) => (rank.compile.functions ?? []).map((one) => ({ ...one, ...of, name: one.called })));
  rows("functions", functions.filter((one) => one.name).sort((a, b) => b.seconds - a.seconds).slice(0, 20));
  showMachine(answer);
  showRank(answer, place);
}

function each(runs, found) {
  return runs.flatMap((run) => run.ranks.flatMap((rank) => {
    const place = { run: run.run, rank: rank.rank };
    return found(rank, { run: run.run, rank: rank.rank, place });
  }));
}

function recompiles(rank, of) {
  const { varying, last } = rank.compile;
  return last.filter((one) => one.reason).map((one) => {
    const remedy = varying.find((dim) => dim.name === one.name && dim.file === one.file && dim.line === one.line);
    return { ...of, name: one.called, seconds: one.total_seconds ?? one.seconds, reason: one.plain ?? one.reason, remedy: remedy?.words ?? one.advice };
  }).reverse();
}

function showMachine(answer) {
  const users = new Map();
  for (const run of answer.runs) for (const rank of run.ranks) for (const uuid of rank.gpus) {
    users.set(uuid, [...(users.get(uuid) ?? []), `${run.run} ${rank.rank}`]);
  }
  rows("gpus", answer.gpus.map((gpu) => ({ ...gpu, ranks: users.get(gpu.uuid)?.join(", ") })));
  rows("sources", answer.sources);
  rows("refusals", answer.refusals);
  document.getElementById("refused").hidden = answer.refusals.length === 0;
  rows("observed", answer.observed.map((one) => ({ ...one, evidence: one.evidence.join("; ") })));
  document.getElementById("observed-part").hidden = answer.observed.length === 0;
  document.getElementById("no-gpus").hidden = answer.gpus.length > 0;
  document.getElementById("gpus-part").hidden = answer.gpus.length === 0; // said once, in the charts' place
}

function showRank(answer, place) {
  const part = document.getElementById("rank");
  const run = answer.runs.find((one) => one.run === place.run);
  const rank = run?.ranks.find((one) => String(one.rank) === place.rank);
  part.hidden = !rank;
  if (!rank) return;
  fill(part, { ...rank, run: run.run });
  items(document.getElementById("evidence"), [...rank.conditions.map((one) => one.words), ...rank.evidence]);
  const phases = Object.entries(rank.compile.phase_seconds).sort((a, b) => b[1] - a[1]);
  rows("spent", phases.map(([name, seconds]) => ({ name, seconds })));
}

// the sentence, in large type; one for each run where there are several
export function showAnswer({ summary, details, runs }, place) {
  const run = runs.find((one) => one.run === place.run);
  const gone = place.run !== null && !run; // a link to a run that has left, or is yet to come
  text(document.getElementById("summary"), gone ? `${place.run} is not seen here. ${summary}` : run?.summary ?? summary);
  const whole = document.getElementById("answer");
  const state = run?.state ?? (runs.length === 1 && !gone ? runs[0].state : null);
  whole.style.setProperty("--state", state ? `var(--${state})` : "var(--line)");
  const list = document.getElementById("sentences");
  list.hidden = runs.length < 2 || Boolean(run);
  const more = document.getElementById("details");
  const several = !run && runs.filter((one) => !ENDED.has(one.state)).length > 1; // then they are the sentences
  items(more, gone || several ? [] : (run ? run.details : details) ?? []);
  more.hidden = more.children.length === 0;
  items(list, list.hidden ? [] : runs.map((one) => one.summary));
  [...list.children].forEach((item, at) => item.style.setProperty("--state", `var(--${runs[at].state})`));
}
