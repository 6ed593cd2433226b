// The page: a question, its answers as they come, and the switches.

import { Problem, chat, models } from "./api.js";
import { Generation } from "./generation.js";
import { page } from "./share.js";
import { Scale } from "./strip.js";
import { View, say } from "./view.js";
import { progress, result, verdict } from "./words.js";

const LEVELED = ["relay", "margin"]; // policies that have levels
const FRAME_MS = 60; // drawing leaves the device to the models
const NEWS_MS = 10_000;
const NEAR_END = 120; // pixels from the page's end, within which it follows the text
const THEMES = ["system", "light", "dark"];
const EXAMPLES = [
  "A shop sells pens at 12 cents and notebooks at 150 cents. How much do 7 pens and 2 notebooks cost together? Reason step by step.",
  "A train covers 180 km in 2 hours and then 120 km in 3 hours. What is its average speed over the whole way? Reason step by step.",
  "How many primes are there between 30 and 50? Reason step by step.",
];

const at = (id) => document.getElementById(id);
const state = { own: null, running: null, shown: [], question: "", together: false, told: 0 };

// What the server has.

/** Anew before each question too: another server may answer by now. Gives whether it is there. */
async function load(signal) {
  try {
    offer(await models({ key: at("key").value, signal }));
    trouble(null);
    return true;
  } catch (error) {
    if (error.name !== "AbortError") trouble(error);
    return false;
  }
}

function offer([own, ...others]) {
  state.own = own;
  at("served").textContent = `${own.id} · profile ${own.relay.profile}`;
  const suffix = (card) => card.id.slice(own.id.length + 1);
  const levels = others.filter((card) => suffix(card) === card.relay.level);
  const policies = others.filter((card) => !levels.includes(card));
  options(at("policy"), `the server’s: ${own.relay.policy}`, policies.map(suffix));
  options(at("level"), `the server’s: ${own.relay.level}`, levels.map(suffix));
  at("levels").hidden = !levels.length;
  fit();
}

function leveled(policy) {
  return LEVELED.includes(policy.split(":")[0]);
}

function label(policy) {
  return ["large", "small"].includes(policy) ? `${policy} alone` : policy;
}

function options(select, first, values) {
  const chosen = select.value;
  select.replaceChildren(
    new Option(first, ""),
    ...values.map((value) => new Option(label(value), value)),
  );
  if (values.includes(chosen)) select.value = chosen;
}

/** Controls that make no sense beside others are off. */
function fit() {
  const policy = at("policy").value;
  at("level").disabled = Boolean(policy) && !leveled(policy);
  at("order").hidden = !at("race").checked;
}

// Asking.

function body(policy, level) {
  const relay = { annotate: true };
  if (policy) relay.policy = policy;
  if (level) relay.level = level;
  const made = {
    model: state.own.id,
    messages: [{ role: "user", content: state.question }],
    stream: true,
    stream_options: { include_usage: true },
    relay,
  };
  if (at("temperature").value) made.temperature = Number(at("temperature").value);
  if (at("longest").value) made.max_tokens = Number(at("longest").value);
  return made;
}

/** The generations that are wanted: each a name and a request. */
function wanted() {
  const policy = at("policy").value;
  const level = at("level").disabled ? "" : at("level").value;
  const own = state.own.relay;
  const name = policy || (level && !leveled(own.policy) ? "relay" : own.policy); // as the server reads it
  const step = leveled(name) && (level || own.level);
  const arms = [[step ? `${label(name)}, ${step}` : label(name), body(policy, level)]];
  if (at("race").checked) arms.push(["large alone", body("large", "")]);
  return arms;
}

async function ask() {
  const question = at("question").value.trim();
  if (!question) {
    at("question").focus();
    return;
  }
  state.running = new AbortController();
  const { signal } = state.running;
  at("go").textContent = "Stop";
  let scale = null;
  if (await load(signal)) {
    state.question = question;
    scale = prepare();
    await run(signal);
  }
  state.running = null;
  at("go").textContent = "Ask";
  if (scale) conclude(scale);
}

/** An empty place for each generation; gives the scale of their strips. */
function prepare() {
  const scale = new Scale();
  const arms = wanted();
  state.together = arms.length > 1 && !at("order").querySelector("[value=sequence]").checked;
  state.shown = arms.map(([name, request]) => {
    const generation = new Generation(name);
    return { generation, request, view: new View(at("arm"), generation, scale) };
  });
  at("asked").textContent = state.question;
  at("verdict").replaceChildren();
  at("arms").replaceChildren(...state.shown.map((arm) => arm.view.element));
  at("arms").className = arms.length > 1 ? "two" : "";
  at("result").hidden = false;
  at("share").disabled = true;
  at("arms").scrollIntoView({ block: "nearest" });
  return scale;
}

async function run(signal) {
  news("Writing.");
  tick();
  if (state.together) await Promise.all(state.shown.map((arm) => answer(arm, signal)));
  else for (const arm of state.shown) await answer(arm, signal);
}

async function answer(arm, signal) {
  const finish = signal.aborted ? "stopped" : await receive(arm, signal);
  arm.generation.end(performance.now(), finish);
  arm.view.draw(performance.now());
  arm.view.end();
}

/** Gives why it ended early; "" where it did not. */
async function receive({ generation, request, view }, signal) {
  generation.start(performance.now());
  try {
    for await (const [chunk, came] of chat(request, { key: at("key").value, signal })) {
      const written = generation.take(chunk, came);
      if (written) view.add(...written);
    }
    return "";
  } catch (error) {
    if (error.name === "AbortError") return "stopped";
    if (!(error instanceof Problem)) console.error(error);
    generation.problem = error instanceof Problem ? error.message : "This page has a defect.";
    if (error.status === 401) wantKey();
    return "failed";
  }
}

function conclude(scale) {
  scale.settle(Math.max(...state.shown.map((arm) => arm.generation.tokens)));
  draw();
  const generations = state.shown.map((arm) => arm.generation);
  at("share").disabled = !generations.some((each) => each.tokens);
  const whole = generations.every((each) => each.summary);
  if (whole && generations.length > 1) say(at("verdict"), verdict(...generations, state.together));
  news(generations.map(result).join(" "));
}

// Showing.

function tick() {
  if (!state.running) return;
  draw();
  const again = () => (document.hidden ? tick() : requestAnimationFrame(tick));
  setTimeout(again, FRAME_MS);
}

function draw() {
  const root = document.documentElement;
  const following = innerHeight + scrollY >= root.scrollHeight - NEAR_END;
  const now = performance.now();
  for (const arm of state.shown) if (arm.generation.ended === null) arm.view.draw(now);
  if (!state.running) for (const arm of state.shown) arm.view.draw(now);
  if (following && state.running) scrollTo({ top: root.scrollHeight, behavior: "instant" });
  if (state.running && now - state.told > NEWS_MS) {
    news(state.shown.filter((arm) => arm.generation.began !== null && arm.generation.ended === null)
      .map((arm) => progress(arm.generation)).join(". "));
  }
}

/** For screen readers, now and then. */
function news(text) {
  state.told = performance.now();
  at("news").textContent = text;
}

function trouble(error) {
  at("problem").hidden = !error;
  at("problem").textContent = error?.message ?? "";
  if (error?.status === 401) wantKey();
}

function wantKey() {
  at("more").open = true;
  setTimeout(() => at("key").focus()); // not while the focus goes elsewhere
}

function share() {
  const made = page(state.question, state.shown.map((arm) => arm.generation), {
    server: at("served").textContent,
    verdict: [...at("verdict").children].map((each) => each.textContent),
    when: new Date(),
  });
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([made], { type: "text/html" }));
  link.download = "relaygen.html";
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

function theme(name) {
  if (name === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = name;
  at("theme").textContent = `Colours: ${name}`;
  try {
    localStorage.setItem("relaygen-theme", name);
  } catch {
    // It holds until the page is closed.
  }
}

// Wiring.

at("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  if (!state.running) ask();
});
at("go").addEventListener("click", (event) => {
  if (!state.running) return;
  event.preventDefault(); // a field with an impossible value would keep the form from being sent
  state.running.abort();
});
at("question").addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
  event.preventDefault();
  if (!state.running) at("ask").requestSubmit();
});
for (const [number, button] of at("examples").querySelectorAll("button").entries()) {
  button.addEventListener("click", () => {
    at("question").value = EXAMPLES[number];
    at("question").focus();
  });
}
at("more").addEventListener("invalid", () => { at("more").open = true; }, true); // it says why
at("policy").addEventListener("change", fit);
at("race").addEventListener("change", fit);
at("key").addEventListener("change", () => load());
at("share").addEventListener("click", share);
at("theme").addEventListener("click", () => {
  const now = document.documentElement.dataset.theme ?? "system";
  theme(THEMES[(THEMES.indexOf(now) + 1) % THEMES.length]);
});
at("theme").textContent = `Colours: ${document.documentElement.dataset.theme ?? "system"}`;
fit();
load();
