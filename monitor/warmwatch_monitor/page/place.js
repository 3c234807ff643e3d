// The URL fragment: run, rank, overlaid run, moment and zoom. A link preserves all of them.

const NAMES = ["run", "rank", "with", "at", "from", "to"];
const LAST = 8.64e12; // seconds: the maximum of a Date

export function read() {
  const given = new URLSearchParams(location.hash.slice(1));
  const moment = (name) => {
    const at = Number(given.get(name));
    return at > 0 && at <= LAST ? at : null;
  };
  const [from, to] = [moment("from"), moment("to")];
  const zoomed = from !== null && to !== null && to - from >= 1;
  const run = given.get("run") || null, over = given.get("with") || null;
  return {
    run, rank: given.get("rank") || null, with: run !== null && over !== run ? over : null, at: moment("at"),
    from: zoomed ? from : null, to: zoomed ? to : null,
  };
}

export function link(place) {
  const given = new URLSearchParams();
  for (const name of NAMES) if (place[name] !== null && place[name] !== undefined) given.set(name, place[name]);
  return "#" + given.toString();
}

export function go(change) {
  const next = link({ ...read(), ...change });
  if (next === (location.hash || "#")) return;
  history.replaceState(null, "", next);
  dispatchEvent(new HashChangeEvent("hashchange"));
}

export function follow(moved) {
  addEventListener("hashchange", () => moved(read()));
}
