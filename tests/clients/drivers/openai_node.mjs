// The OpenAI SDK for Node.js. append: history.push(...response.output); stateless: that, streamed, `store` false;
// helper: responses.stream(); text: output texts and bare calls.
import OpenAI from "openai";
import { CITY, INSTRUCTIONS, Interrupted, mode, play, weather, within } from "./session.mjs";

const TOOL = { type: "function", name: "get_weather", description: "Get the weather", strict: true, parameters: CITY };
const COMMON = { model: "gpt-5", instructions: INSTRUCTIONS, tools: [TOOL] };
const STATELESS = { store: false, include: ["reasoning.encrypted_content"] };

async function answer(client, input, interrupt) {
  if (mode === "stateless") {
    const events = await client.responses.create({ ...COMMON, ...STATELESS, input, stream: true });
    for await (const event of events) {
      if (interrupt && event.type === "response.output_text.delta") {
        events.controller.abort();
        throw new Interrupted();
      }
      if (event.type === "response.completed") return event.response;
    }
    throw new Error("the stream has ended without a response");
  }
  if (mode === "helper") {
    const events = client.responses.stream({ ...COMMON, ...STATELESS, input });
    for await (const event of events) {
      if (interrupt && event.type === "response.output_text.delta") {
        events.abort();
        throw new Interrupted();
      }
    }
    return events.finalResponse();
  }
  return within(interrupt, (signal) => client.responses.create({ ...COMMON, input }, { signal }));
}

await play(async (history, text, interrupt) => {
  const client = new OpenAI();
  const made = [];
  history.push({ role: "user", content: text });
  for (;;) {
    const response = await answer(client, history, interrupt);
    const calls = response.output.filter((item) => item.type === "function_call");
    if (mode === "text") {
      if (response.output_text) history.push({ role: "assistant", content: response.output_text });
      history.push(...calls);
    } else history.push(...response.output);
    const parts = response.output.flatMap((item) => (item.type === "message" ? item.content : []));
    if (!calls.length) return { history, text: parts.map((part) => part.text).join(""), calls: made };
    for (const call of calls) {
      made.push([call.name, call.arguments]);
      const output = weather(JSON.parse(call.arguments));
      history.push({ type: "function_call_output", call_id: call.call_id, output });
    }
  }
});
