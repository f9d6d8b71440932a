// The page: takes views from the feed and hands them to the parts that draw them.
import { Grids } from "./grid.js";
import { Plots } from "./plots.js";
import { Slider } from "./slider.js";
import { Chat } from "./chat.js";
import { figures, flights, refusals, turned } from "./tables.js";

const $ = (id) => document.getElementById(id);
const calm = matchMedia("(prefers-reduced-motion: reduce)");
const dark = matchMedia("(prefers-color-scheme: dark)");

const grids = new Grids($("grids"), $("grids-note"), $("cell"), $("legend"));
const plots = new Plots($("plots"));
const chat = new Chat($("chat"), $("log"));
let last = null;    // the newest view
let drawn = 0;      // when a view was drawn last
let feed = null;

const slider = new Slider($("time"), {
  past(moment) {
    document.body.classList.add("past");
    $("pools-title").textContent = "Page pools as they were";
    $("flights-title").textContent = "Hand-offs at that moment";
    grids.tell("");
    grids.show(moment.pools, true);
    flights($("flights"), $("flights-more"), fromPools(moment.pools), null);
  },
  live() {
    document.body.classList.remove("past");
    $("pools-title").textContent = "Page pools";
    $("flights-title").textContent = "Hand-offs in flight";
    grids.tell("");
    if (last) draw(last);
  },
});

// fromPools lists the hand-offs of a past moment, which the journal tells by their pages.
function fromPools(pools) {
  return pools.flatMap((p) => p.owners.map((o) => ({
    handoff: o.handoff, tenant: o.tenant, step: o.state, attempt: 0, decode: p.id, prefill: "", rows: null, prompt: o.prompt, output: o.output, max: null, age: null,
  })));
}

function say(text, state) {
  if ($("status").textContent !== text) $("status").textContent = text;
  $("status").dataset.state = state;
}

function draw(v) {
  last = v;
  const about = $("about");
  const line = `${v.model}, router ${v.router}, at most ${v.limit.toLocaleString("en")} tokens a request (${v.limited_by})`;
  if (about.dataset.line !== line) {
    about.dataset.line = line;
    const name = document.createElement("b");
    name.textContent = v.model;
    about.replaceChildren(name, line.slice(v.model.length));
    document.title = `Quire console: ${v.router}`;
  }
  if (v.missing && v.missing.length) say("Not ready: " + v.missing.join(", ") + " missing", "bad");
  else say("Live", "live");
  $("sign-out").hidden = !v.signed_in;
  slider.offer(v.slider);
  chat.keyed(v.keyed);
  plots.add(v.point);
  figures($("figures"), v, plots.newest("ttft50"));
  refusals($("refusals"), v.refusals);
  turned($("turned"), v.turned);
  if (!slider.inPast) {
    grids.show(v.pools, false);
    flights($("flights"), $("flights-more"), v.flights, v.in_flight);
  }
}

function open() {
  feed = new EventSource("/console/api/feed");
  feed.addEventListener("series", (e) => plots.begin(JSON.parse(e.data)));
  feed.addEventListener("state", (e) => {
    const now = performance.now();
    if (calm.matches && now - drawn < 1900) return;
    drawn = now;
    draw(JSON.parse(e.data));
  });
  feed.onerror = () => {
    if (feed && feed.readyState === EventSource.CLOSED) {
      say("Refused: sign in again", "bad");
      location.reload();
      return;
    }
    say("Connection lost, trying again", "bad");
  };
}

$("pause").addEventListener("click", () => {
  const paused = $("pause").getAttribute("aria-pressed") !== "true";
  $("pause").setAttribute("aria-pressed", String(paused));
  if (paused) {
    feed.close();
    feed = null;
    say("Paused", "wait");
  } else open();
});

const themes = ["system", "light", "dark"];
function theme(name) {
  if (name === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = name;
  try {
    if (name === "system") localStorage.removeItem("quire-theme");
    else localStorage.setItem("quire-theme", name);
  } catch (e) { /* no storage: it holds until the page is left */ }
  $("theme").textContent = "Theme: " + name;
  repaint();
}
function repaint() {
  grids.repaint();
  plots.repaint();
}
$("theme").textContent = "Theme: " + (document.documentElement.dataset.theme || "system");
$("theme").addEventListener("click", () => {
  const now = document.documentElement.dataset.theme || "system";
  theme(themes[(themes.indexOf(now) + 1) % themes.length]);
});
dark.addEventListener("change", repaint);
new ResizeObserver(repaint).observe($("grids"));

for (const radio of document.querySelectorAll("input[name=colour]")) {
  radio.addEventListener("change", () => grids.colourBy(radio.value));
}
grids.colourBy(document.querySelector("input[name=colour]:checked").value);
open();
