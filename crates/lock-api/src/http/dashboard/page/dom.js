// Elements, made of their parts. Text goes in as text and as nothing else: names and notes are untrusted.

const SVG = "http://www.w3.org/2000/svg";

// Characters that nobody sees, or that change the direction of what stands beside them. Tabs and line feeds are in data.
const HIDDEN = /[^\P{Cc}\t\n]|\p{Cf}|\p{Zl}|\p{Zp}|\p{Default_Ignorable_Code_Point}/gu;

/** A text in which such characters are spelled: `\u{202e}`. */
function visible(text) {
  return String(text).replace(HIDDEN, (hidden) => `\\u{${hidden.codePointAt(0).toString(16)}}`);
}

function fill(element, properties, children) {
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "class") element.setAttribute("class", value);
    else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  add(element, children);
  return element;
}

function add(element, children) {
  for (const child of children.flat(3)) {
    if (child === undefined || child === null || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(visible(child)));
  }
}

/** `el("p", {class: "soft"}, "text", el("b", null, name))` */
export function el(tag, properties, ...children) {
  return fill(document.createElement(tag), properties, children);
}

/** The same for a part of a drawing. */
export function svg(tag, properties, ...children) {
  return fill(document.createElementNS(SVG, tag), properties, children);
}

/** Puts these in the place of what is in an element. */
export function show(element, ...children) {
  element.replaceChildren();
  add(element, children);
}

/** Sets a text if it is another one, so that what is selected stays so. */
export function setText(element, text) {
  const now = visible(text);
  if (element.textContent !== now) element.textContent = now;
}

/** A drawing of a few strokes on 24 × 24. */
export function icon(...paths) {
  const properties = { viewBox: "0 0 24 24", fill: "none", stroke: "currentColor", "stroke-width": 1.8,
    "stroke-linecap": "round", "stroke-linejoin": "round", "aria-hidden": "true" };
  return svg("svg", properties, paths.map((d) => svg("path", { d })));
}

/** A short message, which goes by itself. */
export function note(text, kind = "good") {
  const shown = el("p", { class: "note", "data-kind": kind }, text);
  document.getElementById("notes").append(shown);
  setTimeout(() => shown.remove(), kind === "bad" ? 9000 : 4500);
}
