// An agent of Mastra that exports its spans to goldspan's gateway: `node agent.mjs`.
import { Mastra } from "@mastra/core";
import { Agent } from "@mastra/core/agent";
import { createTool } from "@mastra/core/tools";
import { Observability } from "@mastra/observability";
import { OtelExporter } from "@mastra/otel-exporter";
import { z } from "zod";

const findOrder = createTool({
  id: "find_order",
  description: "Find an order.",
  inputSchema: z.object({ order_id: z.number() }),
  execute: async ({ order_id }) => `Order ${order_id}: delivered, 30 euros.`,
});
const refund = createTool({
  id: "refund",
  description: "Refund an order.",
  inputSchema: z.object({ order_id: z.number() }),
  execute: async ({ order_id }) => `Order ${order_id} is refunded.`,
});

const usage = { inputTokens: 1, outputTokens: 1, totalTokens: 2 };
const reply = (content, finishReason) => ({ content: [content], finishReason, usage, warnings: [] });
const say = (text) => reply({ type: "text", text }, "stop");
const call = (toolName, input) =>
  reply({ type: "tool-call", toolCallId: `call-${toolName}`, toolName, input: JSON.stringify(input) }, "tool-calls");
const replies = [
  ...[call("find_order", { order_id: 8 }), say("It was delivered.")],
  ...[call("refund", { order_id: 7 }), say("You will get 30 euros.")],
];
const model = {
  ...{ specificationVersion: "v2", provider: "scripted", modelId: "scripted", supportedUrls: {} },
  doGenerate: async () => replies.shift(),
}; // in production: "openai/gpt-..."

const agent = new Agent({
  ...{ id: "support", name: "support", instructions: "You answer customers.", model },
  tools: { find_order: findOrder, refund },
});
const endpoint = `${process.env.OTEL_EXPORTER_OTLP_ENDPOINT ?? "http://localhost:4318"}/v1/traces`;
const exporter = new OtelExporter({ provider: { custom: { endpoint, protocol: "http/protobuf" } } });
const observability = new Observability({ configs: { otel: { serviceName: "shop", exporters: [exporter] } } });
const mastra = new Mastra({ agents: { support: agent }, observability, logger: false });

for (const question of ["Where is order 8?", "I want my money back for order 7."]) {
  const { text } = await mastra.getAgent("support").generate(question);
  console.log(`${question}\n  ${text}`);
}
await observability.shutdown();
