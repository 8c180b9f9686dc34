package recording;

import java.util.Map;
import org.springframework.ai.chat.client.ChatClient;
import org.springframework.ai.tool.annotation.Tool;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.boot.WebApplicationType;

/** An agent of Spring AI. Its observations become spans of OpenTelemetry, as Spring Boot configures it. */
@SpringBootApplication
public class Record {
    static class Tools {
        @Tool(name = "get_weather", description = "The weather in a city.")
        Map<String, Object> getWeather(String city) {
            return Truth.getWeather(city);
        }

        @Tool(name = "look_up_order", description = "The status of an order.")
        Map<String, Object> lookUpOrder(String order_id) {
            return Truth.lookUpOrder(order_id);
        }
    }

    public static void main(String[] arguments) throws Exception {
        SpringApplication application = new SpringApplication(Record.class);
        application.setWebApplicationType(WebApplicationType.NONE);
        application.setLogStartupInfo(false);
        try (var context = application.run()) {
            ChatClient client = context.getBean(ChatClient.Builder.class)
                    .defaultSystem("You are a shop's assistant.")
                    .defaultTools(new Tools())
                    .build();
            Truth.answerAll(text -> client.prompt().user(text).call().content());
        }
    }
}
