// LangChain.js ChatOpenAI with createAgent. agent: as it comes; stateless: `store` false with encrypted reasoning.
import { ChatOpenAI } from "@langchain/openai";
import { createAgent, tool } from "langchain";
import { HumanMessage, mapChatMessagesToStoredMessages, mapStoredMessagesToChatMessages } from "@langchain/core/messages";
import { z } from "zod";
import { INSTRUCTIONS, mode, play, weather, within } from "./session.mjs";

const get_weather = tool((given) => weather(given), {
  name: "get_weather",
  description: "Get the weather",
  schema: z.object({ city: z.string(), unit: z.string() }),
});
const kept = { zdrEnabled: true, modelKwargs: { include: ["reasoning.encrypted_content"] } };

await play(async (history, text, interrupt) => {
  const model = new ChatOpenAI({ model: "gpt-5", useResponsesApi: true, ...(mode === "stateless" ? kept : {}) });
  const agent = createAgent({ model, tools: [get_weather], systemPrompt: INSTRUCTIONS });
  const before = mapStoredMessagesToChatMessages(history);
  const messages = [...before, new HumanMessage(text)];
  const state = await within(interrupt, (signal) => agent.invoke({ messages }, { signal }));
  const made = state.messages.slice(before.length).flatMap((one) => one.tool_calls ?? []);
  const calls = made.map((call) => [call.name, JSON.stringify(call.args)]);
  return { history: mapChatMessagesToStoredMessages(state.messages), text: state.messages.at(-1).text, calls };
});
