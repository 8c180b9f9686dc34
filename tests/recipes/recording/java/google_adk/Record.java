package recording;

import com.google.adk.agents.LlmAgent;
import com.google.adk.models.Gemini;
import com.google.adk.runner.InMemoryRunner;
import com.google.adk.tools.Annotations.Schema;
import com.google.adk.tools.FunctionTool;
import com.google.genai.Client;
import com.google.genai.types.Content;
import com.google.genai.types.HttpOptions;
import com.google.genai.types.Part;
import io.opentelemetry.sdk.autoconfigure.AutoConfiguredOpenTelemetrySdk;
import java.util.Map;

/** An agent of the Agent Development Kit, which creates its spans itself. */
public class Record {
    @Schema(name = "get_weather", description = "The weather in a city.")
    public static Map<String, Object> getWeather(@Schema(name = "city") String city) {
        return Truth.getWeather(city);
    }

    @Schema(name = "look_up_order", description = "The status of an order.")
    public static Map<String, Object> lookUpOrder(@Schema(name = "order_id") String orderId) {
        return Truth.lookUpOrder(orderId);
    }

    public static void main(String[] arguments) throws Exception {
        var telemetry = AutoConfiguredOpenTelemetrySdk.builder().setResultAsGlobal().build().getOpenTelemetrySdk();
        Client client = Client.builder()
                .apiKey("none")
                .httpOptions(HttpOptions.builder().baseUrl(Truth.MODEL_URL).build())
                .build();
        LlmAgent agent = LlmAgent.builder()
                .name("assistant")
                .model(new Gemini(Truth.MODEL, client))
                .instruction("You are a shop's assistant.")
                .tools(FunctionTool.create(Record.class, "getWeather"), FunctionTool.create(Record.class, "lookUpOrder"))
                .build();
        InMemoryRunner runner = new InMemoryRunner(agent);
        Truth.answerAll(text -> {
            var session = runner.sessionService().createSession(runner.appName(), "user").blockingGet();
            Content question = Content.fromParts(Part.fromText(text));
            return runner.runAsync("user", session.id(), question).blockingLast().stringifyContent();
        });
        telemetry.close();
        System.exit(0);
    }
}
