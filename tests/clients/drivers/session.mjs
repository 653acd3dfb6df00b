// What all drivers do: play each step with the history of the one before, stored as JSON in between, and print what came.
import process from "node:process";

export const INSTRUCTIONS = "You are a helpful weather bot.";
export const CITY = {
  type: "object",
  properties: { city: { type: "string" }, unit: { type: "string", enum: ["c", "f"] } },
  required: ["city", "unit"],
  additionalProperties: false,
};
// Milliseconds after which a step that is to be interrupted is given up, where nothing shows before the answer's end.
export const PATIENCE = 1000;

export class Interrupted extends Error {}

export const mode = process.argv[2];

export const weather = ({ city, unit = "c" }) => JSON.stringify({ ok: true, city, unit });

export async function play(step) {
  let kept = "[]";
  for (const text of process.argv.slice(3)) {
    const interrupt = text.includes("stall");
    let said;
    try {
      said = await step(JSON.parse(kept), text, interrupt);
    } catch (error) {
      if (!(error instanceof Interrupted)) throw error;
      console.log(JSON.stringify({ text: "interrupted", calls: [] }));
      continue;
    }
    if (interrupt) throw new Error("the turn was to be interrupted, and ended by itself");
    console.log(JSON.stringify({ text: said.text, calls: said.calls }));
    kept = JSON.stringify(said.history);
  }
}

// What `work` gives, or Interrupted; `signal` goes to whatever takes an AbortSignal.
export async function within(interrupt, work) {
  const stop = new AbortController();
  const timer = interrupt ? setTimeout(() => stop.abort(), PATIENCE) : undefined;
  try {
    return await work(stop.signal);
  } catch (error) {
    if (stop.signal.aborted) throw new Interrupted();
    throw error;
  } finally {
    clearTimeout(timer);
  }
}
