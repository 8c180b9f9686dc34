package example;

import io.micrometer.common.KeyValue;
import io.micrometer.observation.ObservationFilter;
import java.util.Iterator;
import java.util.List;
import org.springframework.ai.chat.client.ChatClient;
import org.springframework.ai.chat.client.observation.ChatClientObservationContext;
import org.springframework.ai.chat.messages.AssistantMessage;
import org.springframework.ai.chat.model.ChatModel;
import org.springframework.ai.chat.model.ChatResponse;
import org.springframework.ai.chat.model.Generation;
import org.springframework.ai.chat.prompt.ChatOptions;
import org.springframework.ai.chat.prompt.Prompt;
import org.springframework.ai.model.tool.ToolCallingChatOptions;
import org.springframework.ai.tool.annotation.Tool;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.context.annotation.Bean;

/** An agent of Spring AI that exports its spans to goldspan's gateway. */
@SpringBootApplication
public class Agent {
    static class Tools {
        @Tool(name = "find_order", description = "Find an order.")
        String findOrder(int order_id) {
            return "Order " + order_id + ": delivered, 30 euros.";
        }

        @Tool(name = "refund", description = "Refund an order.")
        String refund(int order_id) {
            return "Order " + order_id + " is refunded.";
        }
    }

    /** Adds the question and the answer to the span of a request: Spring AI does not record them. */
    @Bean
    ObservationFilter questionAndAnswer() {
        return context -> {
            if (context instanceof ChatClientObservationContext chat && chat.getResponse() != null) {
                String question = chat.getRequest().prompt().getUserMessage().getText();
                String answer = chat.getResponse().chatResponse().getResult().getOutput().getText();
                context.addHighCardinalityKeyValue(KeyValue.of("input.value", question));
                context.addHighCardinalityKeyValue(KeyValue.of("output.value", answer));
            }
            return context;
        };
    }

    @Bean
    ChatModel scriptedModel() { // in production: the model of a starter
        Iterator<AssistantMessage> next = List.of(
                        call("find_order", "{\"order_id\": 8}"), new AssistantMessage("It was delivered."),
                        call("refund", "{\"order_id\": 7}"), new AssistantMessage("You will get 30 euros."))
                .iterator();
        return new ChatModel() {
            @Override
            public ChatResponse call(Prompt prompt) {
                return new ChatResponse(List.of(new Generation(next.next())));
            }

            @Override
            public ChatOptions getOptions() {
                return ToolCallingChatOptions.builder().build();
            }
        };
    }

    static AssistantMessage call(String tool, String arguments) {
        var calls = List.of(new AssistantMessage.ToolCall("call-" + tool, "function", tool, arguments));
        return AssistantMessage.builder().content("").toolCalls(calls).build();
    }

    public static void main(String[] arguments) {
        try (var application = SpringApplication.run(Agent.class)) {
            ChatClient agent = application.getBean(ChatClient.Builder.class).defaultTools(new Tools()).build();
            for (String text : List.of("Where is order 8?", "I want my money back for order 7.")) {
                System.out.println(text + "\n  " + agent.prompt(text).call().content());
            }
        }
    }
}
