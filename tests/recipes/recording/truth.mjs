// What the recorded programs for Node.js share: the tools, and the truth that they write down, as in `truth.py`.

import { writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

export const MODEL_URL = process.env.RECORDING_MODEL;
export const RECEIVER_URL = process.env.OTEL_EXPORTER_OTLP_ENDPOINT;
export const MODEL = "scripted-model";

// The packages are in an environment of their own, not beside the program.
const packages = createRequire(`${process.env.RECORDING_PACKAGES}/package.json`);
export const load = async (name) => import(pathToFileURL(packages.resolve(name)));

const requests = [];
const failedOnce = new Set();

export async function answerAll(answer) {
  for (const input of JSON.parse(process.env.RECORDING_INPUTS)) {
    requests.push({ input, tools_used: [] });
    requests.at(-1).output = await answer(input);
  }
  writeFileSync(process.env.RECORDING_TRUTH, JSON.stringify({ requests }, null, 1) + "\n");
}

const TOOLS = {
  get_weather: ({ city }) => ({ city, celsius: { Kyoto: 21, Osaka: 23 }[city] }),
  look_up_order: ({ order_id }) => {
    if (!failedOnce.has(order_id)) {
      failedOnce.add(order_id);
      throw new Error("the order service did not answer");
    }
    return { order_id, status: "shipped" };
  },
};

export async function call(name, args) {
  const made = { name, args, error: null };
  requests.at(-1).tools_used.push(made);
  try {
    return TOOLS[name](args);
  } catch (error) {
    made.error = error.message;
    throw error;
  }
}
