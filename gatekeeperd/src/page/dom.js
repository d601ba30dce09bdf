// Elements, requests and small texts. Content of pages and errors only ever becomes text, never markup.

export function h(tag, properties, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "class") element.className = value;
    else if (name in element && name !== "list") element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

export class Problem extends Error {
  constructor(status, code, message) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

// The half of the login that this page keeps. The other half is a cookie, which servers on other ports get to see.
export const key = { get: () => localStorage.getItem("key") || "", set: (value) => localStorage.setItem("key", value), drop: () => localStorage.removeItem("key") };
/** The address of a picture or a stream, whose request has no headers of ours. */
export const source = (path) => `${path}?key=${encodeURIComponent(key.get())}`;

export async function api(method, path, body) {
  const options = { method, headers: { "X-Gatekeeperd-Key": key.get() }, credentials: "same-origin" };
  if (body !== undefined) {
    options.body = JSON.stringify(body);
    options.headers["Content-Type"] = "application/json";
  }
  let response;
  try {
    response = await fetch(path, options);
  } catch {
    throw new Problem(0, "unreachable", "gatekeeperd does not answer. Is it still running?");
  }
  const text = await response.text();
  let value = null;
  try {
    value = text ? JSON.parse(text) : null;
  } catch {
    // An answer without JSON has no message either.
  }
  if (!response.ok) {
    const error = (value && value.error) || {};
    if (response.status === 401) dispatchEvent(new Event("loggedout"));
    throw new Problem(response.status, error.code || "error", error.message || `The daemon answered ${response.status}.`);
  }
  return value;
}

let hiding;
export function toast(text) {
  const element = document.getElementById("toast");
  element.textContent = text;
  element.classList.add("shown");
  clearTimeout(hiding);
  hiding = setTimeout(() => element.classList.remove("shown"), 4000);
}

/** Runs an action of the user, and shows its error. */
export async function attempt(action, button) {
  if (button) button.disabled = true;
  try {
    return await action();
  } catch (error) {
    toast(error.message);
  } finally {
    if (button) button.disabled = false;
  }
}

export const path = (...parts) => "/" + parts.map(encodeURIComponent).join("/");
export const clock = (time) => new Date(time).toLocaleTimeString([], { hour12: false });
export const short = (id) => (id || "").slice(0, 8);

export function ago(time) {
  const seconds = Math.max(0, Math.round((Date.now() - new Date(time)) / 1000));
  if (seconds < 60) return `${seconds} s ago`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ago`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ago`;
  return new Date(time).toLocaleDateString();
}

export function words(text) {
  return text.split(/[\s,]+/).filter(Boolean);
}

export function dialog(title, content, wide) {
  const box = h("dialog", { class: wide ? "wide" : "", "aria-label": title }, content);
  box.addEventListener("close", () => box.remove());
  box.addEventListener("click", (event) => event.target === box && box.close());
  document.body.append(box);
  box.showModal();
  return box;
}

export function detail(row) {
  const values = Object.entries(row.detail || {}).filter(([, value]) => value !== null && value !== false && !(Array.isArray(value) && !value.length));
  const text = (value) => (Array.isArray(value) ? value.join(" ") : typeof value === "object" ? JSON.stringify(value) : value);
  return values.map(([name, value]) => `${name} ${text(value)}`).join(", ");
}
