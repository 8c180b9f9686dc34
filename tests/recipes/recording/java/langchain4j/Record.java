package recording;

import dev.langchain4j.agent.tool.Tool;
import dev.langchain4j.model.openaiofficial.OpenAiOfficialChatModel;
import dev.langchain4j.service.AiServices;
import dev.langchain4j.service.SystemMessage;
import io.opentelemetry.instrumentation.annotations.WithSpan;
import java.util.Map;

/** An AI service of LangChain4j. The Java agent of OpenTelemetry instruments the client of OpenAI. */
public class Record {
    interface Assistant {
        @SystemMessage("You are a shop's assistant.")
        String answer(String text);
    }

    static class Tools {
        @Tool(name = "get_weather", value = "The weather in a city.")
        Map<String, Object> getWeather(String city) {
            return Truth.getWeather(city);
        }

        @Tool(name = "look_up_order", value = "The status of an order.")
        Map<String, Object> lookUpOrder(String order_id) {
            return Truth.lookUpOrder(order_id);
        }
    }

    private static final Assistant ASSISTANT = AiServices.builder(Assistant.class)
            .chatModel(OpenAiOfficialChatModel.builder()
                    .baseUrl(Truth.MODEL_URL + "/v1")
                    .apiKey("none")
                    .modelName(Truth.MODEL)
                    .build())
            .tools(new Tools())
            .build();

    @WithSpan("POST /answers")
    static String answer(String text) {
        return ASSISTANT.answer(text);
    }

    public static void main(String[] arguments) throws Exception {
        Truth.answerAll(Record::answer);
    }
}
