// The Vercel AI SDK, versions 6 and 7. plain: as it comes; stream: streamed; stateless: streamed, `store` false.
import * as AI from "ai";
import { openai } from "@ai-sdk/openai";
import { z } from "zod";
import { INSTRUCTIONS, Interrupted, mode, play, weather, within } from "./session.mjs";

let made = [];
const get_weather = AI.tool({
  description: "Get the weather",
  inputSchema: z.object({ city: z.string(), unit: z.string() }),
  execute: async (given) => {
    made.push(["get_weather", JSON.stringify(given)]);
    return weather(given);
  },
});
const stateless = { store: false, reasoningSummary: "auto", include: ["reasoning.encrypted_content"] };
const common = {
  model: openai("gpt-5"),
  tools: { get_weather },
  providerOptions: mode === "stateless" ? { openai: stateless } : {},
  stopWhen: (AI.isStepCount ?? AI.stepCountIs)(12),
  [AI.isStepCount ? "instructions" : "system"]: INSTRUCTIONS,
};

await play(async (history, text, interrupt) => {
  made = [];
  const messages = [...history, { role: "user", content: text }];
  if (mode === "plain") {
    const result = await within(interrupt, (abortSignal) => AI.generateText({ ...common, messages, abortSignal }));
    const said = result.responseMessages ?? result.response.messages;
    return { history: [...messages, ...said], text: result.text, calls: made };
  }
  const stop = new AbortController();
  const result = AI.streamText({ ...common, messages, abortSignal: stop.signal, onError: () => {}, onAbort: () => {} });
  for await (const part of result.textStream) {
    if (interrupt && part) {
      stop.abort();
      throw new Interrupted();
    }
  }
  const said = (await result.responseMessages) ?? (await result.response).messages;
  return { history: [...messages, ...said], text: await result.text, calls: made };
});
