// The OpenAI Agents SDK for JavaScript. runner: result.history; stateless: that, streamed, `store` false.
import { Agent, run, setTracingDisabled, tool } from "@openai/agents";
import { z } from "zod";
import { INSTRUCTIONS, Interrupted, mode, play, weather, within } from "./session.mjs";

setTracingDisabled(true);
const made = [];
const get_weather = tool({
  name: "get_weather",
  description: "Get the weather",
  parameters: z.object({ city: z.string(), unit: z.string() }),
  execute: async (given) => {
    made.push(["get_weather", JSON.stringify(given)]);
    return weather(given);
  },
});
const stateless = { store: false, providerData: { include: ["reasoning.encrypted_content"] } };
const agent = new Agent({
  name: "Weather",
  instructions: INSTRUCTIONS,
  model: "gpt-5",
  tools: [get_weather],
  modelSettings: mode === "stateless" ? stateless : {},
});

await play(async (history, text, interrupt) => {
  made.length = 0;
  const asked = [...history, { role: "user", content: text }];
  let result;
  if (mode === "stateless") {
    const stop = new AbortController();
    result = await run(agent, asked, { stream: true, signal: stop.signal });
    for await (const event of result) {
      if (interrupt && event.type === "raw_model_stream_event" && event.data.type === "output_text_delta") {
        stop.abort();
        throw new Interrupted();
      }
    }
    await result.completed;
  } else result = await within(interrupt, (signal) => run(agent, asked, { signal }));
  return { history: result.history, text: result.finalOutput, calls: [...made] };
});
