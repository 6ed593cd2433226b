// A question and its answers as one file: no script, nothing from outside, every text escaped.

import { facts, outcome, percent, seconds } from "./words.js";

const STYLE = `
:root { color-scheme: light dark; --bg: light-dark(#fbfaf7, #151513); --ink: light-dark(#1f1e1b, #eae7df);
  --faint: light-dark(#66625a, #a39e93); --line: light-dark(#e2ded5, #35332f);
  --large: light-dark(#1f4f8f, #9cc4f5); --small: light-dark(#9c3f0a, #f2a96c); --answer: light-dark(#0b6e63, #58cdbd); }
body { margin: 0 auto; max-width: 46rem; padding: 3rem 1.25rem 4rem; background: var(--bg); color: var(--ink);
  font: 1rem/1.65 Inter, system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
h1 { font-size: 1.35rem; line-height: 1.35; white-space: pre-wrap; overflow-wrap: anywhere; }
h2 { font-size: 1.1rem; margin: 2.5rem 0 .5rem; }
h3, .faint { color: var(--faint); } h3 { font-size: .85rem; margin: 1.5rem 0 .25rem; }
.strip { display: flex; align-items: flex-end; height: 2.25rem; border-bottom: 2px solid var(--line); }
.strip span { min-width: 0; box-sizing: border-box; }
.strip .large { height: 100%; background: var(--large); }
.strip .small { height: 60%; background: repeating-linear-gradient(-45deg, var(--small) 0 3px, color-mix(in srgb, var(--small) 55%, var(--bg)) 3px 5px); }
.strip .inserted { height: 30%; background: var(--faint); }
.strip .answered { border-bottom: 4px solid var(--answer); }
.text { white-space: pre-wrap; overflow-wrap: anywhere; }
.text .large { color: var(--large); }
.text .small { color: var(--small); text-decoration: underline dotted 1px; text-underline-offset: .25em; }
details { margin-top: 1rem; } table { border-collapse: collapse; font-size: .85rem; } td, th { text-align: left; padding: .2rem .9rem .2rem 0; vertical-align: top; }
`;

const ESCAPES = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;" };

export function escape(text) {
  return String(text).replace(/[&<>"']/g, (each) => ESCAPES[each]);
}

function paragraphs(texts, kind = "") {
  return texts.map((text) => `<p class="${kind}">${escape(text)}</p>`).join("\n");
}

function strip({ segments, thinks }) {
  const mark = (each) => {
    const kind = thinks && each.stage === "answer" ? `${each.model} answered` : each.model;
    const title = escape(facts(each, segments.length).join(" · "));
    return `<span class="${kind}" style="flex: ${Number(each.tokens)} 0 0" title="${title}"></span>`;
  };
  return `<div class="strip" role="img" aria-label="Who wrote what; the table below says it in words">${segments.map(mark).join("")}</div>`;
}

function text(title, { segments }, stage) {
  const own = segments.filter((each) => each.stage === stage && each.pieces.length);
  if (!own.length) return "";
  const spans = own.map((each) => {
    const told = escape(facts(each, segments.length).join(" · "));
    const bare = each.text.trimStart();
    const space = each.text.slice(0, each.text.length - bare.length); // nothing to underline
    return `${space}<span class="${each.model}" title="${told}">${escape(bare)}</span>`;
  });
  return `<h3>${title}</h3>\n<div class="text">${spans.join("")}</div>`;
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
${paragraphs([...(problem ? [problem] : []), ...outcome(generation)])}
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
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>RelayGen: ${escape(question.slice(0, 80))}</title>
<style>${STYLE}</style>
</head>
<body>
<main>
<h1>${escape(question)}</h1>
<p class="faint">Written by two models with RelayGen: ${escape(from)}. The large model’s text is blue; the small one’s is orange and underlined, and lower in the strip; a green base marks the answer.</p>
${paragraphs(told.verdict)}
${generations.map(section).join("\n")}
</main>
</body>
</html>
`;
}
