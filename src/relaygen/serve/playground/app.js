// The page: a question, its answers as they come, and the switches.

import { Problem, chat, models } from "./api.js";
import { Generation } from "./generation.js";
import { page } from "./share.js";
import { Scale } from "./strip.js";
import { View, say } from "./view.js";
import { plural, progress, verdict } from "./words.js";

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
const state = { root: "", own: {}, running: null, shown: [], question: "", together: false };

// What the server has.

async function load() {
  try {
    const cards = await models(at("key").value);
    trouble("");
    offer(cards);
  } catch (error) {
    trouble(error);
  }
}

function offer(cards) {
  const [own, ...others] = cards;
  state.root = own.id;
  state.own = own.relay;
  at("served").textContent = `${own.id} · profile ${own.relay.profile}`;
  const suffix = (card) => card.id.slice(state.root.length + 1);
  const levels = others.filter((card) => suffix(card) === card.relay.level);
  const policies = others.filter((card) => !levels.includes(card));
  options(at("policy"), `the server’s: ${own.relay.policy}`, policies.map(suffix));
  options(at("level"), `the profile’s: ${own.relay.level}`, levels.map(suffix));
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
    model: state.root,
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
  const own = state.own.policy;
  const name = policy || (level && !leveled(own) ? "relay" : own); // as the server reads it
  const step = leveled(name) && (level || state.own.level);
  const arms = [[step ? `${label(name)}, ${step}` : label(name), body(policy, level)]];
  if (at("race").checked) arms.push(["large alone", body("large", "")]);
  return arms;
}

async function ask() {
  state.question = at("question").value.trim();
  if (!state.question) {
    at("question").focus();
    return;
  }
  if (!state.root) await load();
  if (!state.root) return;
  trouble("");
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
  await run(scale);
}

async function run(scale) {
  state.running = new AbortController();
  at("go").textContent = "Stop";
  news("Writing.");
  const { signal } = state.running;
  tick();
  if (state.together) await Promise.all(state.shown.map((arm) => answer(arm, signal)));
  else for (const arm of state.shown) if (!signal.aborted) await answer(arm, signal);
  state.running = null;
  at("go").textContent = "Ask";
  scale.settle(Math.max(...state.shown.map((arm) => arm.generation.tokens)));
  draw();
  conclude();
}

async function answer({ generation, request, view }, signal) {
  generation.start(performance.now());
  let finish = "";
  try {
    for await (const [chunk, came] of chat(request, { key: at("key").value, signal })) {
      const written = generation.take(chunk, came);
      if (written) view.add(...written);
    }
  } catch (error) {
    finish = error.name === "AbortError" ? "stopped" : "failed";
    if (finish === "failed") {
      if (!(error instanceof Problem)) console.error(error);
      generation.problem = error instanceof Problem ? error.message : "This page has a defect.";
      if (error.status === 401) wantKey();
    }
  }
  generation.end(performance.now(), finish);
  view.draw(performance.now());
  view.end();
}

function conclude() {
  const generations = state.shown.map((arm) => arm.generation);
  at("share").disabled = !generations.some((each) => each.tokens);
  const whole = generations.every((each) => each.summary);
  if (whole && generations.length > 1) say(at("verdict"), verdict(...generations, state.together));
  const done = ({ name, tokens, finish, problem }) =>
    problem ? `${name}: ${problem}` : `${name} ${finish === "stopped" ? "stopped" : "is done"}: ${plural(tokens, "token")}.`;
  news(generations.map(done).join(" "));
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
  at("problem").textContent = error ? error.message : "";
  if (error.status === 401) wantKey();
}

function wantKey() {
  at("more").open = true;
  at("key").focus();
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
  if (state.running) state.running.abort();
  else ask();
});
at("question").addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
  event.preventDefault();
  if (!state.running) ask();
});
for (const [number, button] of at("examples").querySelectorAll("button").entries()) {
  button.addEventListener("click", () => {
    at("question").value = EXAMPLES[number];
    at("question").focus();
  });
}
at("policy").addEventListener("change", fit);
at("race").addEventListener("change", fit);
at("key").addEventListener("change", load);
at("share").addEventListener("click", share);
at("theme").addEventListener("click", () => {
  const now = document.documentElement.dataset.theme ?? "system";
  theme(THEMES[(THEMES.indexOf(now) + 1) % THEMES.length]);
});
at("theme").textContent = `Colours: ${document.documentElement.dataset.theme ?? "system"}`;
fit();
load();
