// An agent of Mastra, with its own exporter for OpenTelemetry.

import { answerAll, call, load, MODEL, MODEL_URL, RECEIVER_URL } from "./truth.mjs";

const { Mastra } = await load("@mastra/core");
const { Agent } = await load("@mastra/core/agent");
const { createTool } = await load("@mastra/core/tools");
const { Observability } = await load("@mastra/observability");
const { OtelExporter } = await load("@mastra/otel-exporter");
const { z } = await load("zod");

const tool = (id, description, inputSchema) =>
  createTool({ id, description, inputSchema, execute: (input) => call(id, input) });

const agent = new Agent({
  id: "assistant",
  name: "assistant",
  instructions: "You are a shop's assistant.",
  model: { providerId: "scripted", modelId: MODEL, url: `${MODEL_URL}/v1`, apiKey: "none" },
  tools: {
    get_weather: tool("get_weather", "The weather in a city.", z.object({ city: z.string() })),
    look_up_order: tool("look_up_order", "The status of an order.", z.object({ order_id: z.string() })),
  },
});
const exporter = new OtelExporter({
  provider: { custom: { endpoint: `${RECEIVER_URL}/v1/traces`, protocol: "http/protobuf" } },
});
const observability = new Observability({ configs: { otel: { serviceName: "recording", exporters: [exporter] } } });
const mastra = new Mastra({ agents: { assistant: agent }, observability });

await answerAll(async (text) => (await mastra.getAgent("assistant").generate(text)).text);
await observability.shutdown();
