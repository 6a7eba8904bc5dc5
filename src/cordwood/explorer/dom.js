/** Create elements: name, attributes, listeners and children in one call. Texts are never parsed as markup. */

const SVG = "http://www.w3.org/2000/svg";

export function h(tag, attributes, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

export function svg(tag, attributes, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

/** Replace the children of an element. */
export function put(element, ...children) {
  element.replaceChildren(...children.flat(Infinity).filter(isShown));
  return element;
}

export function option(value, label = value, selected = false) {
  return h("option", { value, selected }, label);
}

let lastId = 0;

/** Return an id that is unique on the page. */
export function newId(prefix) {
  lastId += 1;
  return `${prefix}-${lastId}`;
}

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) set(element, name, value);
  element.append(...children.flat(Infinity).filter(isShown));
  return element;
}

function set(element, name, value) {
  if (value === undefined || value === null || value === false) return;
  if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
  else if (name === "style") for (const [key, one] of Object.entries(value)) element.style.setProperty(key, one);
  else if (name === "value" || name === "selected" || name === "checked") element[name] = value;
  else element.setAttribute(name, value === true ? "" : value);
}

function isShown(child) {
  return child !== null && child !== undefined && child !== false;
}
