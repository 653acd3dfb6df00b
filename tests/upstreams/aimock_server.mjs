// aimock with a scripted agent loop and answers that tell what arrived. The port is printed once it listens.
//   node aimock_server.mjs FOLDER-WITH-NODE_MODULES KEY
import { createRequire } from "node:module";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const [, , folder, key] = process.argv;
const { LLMock } = await import(pathToFileURL(createRequire(join(folder, "x.js")).resolve("@copilotkit/aimock")));
const mock = new LLMock({ port: 0, host: "127.0.0.1", strict: false, chunkSize: 12, auth: { apiKeys: [key] } });

const newest = (request) => request.messages.at(-1);
const seen = (request) => `${request.messages.length} messages: ${request.messages.map((m) => m.role).join(",")}`;
const step = (round, rounds) => ({ toolCalls: [{ id: `call_${round}_of_${rounds}`, name: "step", arguments: { round } }] });

// "work N" begins N rounds. Over a delta only the tool's result is seen, so the call's id says how far the loop is.
mock.on(
  { predicate: (r) => newest(r)?.role === "user" && /^work \d+$/.test(String(newest(r).content)) },
  (r) => step(1, Number(String(newest(r).content).split(" ")[1])),
);
mock.on({ predicate: (r) => newest(r)?.role === "tool" && /^call_\d+_of_\d+$/.test(newest(r).tool_call_id ?? "") }, (r) => {
  const [round, rounds] = newest(r).tool_call_id.match(/\d+/g).map(Number);
  return round < rounds ? step(round + 1, rounds) : { content: `done after ${rounds}; ${seen(r)}` };
});
mock.on({ userMessage: "what did you see" }, (r) => ({ content: seen(r) }));
mock.on({ userMessage: "rate limit me" }, {
  error: { message: "Rate limit reached", type: "rate_limit_error", code: "rate_limit_exceeded" }, status: 429,
});
mock.on({ userMessage: "lose my response" }, {
  error: { message: "Previous response not found.", type: "invalid_request_error", code: "previous_response_not_found" },
  status: 400,
});
mock.on({ userMessage: "cut me off" }, { content: "This answer is cut off by a dropped socket." }, { chunkSize: 5, truncateAfterChunks: 7 });
mock.onMessage(/hello/, { content: "Hello from aimock, piece by piece." });
await mock.start();
console.log(`port ${new URL(mock.url).port}`);
