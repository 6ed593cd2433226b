// What the page says in words and numbers.

const WHY = {
  cue: "a cue announced an easy sentence",
  sentence: "the sentence ended",
  stage: "the thinking is over",
  answer: "the text announced its final answer",
  limit: "the segment reached its limit",
  turn: "the small model had nothing more to say",
  context: "the small model's context is full",
  failure: "the other model failed",
  loop: "the text went round in circles",
  marker: "the small model wanted to end the thinking",
  margin: "the small model was not sure of its next word",
  random: "by chance",
  entropy: "the model was not certain",
  certain: "the model was certain",
  affirmation: "a paragraph that affirms",
  reflection: "a paragraph that reflects",
  recap: "too many paragraphs that reflect",
  written: "the paragraph has begun",
};

/** Seconds for people: 0.04 s, 8.2 s, 123 s. The unit stays on the number's line. */
export function seconds(value) {
  return `${value.toFixed(value < 1 ? 2 : value < 100 ? 1 : 0)}\u00a0s`;
}

function plural(count, noun) {
  return `${count} ${noun}${count === 1 ? "" : "s"}`;
}

/** A message that may or may not have a full stop, as a sentence. */
export function sentence(text) {
  return /[.!?]$/.test(text) ? text : `${text}.`;
}

export function percent(share) {
  return share === null ? "–" : `${Math.round(100 * share)}\u00a0%`;
}

/** What may be known of a segment, part by part. */
export function facts(segment, of) {
  const parts = [`${segment.number} of ${of}`];
  if (segment.model === "inserted") {
    return [...parts, `${plural(segment.tokens, "token")} inserted to end the thinking`];
  }
  const took = (segment.latest - segment.began) / 1000;
  parts.push(`${segment.model} model`);
  parts.push(`${plural(segment.tokens, "token")} in ${seconds(took)}`);
  const hand = segment.hand;
  if (!hand) return parts;
  const cue = hand.cue.trim();
  if (cue) parts.push(`cue “${cue}”`);
  if (hand.why !== "cue" || !cue) parts.push(WHY[hand.why] ?? hand.why);
  parts.push(`hand-off ${seconds(hand.seconds)}`);
  if (hand.discarded) parts.push(`${hand.discarded} discarded`);
  return parts;
}

function ratio(value, other) {
  const shown = Number(value.toFixed(2));
  const word = shown < 1 ? "slower than" : shown > 1 ? "faster than" : "as fast as";
  return `${value.toFixed(2)}×, ${word} ${other}`;
}

/** How it went, one sentence each: what it gained or lost comes first and is always there. */
export function outcome(generation) {
  const said = [];
  const { summary, finish } = generation;
  if (generation.began === null) return ["Not asked: it was stopped before."];
  if (finish === "stopped") said.push("Stopped: this is what was written until then.");
  if (!summary) return said;
  if (!generation.segments.some((segment) => segment.text.trim())) said.push("It wrote nothing.");
  const { speedup, large_alone: alone } = summary.estimate;
  const single = ["large", "small"].includes(summary.policy);
  if (speedup !== null && alone !== null) {
    const other = `the large model alone (about ${seconds(alone)})`;
    said.push(`Estimate: ${ratio(speedup, other)}.`);
  } else if (!single) {
    said.push("No estimate for the large model alone: it wrote too little to tell.");
  }
  const waits = ["relay", "margin", "one-shot"].includes(summary.policy.split(":")[0]);
  if (waits && !generation.segments.some((segment) => segment.hand?.cue)) {
    said.push("No cue fired in this text: try another level or policy.");
  }
  if (summary.fallbacks) {
    said.push(`${plural(summary.fallbacks, "time")} a model failed and the other one went on.`);
  }
  if (summary.paused) said.push(sentence(`Delegation was paused: ${summary.paused}`));
  if (summary.finish === "length") said.push("Cut at the length limit.");
  if (summary.finish === "repetition") said.push("Ended early: the text went round in circles.");
  return [...said, ...summary.notes.map((note) => sentence(`Note: ${note}`))];
}

/** What a race of two generations showed; one question shows no more than itself. */
export function verdict(relay, large, together) {
  const timed = [relay, large].map((each) => {
    const took = each.seconds(0);
    const pace = each.tokens ? `, ${((1000 * took) / each.tokens).toFixed(1)} ms a token` : "";
    return `${seconds(took)} for ${plural(each.tokens, "token")}${pace}`;
  });
  const result = ratio(large.seconds(0) / relay.seconds(0), "the large model alone");
  const said = [
    `Measured on this one question: ${relay.name} took ${timed[0]}; ${large.name} ${timed[1]}.`,
    `In seconds that is ${result}.`,
  ];
  if (relay.tokens !== large.tokens) {
    said.push("The two texts differ in length, and that alone changes the seconds.");
  }
  if (together) said.push("They ran at the same time: on a shared device each slowed the other.");
  return said;
}

/** For a screen reader at the end. */
export function result({ name, began, finish, problem, tokens }) {
  if (problem) return `${name}: ${problem}`;
  if (began === null) return `${name} was not asked.`;
  return `${name} ${finish === "stopped" ? "stopped" : "is done"}: ${plural(tokens, "token")}.`;
}

/** For a screen reader while it is written. */
export function progress(generation) {
  const { counts, handoffs, name } = generation;
  return `${name}: ${counts.large} tokens by the large model, ${counts.small} by the small one, ${plural(handoffs, "hand-off")} so far`;
}
