// Numbers as text, and rows in tables. Sets text only, never HTML: names are user input.

import { link } from "./place.js";

const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });

export const as = {
  moment: (value) => clock.format(new Date(value * 1000)),
  minute: (value) => clock.format(new Date(value * 1000)).slice(0, 5),
  length, duration,
  spent: (value) => (value ? length(value) : "none"),
  percent: (value) => `${Math.round(value * 100)} %`,
  watts: (value) => `${Math.round(value)} W`,
  bytes: (value) => `${(value / 1e9).toFixed(1)} GB`,
  celsius: (value) => `${Math.round(value)} °C`,
  age: (value) => (value < 1 ? "now" : `${duration(value)} ago`),
};

// what was measured, with three significant figures as in the terminal; a duration is for progress
function length(value) {
  if (value < 0.9995) return `${Number((value * 1e3).toPrecision(3))} ms`;
  if (value < 99.95) return `${Number(value.toPrecision(3))} s`;
  const whole = Math.round(value);
  if (whole < 600) return `${whole} s`;
  const [large, name, small, rest] = whole < 7200 ? [60, "min", 1, "s"] : whole < 172800 ? [3600, "h", 60, "min"] : [86400, "d", 3600, "h"];
  const few = Math.floor((whole % large) / small);
  return `${Math.floor(whole / large)} ${name}${few ? ` ${few} ${rest}` : ""}`;
}

function duration(value) {
  if (value < 0.9995) return `${Number((value * 1e3).toPrecision(3))} ms`;
  if (value < 9.95) return `${value.toFixed(1)} s`;
  if (value < 599.5) return `${value.toFixed(0)} s`;
  const minutes = Math.round(value / 60);
  if (minutes < 120) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h ${minutes % 60} min` : `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

export function text(element, value) {
  const shown = value === null || value === undefined ? "" : String(value);
  if (element.textContent !== shown) element.textContent = shown;
}

const written = new WeakMap(); // the text of each element that `words` has filled

// a sentence, with the names between backticks as code
export function words(element, value) {
  const shown = value === null || value === undefined ? "" : String(value);
  if (written.get(element) === shown) return;
  written.set(element, shown);
  const parts = shown.split("`");
  if (parts.length % 2 === 0) element.textContent = shown; // an unclosed backtick is literal
  else element.replaceChildren(...parts.map((part, at) => (at % 2 ? code(part) : part)).filter((part) => part !== ""));
}

function code(name) {
  const element = document.createElement("code");
  element.textContent = name;
  return element;
}

// CSS has a color for each state and phase by its name; other values have none
export function colour(element, property, name) {
  element.style.setProperty(property, /^[a-z_]+$/.test(name ?? "") ? `var(--${name})` : "transparent");
}

export function stated(element, state) {
  if (element.dataset.state !== state) element.dataset.state = state ?? "";
  colour(element, "--fill", state);
}

export function fill(root, data) {
  for (const one of root.querySelectorAll("[data-f]")) {
    const value = data[one.dataset.f];
    if (one.dataset.as === "words") words(one, value);
    else text(one, value === null || value === undefined ? "" : (as[one.dataset.as] ?? String)(value));
    if (one.classList.contains("state")) stated(one, data.state);
    if (one.hasAttribute("data-place")) one.setAttribute("href", link(data.place));
  }
  for (const one of root.querySelectorAll("[data-phase]")) {
    one.hidden = !data[one.dataset.phase];
    colour(one, "--dot", data[one.dataset.phase]);
  }
  for (const one of root.querySelectorAll("[data-flag]")) one.dataset.flag = String(data.up);
}

// on a phone each cell stands below the others, after the name of its column
function labelled(row, body) {
  const heads = body.closest("table").tHead.rows[0].cells;
  [...row.cells].forEach((cell, at) => { cell.dataset.label = heads[at].dataset.label ?? heads[at].textContent; });
  return row;
}

// reuse a row's element for the next answer, so that focus and selection remain
export function rows(name, list) {
  const body = document.querySelector(`#${name} tbody`);
  const template = document.querySelector(`template[data-row=${name}]`);
  list.forEach((data, at) => {
    const row = body.rows[at] ?? body.appendChild(labelled(template.content.firstElementChild.cloneNode(true), body));
    fill(row, data);
    if (data.key === undefined || row.dataset.key === data.key) return;
    row.dataset.key = data.key; // another row than before: do not expand it
    for (const one of row.querySelectorAll("details[open]")) one.open = false;
  });
  while (body.rows.length > list.length) body.lastElementChild.remove();
  const none = document.querySelector(`.none[data-of=${name}]`);
  if (none) {
    none.hidden = list.length > 0;
    body.closest(".wide").hidden = list.length === 0;
  }
}

// texts as list items, each in the first span of the template if one is given
export function items(list, texts, template = "item") {
  const made = () => document.getElementById(template).content.firstElementChild.cloneNode(true);
  texts.forEach((one, at) => words((list.children[at] ?? list.appendChild(made())).querySelector("span"), one));
  while (list.children.length > texts.length) list.lastElementChild.remove();
}
