// Numbers as text, and rows into tables. Only text is ever set: names are whatever somebody chose.

import { link } from "./place.js";

const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });

export const as = {
  moment: (value) => clock.format(new Date(value * 1000)),
  seconds: (value) => `${significant(value)} s`,
  percent: (value) => `${Math.round(value * 100)} %`,
  watts: (value) => `${Math.round(value)} W`,
  bytes: (value) => `${(value / 1e9).toFixed(1)} GB`,
  celsius: (value) => `${Math.round(value)} °C`,
};

function significant(value) {
  if (value >= 100) return value.toFixed(0);
  if (value >= 10) return value.toFixed(1);
  return value >= 1 ? value.toFixed(2) : value.toPrecision(2);
}

export function text(element, value) {
  const said = value === null || value === undefined ? "" : String(value);
  if (element.textContent !== said) element.textContent = said;
}

// CSS knows the colour of each state and phase by its name; anything else has none
export function colour(element, property, name) {
  element.style.setProperty(property, /^[a-z_]+$/.test(name ?? "") ? `var(--${name})` : "transparent");
}

export function fill(root, data) {
  for (const one of root.querySelectorAll("[data-f]")) {
    const value = data[one.dataset.f];
    text(one, value === null || value === undefined ? "" : (as[one.dataset.as] ?? String)(value));
    if (one.classList.contains("state")) colour(one, "--state", value);
    if (one.hasAttribute("data-place")) one.setAttribute("href", link(data.place));
  }
  for (const one of root.querySelectorAll("[data-phase]")) colour(one, "--dot", data[one.dataset.phase]);
  for (const one of root.querySelectorAll("[data-flag]")) one.dataset.flag = String(data.up);
}

// rows keep their element from one look to the next, so focus and selection stay where they are
export function rows(name, list) {
  const body = document.querySelector(`#${name} tbody`);
  const template = document.querySelector(`template[data-row=${name}]`);
  list.forEach((data, at) => {
    const row = body.rows[at] ?? body.appendChild(template.content.firstElementChild.cloneNode(true));
    fill(row, data);
  });
  while (body.rows.length > list.length) body.lastElementChild.remove();
  const none = document.querySelector(`.none[data-of=${name}]`);
  if (none) {
    none.hidden = list.length > 0;
    body.closest(".wide").hidden = list.length === 0;
  }
}

// texts as items of a list, each in the first span of the template where one is named
export function items(list, texts, template = "item") {
  const made = () => document.getElementById(template).content.firstElementChild.cloneNode(true);
  texts.forEach((said, at) => text((list.children[at] ?? list.appendChild(made())).querySelector("span"), said));
  while (list.children.length > texts.length) list.lastElementChild.remove();
}
