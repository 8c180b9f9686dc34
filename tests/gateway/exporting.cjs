// An agent in Node.js: `node exporting.cjs proto|http|grpc URL REQUESTS` makes requests with two tool calls each, exports
// their spans as it goes, and prints what it has exported: a line `TRACE_ID SPAN_ID` for each span.
const [, , how, url, requests] = process.argv;
const { context, trace } = require("@opentelemetry/api");
const { BatchSpanProcessor, NodeTracerProvider } = require("@opentelemetry/sdk-trace-node");
const { OTLPTraceExporter } = require(`@opentelemetry/exporter-trace-otlp-${how}`);

const ended = [];
const noting = {
  onStart() {},
  onEnd(span) {
    const { traceId, spanId } = span.spanContext();
    ended.push(`${traceId} ${spanId}`);
  },
  forceFlush: async () => {},
  shutdown: async () => {},
};
const exporter = new OTLPTraceExporter({ url, compression: how === "grpc" ? "none" : "gzip" });
const exporting = new BatchSpanProcessor(exporter, { maxExportBatchSize: 64, scheduledDelayMillis: 20 });
const provider = new NodeTracerProvider({ spanProcessors: [noting, exporting] });
const tracer = provider.getTracer("shop.agents");

function call(tool, parent) {
  const attributes = {
    "gen_ai.operation.name": "execute_tool",
    "gen_ai.tool.name": tool,
    "gen_ai.tool.call.arguments": JSON.stringify({ city: "Paris", price: 118.5, note: "ß ✓ 🛏" }),
    "shop.sizes": [1, 2, 3],
  };
  tracer.startSpan(`execute_tool ${tool}`, { attributes }, parent).end();
}

async function main() {
  for (let number = 0; number < Number(requests); number++) {
    const attributes = { "gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "travel" };
    const agent = tracer.startSpan("invoke_agent travel", { attributes });
    const inside = trace.setSpan(context.active(), agent);
    call("search_hotels", inside);
    await new Promise((resume) => setImmediate(resume));
    call("book_hotel", inside);
    agent.end();
  }
  await provider.forceFlush();
  await provider.shutdown();
  console.log(ended.join("\n"));
}

main();
