// The server's HTTP: what it has, and a chat as a stream of chunks. Addresses are relative to the
// page, so that they hold wherever a proxy mounts the server.

import { sentence } from "./words.js";

/** What went wrong, in words for people; `status` is HTTP's, 0 where nobody answered. */
export class Problem extends Error {
  constructor(message, status = 0) {
    super(message);
    this.status = status;
  }
}

const UNREACHABLE = "The server cannot be reached. Is it still running?";
const STRANGER = "What answers here is not RelayGen. Is this page's address still its server's?";
const NO_KEY = "An API key has only letters from A to Z, digits and signs. Type it under More and try again.";
const STAYS = "What was written until then stays.";

function headers(key) {
  const bare = key.trim(); // it was pasted
  if (/[^!-~]/.test(bare)) throw new Problem(NO_KEY, 401); // no header can hold it
  return bare ? { authorization: `Bearer ${bare}` } : {};
}

async function asked(path, options) {
  let reply;
  try {
    reply = await fetch(path, { cache: "no-store", credentials: "omit", ...options });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem(UNREACHABLE);
  }
  if (!reply.ok) throw await refusal(reply);
  return reply;
}

async function refusal(reply) {
  let message = "";
  try {
    message = (await reply.json()).error.message;
  } catch {
    // A proxy in front answered, not the server.
  }
  return new Problem(inWords(reply.status, message, reply.headers.get("retry-after")), reply.status);
}

/** A status and the server's message as a sentence that says what to do. */
function inWords(status, message, wait) {
  const said = message ? sentence(` The server says: ${message}`) : "";
  const later = wait ? `in ${wait} s` : "a little later";
  if (status === 401) return "This server asks for an API key. Type it under More and try again.";
  if (status === 404) return `The server does not have that.${said}`;
  if (status === 413) return "The question is longer than the server accepts.";
  if (status === 429) return `The server is full. Try again ${later}.`;
  if (status === 502) return `A model's engine failed.${said}`;
  if (status === 503) return `The server is up, but cannot answer now. Try again ${later}.${said}`;
  if (status >= 500) return `The server failed (${status}).${said}`;
  return `The server refused the request.${said}`;
}

function brokenOff(message) {
  return `${sentence(`The generation broke off: ${message}`)} ${STAYS}`;
}

/** The cards of `GET /v1/models`. */
export async function models({ key, signal }) {
  const reply = await asked("v1/models", { headers: headers(key), signal });
  let cards;
  try {
    cards = (await reply.json()).data;
  } catch (error) {
    if (error.name === "AbortError") throw error;
  }
  if (!cards?.[0]?.relay) throw new Problem(STRANGER);
  return cards;
}

/** The chunks of one streamed chat, each as [chunk, milliseconds] when it came. */
export async function* chat(body, { key, signal }) {
  const reply = await asked("v1/chat/completions", {
    method: "POST",
    headers: { "content-type": "application/json", ...headers(key) },
    body: JSON.stringify(body),
    signal,
  });
  const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
  try {
    yield* chunks(reader);
  } finally {
    reader.cancel().catch(() => {}); // whoever reads no further ends the generation
  }
}

async function* chunks(reader) {
  let rest = "";
  let done = false; // read on to the end, so that the connection can be used again
  for (;;) {
    let read;
    try {
      read = await reader.read();
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new Problem(`The connection broke off. ${STAYS}`);
    }
    if (read.done && done) return;
    if (read.done) throw new Problem(`The stream ended early. ${STAYS}`);
    const at = performance.now();
    const blocks = (rest + read.value).split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) {
      if (!block.startsWith("data: ")) continue; // a comment keeps the connection
      if (block === "data: [DONE]") done = true;
      if (done) break;
      const chunk = parsed(block.slice(6));
      if (chunk.error) throw new Problem(brokenOff(chunk.error.message));
      yield [chunk, at];
    }
  }
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    throw new Problem(`Something between here and the server garbled the stream. ${STAYS}`);
  }
}
