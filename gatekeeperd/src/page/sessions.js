// Sessions: the list, the live view with its actions and denials, and the film strip of a recording.

import { ago, api, attempt, clock, detail, dialog, h, path, short, source, toast, words } from "/dom.js";
import { live } from "/live.js";

const isOpen = (session) => !session.ended_at;

export function sessions(main, me, chosen) {
  const list = h("div", { class: "list" });
  const right = h("div", {});
  const split = h("div", { class: chosen ? "split chosen" : "split" }, list, right);
  const buttons = [h("button", { type: "button", "data-key": "n", title: "Key n", onclick: () => open() }, "New session")];
  if (me.operator) {
    const refresh = (event) => attempt(async () => show((await api("POST", "/v1/refreshes")).session_id), event.target);
    buttons.push(h("button", { type: "button", class: "plain", onclick: refresh }, "Refresh a login"));
  }
  main.replaceChildren(h("div", { class: "row top" }, h("h1", { class: "grow" }, "Sessions"), buttons), split);
  let shown = null;
  let known = [];
  // Where each session went last: a name that says more than its id.
  const hosts = new Map();
  function went(row) {
    if (row.action === "navigate" && URL.canParse(row.detail?.url)) hosts.set(row.session_id, new URL(row.detail.url).host);
  }

  const show = (id) => (location.hash = `sessions/${id}`);

  async function load() {
    known = (await api("GET", "/v1/sessions")).sessions;
    const now = known.filter(isOpen);
    const past = known.filter((session) => !isOpen(session)).slice(0, 30);
    const part = (title, items) => (items.length ? [h("h2", {}, title), items.map(item)] : []);
    list.replaceChildren(...part("Open", now).flat(), ...part("Ended", past).flat());
    const session = known.find((one) => one.session_id === chosen);
    if (!known.length) return (right.replaceChildren(nothing()), undefined);
    if (!session) {
      if (!chosen && now.length && innerWidth > 760) return show(now[0].session_id);
      if (!shown) right.replaceChildren(h("div", { class: "card empty" }, "Choose a session."));
      return;
    }
    const state = `${session.session_id} ${isOpen(session)} ${session.state}`;
    if (shown?.state !== state) {
      shown?.leave();
      shown = { state, ...one(session) };
      right.replaceChildren(shown.element);
    }
  }

  function item(session) {
    const on = isOpen(session);
    const current = session.session_id === chosen;
    const kind = session.kind === "session" ? null : h("span", { class: "badge tint" }, session.kind);
    const host = hosts.get(session.session_id);
    const line = [session.credential_mode === "operator" ? session.domains.join(", ") : "clean", `record ${session.record}`];
    if (host) line.unshift(short(session.session_id));
    return h("button", { class: "item", type: "button", "aria-current": current ? "true" : null, onclick: () => show(session.session_id) },
      h("span", { class: "row" }, h("span", { class: on ? (session.state === "open" ? "dot on" : "dot busy") : "dot" }),
        h("strong", { class: host ? "grow" : "mono grow" }, host || short(session.session_id)), kind),
      h("span", { class: "soft small" }, line.join(" · ")),
      h("span", { class: "soft small" }, on ? `started ${ago(session.started_at)}` : `ended ${ago(session.ended_at)}`));
  }

  const nothing = () => h("div", { class: "card empty" }, h("h2", {}, "No sessions yet"),
    h("p", {}, "A session is one confined browser with an empty profile. It is gone when you close it."),
    h("button", { type: "button", onclick: () => open() }, "New session"));

  function open() {
    const domains = h("input", { placeholder: "github.com", autocomplete: "off" });
    const grant = h("input", { type: "password", autocomplete: "off" });
    const extra = h("div", { class: "stack", hidden: true }, h("label", {}, "Domains", domains), h("label", {}, "Grant token", grant));
    const mode = h("select", { onchange: () => (extra.hidden = mode.value !== "operator") },
      h("option", { value: "clean" }, "clean: no cookies"), h("option", { value: "operator" }, "operator: cookies against a grant"));
    const record = h("select", {}, h("option", { value: "transient" }, "transient: the last 50, gone at the end"),
      h("option", { value: "audit" }, "audit: all, for 7 days"), h("option", { value: "off" }, "off: none"));
    const submit = h("button", { type: "submit" }, "Open");
    const form = h("form", { onsubmit: (event) => {
      event.preventDefault();
      attempt(async () => {
        const request = { credential_mode: mode.value, record: record.value };
        if (mode.value === "operator") Object.assign(request, { domains: words(domains.value), grant_token: grant.value.trim() });
        const opened = await api("POST", "/v1/sessions", request);
        box.close();
        show(opened.session_id);
      }, submit);
    } }, h("h1", {}, "New session"), h("label", {}, "Credentials", mode), extra, h("label", {}, "Recording", record),
      h("div", { class: "buttons" }, h("button", { type: "button", class: "plain", onclick: () => box.close() }, "Cancel"), submit));
    const box = dialog("New session", form);
  }

  const again = () => load().catch((error) => error.status !== 401 && toast(error.message));
  const acted = (event) => {
    went(event.detail);
    if (/session|refresh|task|navigate/.test(event.detail.action)) again();
  };
  addEventListener("action", acted);
  const timer = setInterval(again, 5000);
  again();
  api("GET", "/v1/audit?action=navigate&limit=200").then((found) => (found.audit.reverse().forEach(went), again())).catch(() => {});
  return () => {
    removeEventListener("action", acted);
    clearInterval(timer);
    shown?.leave();
  };
}

/** One session: what it shows, what it does, what it was denied, and its pictures. */
function one(session) {
  const id = session.session_id;
  const on = isOpen(session);
  const feed = h("ul", { class: "feed", "aria-label": "Actions" });
  const denied = h("ul", { class: "feed", "aria-label": "Denials" });
  const deniedCount = h("span", { class: "count" }, "0");
  const film = h("div", { class: "film" });
  const strip = h("section", { class: "card", hidden: true }, h("div", { class: "head" }, h("h2", {}, "Recording"), h("span", { class: "badge" }, session.record)), film);
  const view = on && session.state === "open" ? live(session) : null;
  const close = h("button", { type: "button", class: "danger", onclick: (event) => attempt(async () => {
    await api("DELETE", path("v1", session.kind === "task" ? "tasks" : "sessions", id));
    toast(session.kind === "task" ? "The task stops at its next step." : "The session is closed.");
  }, event.target) }, session.kind === "task" ? "Abort" : "Close");
  const state = on ? h("span", { class: session.state === "open" ? "badge good" : "badge warn" }, session.state) : h("span", { class: "badge" }, session.state);
  const head = h("div", { class: "row" }, h("a", { class: "only-phone", href: "#sessions" }, "‹ All"), h("h2", { class: "mono" }, short(id)), state,
    h("span", { class: "badge" }, session.credential_mode), h("span", { class: "grow soft small" + (on ? " since" : "") }, on ? `since ${clock(session.started_at)}` : session.end_reason), on ? close : null);
  const ended = h("div", { class: "card empty" }, h("h2", {}, "This session has ended"), h("p", {}, session.end_reason || ""));
  const element = h("div", { class: "stack" }, head, h("div", { class: "work" },
    h("div", { class: "stack" }, view ? view.element : ended, strip),
    h("div", { class: "stack" },
      h("section", { class: "card" }, h("div", { class: "head" }, h("h2", { class: "grow" }, "Actions")), feed),
      h("section", { class: "card" }, h("div", { class: "head" }, h("h2", { class: "grow" }, "Denied"), deniedCount), denied))));

  function add(row, first) {
    const line = h("li", {}, h("span", { class: "row" }, h("strong", { class: "grow" }, row.action), h("span", { class: "soft small" }, clock(row.at))),
      detail(row) ? h("span", { class: "soft small mono" }, detail(row)) : null);
    if (first) feed.prepend(line);
    else feed.append(line);
  }
  async function denials() {
    if (!on) return denied.replaceChildren(h("li", { class: "soft" }, "Known only while the session is open."));
    const found = (await api("GET", path("v1", "sessions", id, "denials"))).denials;
    deniedCount.textContent = String(found.length);
    deniedCount.className = found.length ? "badge bad" : "count";
    if (String(found.map((one) => one.count)) === denied.dataset.known) return;
    denied.dataset.known = String(found.map((one) => one.count));
    denied.replaceChildren(...(found.length ? found.map(denial) : [h("li", { class: "soft" }, "Nothing was denied.")]));
  }
  async function pictures() {
    if (session.record === "off") return;
    const names = (await api("GET", path("v1", "sessions", id, "recordings"))).recordings;
    strip.hidden = !names.length;
    const last = names.slice(-60);
    if (film.dataset.known === last.join()) return;
    film.dataset.known = last.join();
    film.replaceChildren(...last.map((name) => {
      const src = source(path("v1", "sessions", id, "recordings", name));
      const image = h("img", { src, alt: `Screenshot ${name}`, loading: "lazy" });
      const large = () => dialog(name, h("div", { class: "body" }, h("h2", { class: "mono" }, name), h("img", { src, alt: `Screenshot ${name}` })), true);
      return h("button", { type: "button", onclick: large }, image, h("span", {}, name.replace(".png", "")));
    }));
    film.scrollLeft = film.scrollWidth;
  }
  const quietly = (work) => work().catch(() => {});
  const again = () => (quietly(denials), quietly(pictures));
  const acted = (event) => {
    if (event.detail.session_id !== id) return;
    add(event.detail, true);
    setTimeout(again, 700);
  };
  quietly(async () => {
    const rows = (await api("GET", `/v1/audit?session_id=${encodeURIComponent(id)}&limit=100`)).audit;
    rows.forEach((row) => add(row, false));
    view?.at(rows.find((row) => row.action === "navigate")?.detail.url);
  });
  again();
  addEventListener("action", acted);
  const timer = on ? setInterval(() => quietly(denials), 3000) : 0;
  return { element, leave: () => {
    removeEventListener("action", acted);
    clearInterval(timer);
    view?.leave();
  } };
}

function denial(row) {
  const remedy = row.allow_with ? h("span", {}, "To allow it, start the daemon with ", h("code", {}, row.allow_with)) : h("span", {}, "Nothing allows it: sessions reach public addresses only.");
  const why = h("div", { class: "why", hidden: true }, h("span", {}, row.rule.replace(/^network mode hosts: /, "")), remedy);
  const button = h("button", { type: "button", class: "link small", "aria-expanded": "false", onclick: () => {
    why.hidden = !why.hidden;
    button.setAttribute("aria-expanded", String(!why.hidden));
  } }, "Why?");
  return h("li", {}, h("span", { class: "row" }, h("code", { class: "grow" }, row.host || row.path || row.syscall), h("span", { class: "soft small" }, `${row.count}×`), button), why);
}
