// An agent of the Vercel AI SDK that exports its spans to goldspan's gateway: `node agent.mjs`.
import { OpenTelemetry } from "@ai-sdk/otel";
import { OTLPTraceExporter } from "@opentelemetry/exporter-trace-otlp-proto";
import { BatchSpanProcessor, NodeTracerProvider } from "@opentelemetry/sdk-trace-node";
import { generateText, registerTelemetry, stepCountIs, tool } from "ai";
import { MockLanguageModelV4, mockValues } from "ai/test";
import { z } from "zod";

const provider = new NodeTracerProvider({ spanProcessors: [new BatchSpanProcessor(new OTLPTraceExporter())] });
provider.register();
registerTelemetry(new OpenTelemetry());

const tools = {
  find_order: tool({
    description: "Find an order.",
    inputSchema: z.object({ order_id: z.number() }),
    execute: async ({ order_id }) => `Order ${order_id}: delivered, 30 euros.`,
  }),
  refund: tool({
    description: "Refund an order.",
    inputSchema: z.object({ order_id: z.number() }),
    execute: async ({ order_id }) => `Order ${order_id} is refunded.`,
  }),
};

const usage = { inputTokens: { total: 1 }, outputTokens: { total: 1 } };
const call = (toolName, input) => ({
  content: [{ type: "tool-call", toolCallId: `call-${toolName}`, toolName, input: JSON.stringify(input) }],
  finishReason: { unified: "tool-calls" },
  usage,
  warnings: [],
});
const say = (text) => ({ content: [{ type: "text", text }], finishReason: { unified: "stop" }, usage, warnings: [] });
const next = mockValues(
  ...[call("find_order", { order_id: 8 }), say("It was delivered.")],
  ...[call("refund", { order_id: 7 }), say("You will get 30 euros.")],
);
const model = new MockLanguageModelV4({ doGenerate: async () => next() }); // in production: openai("gpt-...")

for (const prompt of ["Where is order 8?", "I want my money back for order 7."]) {
  const { text } = await generateText({
    ...{ model, tools, prompt, stopWhen: stepCountIs(5) },
    telemetry: { functionId: "support" },
  });
  console.log(`${prompt}\n  ${text}`);
}
await provider.shutdown();
