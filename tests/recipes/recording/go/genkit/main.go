// A flow of Genkit, whose spans an exporter for OTLP sends.
package main

import (
	"context"

	"github.com/firebase/genkit/go/ai"
	"github.com/firebase/genkit/go/genkit"
	"github.com/firebase/genkit/go/plugins/compat_oai"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

type place struct {
	City string `json:"city"`
}

type order struct {
	OrderID string `json:"order_id"`
}

func main() {
	ctx := context.Background()
	exporter, err := otlptracehttp.New(ctx)
	check(err)
	provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter))
	otel.SetTracerProvider(provider)

	client := &compat_oai.OpenAICompatible{Provider: "scripted", APIKey: "none", BaseURL: modelURL + "/v1"}
	g := genkit.Init(ctx, genkit.WithPlugins(client))
	model := client.DefineModel("scripted", modelName, ai.ModelOptions{Supports: &compat_oai.Multimodal})
	weather := genkit.DefineTool(g, "get_weather", "The weather in a city.",
		func(ctx *ai.ToolContext, in place) (map[string]any, error) {
			return call("get_weather", map[string]any{"city": in.City})
		})
	orders := genkit.DefineTool(g, "look_up_order", "The status of an order.",
		func(ctx *ai.ToolContext, in order) (map[string]any, error) {
			return call("look_up_order", map[string]any{"order_id": in.OrderID})
		})
	assistant := genkit.DefineFlow(g, "assistant", func(ctx context.Context, text string) (string, error) {
		generate := func() (string, error) {
			return genkit.GenerateText(ctx, g, ai.WithModel(model), ai.WithTools(weather, orders),
				ai.WithSystem("You are a shop's assistant."), ai.WithPrompt(text))
		}
		answer, err := generate()
		if err != nil { // the error of a tool ends the generation
			answer, err = generate()
		}
		return answer, err
	})

	answerAll(func(text string) string {
		answer, err := assistant.Run(ctx, text)
		check(err)
		return answer
	})
	check(provider.Shutdown(ctx))
}
