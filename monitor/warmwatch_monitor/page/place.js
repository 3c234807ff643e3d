// What the address' fragment says: which run, rank and moment is looked at. A link keeps all of it.

const NAMES = ["run", "rank", "at"];
const LAST = 8.64e12; // seconds: no date comes after it

export function read() {
  const said = new URLSearchParams(location.hash.slice(1));
  const place = {};
  for (const name of NAMES) if (said.get(name)) place[name] = said.get(name);
  const at = Number(place.at);
  return { run: place.run ?? null, rank: place.rank ?? null, at: at > 0 && at <= LAST ? at : null };
}

export function link(place) {
  const said = new URLSearchParams();
  for (const name of NAMES) if (place[name] !== null && place[name] !== undefined) said.set(name, place[name]);
  return "#" + said.toString();
}

export function go(change) {
  const next = link({ ...read(), ...change });
  if (next === (location.hash || "#")) return;
  history.replaceState(null, "", next);
  dispatchEvent(new HashChangeEvent("hashchange"));
}

export function follow(told) {
  addEventListener("hashchange", () => told(read()));
}
