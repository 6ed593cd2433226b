// A question and its answers as one file: no script, nothing from outside, every text escaped.

import { facts, outcome, percent, seconds } from "./words.js";

const STYLE = `
main { margin: 0 auto; max-width: 46rem; padding: 3rem 1.25rem 4rem; }
h1 { font-size: 1.35rem; line-height: 1.35; white-space: pre-wrap; overflow-wrap: anywhere; unicode-bidi: plaintext; }
h2 { font-size: 1.1rem; margin: 2.5rem 0 .75rem; }
h3 { font-size: .875rem; margin: 1.5rem 0 .25rem; }
details { margin-top: 1.5rem; }
summary { cursor: pointer; }
table { border-collapse: collapse; font-size: .875rem; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: .25rem 1rem .25rem 0; vertical-align: top; border-bottom: 1px solid var(--line); }
`;

const ESCAPES = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;" };

function escape(text) {
  return String(text).replace(/[&<>"']/g, (each) => ESCAPES[each]);
}

/** The rules that this page and the file have in common. */
function look() {
  const sheet = [...document.styleSheets].find((each) => each.href?.endsWith("/look.css"));
  return [...sheet.cssRules].map((rule) => rule.cssText).join("\n");
}

function paragraphs(texts, kind = "") {
  return texts.map((text) => `<p class="${kind}">${escape(text)}</p>`).join("\n");
}

function known(segment, { segments }) {
  return escape(facts(segment, segments.length).join(" · "));
}

function place({ from, tokens }) {
  return `--from: ${Number(from)}; --tokens: ${Number(tokens)}`;
}

function strip(generation) {
  const { segments, tokens, thinks, answer } = generation;
  const marks = segments.map(
    (each) => `<span class="mark ${escape(each.model)}" style="${place(each)}" title="${known(each, generation)}"></span>`,
  );
  const end = answer && `<span class="answering" style="${place({ from: answer.from, tokens: tokens - answer.from })}"><b>answer</b></span>`;
  const stages = `<div class="stages" aria-hidden="true"><span>thinking</span>${end ?? ""}</div>`;
  return `<div style="--unit: ${100 / Math.max(1, tokens)}%">
<div class="strip" role="img" aria-label="Who wrote what; the table below says it in words">${marks.join("")}</div>
${thinks ? stages : ""}
</div>`;
}

function text(title, generation, stage) {
  const own = generation.segments.filter((each) => each.stage === stage && each.pieces.length);
  if (!own.length) return "";
  const spans = own.map((each) => {
    const bare = each.text.trimStart();
    const space = each.text.slice(0, each.text.length - bare.length); // nothing to underline
    return `${space}<span class="by ${escape(each.model)}" title="${known(each, generation)}">${escape(bare)}</span>`;
  });
  return `<div class="${title.toLowerCase()}"><h3>${title}</h3>
<div class="text">${spans.join("")}</div></div>`;
}

function counts(generation) {
  const { counts: by, tokens } = generation;
  const took = generation.seconds(0);
  return [
    `large ${by.large} tokens`,
    `small ${by.small} tokens`,
    `utilization ${percent(generation.utilization)}`,
    `hand-offs ${generation.handoffs}`,
    `discarded ${generation.discarded}`,
    `${took ? (tokens / took).toFixed(1) : "–"} tokens/s`,
    seconds(took),
  ].join(" · ");
}

function table({ segments }) {
  const row = (each) => {
    const [number, who, ...rest] = facts(each, segments.length);
    const stage = each.stage === "answer" ? "answer" : "thinking";
    return `<tr>${[number, stage, who, rest.join(" · ")].map((cell) => `<td>${escape(cell)}</td>`).join("")}</tr>`;
  };
  return `<details><summary>Every segment</summary>
<table><thead><tr><th>segment</th><th>stage</th><th>writer</th><th>what is known of it</th></tr></thead>
<tbody>${segments.map(row).join("\n")}</tbody></table></details>`;
}

function section(generation) {
  const { name, problem } = generation;
  return `<section>
<h2>${escape(name)}</h2>
${strip(generation)}
<p>${escape(counts(generation))}</p>
${paragraphs(problem ? [problem] : [], "problem")}
${paragraphs(outcome(generation))}
${text("Thinking", generation, "reasoning")}
${text("Answer", generation, "answer")}
${table(generation)}
</section>`;
}

/** The file. `told` holds the server's name, the verdict of a race and the time. */
export function page(question, generations, told) {
  const from = `${told.server} · ${told.when.toISOString().slice(0, 16).replace("T", " ")} UTC`;
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'">
<title>RelayGen: ${escape([...question].slice(0, 80).join(""))}</title>
<style>
${look()}${STYLE}</style>
</head>
<body>
<main>
<h1>${escape(question)}</h1>
<p class="faint">Written by two models with RelayGen: ${escape(from)}. The large model’s text is violet; the small one’s is green and underlined, and lower in the strip.</p>
${paragraphs(told.verdict)}
${generations.map(section).join("\n")}
</main>
</body>
</html>
`;
}
