// Login, sections, keys and theme.

import { api, attempt, h, key, source, toast } from "/dom.js";
import { sessions } from "/sessions.js";
import { audit, credentials, grants } from "/records.js";

const SECTIONS = [
  { name: "sessions", title: "Sessions", show: sessions },
  { name: "audit", title: "Audit", show: audit },
  { name: "grants", title: "Grants", show: grants, operator: true },
  { name: "credentials", title: "Credentials", show: credentials, operator: true },
];
const main = document.getElementById("main");
let me = null;
let events = null;
let leave = null;

function theme(wanted) {
  const chosen = wanted || localStorage.getItem("theme");
  const dark = chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  if (wanted) localStorage.setItem("theme", wanted);
}
const other = () => (document.documentElement.dataset.theme === "dark" ? "light" : "dark");

function login() {
  document.getElementById("bar").hidden = true;
  const token = h("input", { type: "password", id: "token", autocomplete: "off", required: true, placeholder: "gkt_…" });
  const wrong = h("p", { class: "error", role: "alert", hidden: true });
  const form = h("form", { class: "card", onsubmit: async (event) => {
    event.preventDefault();
    wrong.hidden = true;
    try {
      me = await api("POST", "/v1/login", { token: token.value.trim() });
      key.set(me.key);
      token.value = "";
      begin();
    } catch (error) {
      wrong.textContent = error.status === 401 ? "This token is not known here." : error.message;
      wrong.hidden = false;
      token.select();
    }
  } },
    h("div", { class: "brand" }, h("img", { src: "/icon.svg", alt: "" }), "gatekeeperd"),
    h("p", { class: "soft" }, "Browser sessions for tasks. Log in with a token of your tenant; it is exchanged once and not kept in this page."),
    h("label", {}, "Token", token), wrong,
    h("button", { type: "submit" }, "Log in"),
    h("p", { class: "soft small" }, h("code", {}, "gatekeeperd token create --tenant NAME"), " makes one."));
  main.replaceChildren(h("div", { class: "login" }, form));
  token.focus();
}

function begin() {
  document.getElementById("bar").hidden = false;
  document.getElementById("who").textContent = me.operator ? `${me.tenant} · operator` : me.tenant;
  if (events) events.close();
  events = new EventSource(source("/v1/events"));
  events.onmessage = (event) => dispatchEvent(new CustomEvent("action", { detail: JSON.parse(event.data) }));
  route();
}

const allowed = () => SECTIONS.filter((section) => me.operator || !section.operator);

function route() {
  if (!me) return;
  const [name, id] = location.hash.slice(1).split("/");
  const section = allowed().find((known) => known.name === name) || SECTIONS[0];
  const links = allowed().map((known, at) =>
    h("a", { href: `#${known.name}`, "aria-current": known === section ? "page" : null, title: `Key ${at + 1}` }, known.title));
  document.getElementById("nav").replaceChildren(...links);
  document.title = `${section.title} · gatekeeperd`;
  if (leave) leave();
  leave = section.show(main, me, id ? decodeURIComponent(id) : null) || null;
}

addEventListener("hashchange", route);
addEventListener("loggedout", () => {
  if (!me) return;
  me = null;
  if (leave) leave();
  leave = null;
  if (events) events.close();
  login();
  toast("You are logged out.");
});
addEventListener("keydown", (event) => {
  const busy = event.target.closest("input, select, textarea, dialog, .view.input");
  if (!me || busy || event.ctrlKey || event.altKey || event.metaKey) return;
  const section = allowed()[Number(event.key) - 1];
  if (section) location.hash = section.name;
  else if (event.key === "t") theme(other());
  else if (event.key === "n") document.querySelector("[data-key=n]")?.click();
  else if (event.key === "j" || event.key === "k") step(event.key === "j" ? 1 : -1);
});
function step(by) {
  const items = [...document.querySelectorAll(".item")];
  const at = items.findIndex((item) => item.hasAttribute("aria-current"));
  items[Math.min(items.length - 1, Math.max(0, at + by))]?.click();
}
document.getElementById("theme").addEventListener("click", () => theme(other()));
document.getElementById("logout").addEventListener("click", (event) => attempt(async () => {
  await api("DELETE", "/v1/login");
  key.drop();
  dispatchEvent(new Event("loggedout"));
}, event.target));

theme();
try {
  me = await api("GET", "/v1/login");
  begin();
} catch {
  login();
}
