package recording;

import com.fasterxml.jackson.core.type.TypeReference;
import com.fasterxml.jackson.core.util.DefaultIndenter;
import com.fasterxml.jackson.core.util.DefaultPrettyPrinter;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.function.Function;
import java.util.function.Supplier;

/** What the recorded programs for Java share: the tools, and the truth that they write down, as in `truth.py`. */
public final class Truth {
    static final String MODEL = "scripted-model";
    static final String MODEL_URL = System.getenv("RECORDING_MODEL");

    private static final ObjectMapper JSON = new ObjectMapper();
    private static final List<Map<String, Object>> REQUESTS = new ArrayList<>();
    private static final Set<String> FAILED_ONCE = new HashSet<>();
    private static List<Map<String, Object>> used;

    /** Answer each input in turn, and write the calls to the log. */
    static void answerAll(Function<String, String> answer) throws Exception {
        List<String> inputs = JSON.readValue(System.getenv("RECORDING_INPUTS"), new TypeReference<>() {});
        for (String input : inputs) {
            used = new ArrayList<>();
            Map<String, Object> request = new LinkedHashMap<>(Map.of("input", input));
            request.put("tools_used", used);
            REQUESTS.add(request);
            request.put("output", answer.apply(input));
        }
        DefaultIndenter indenter = new DefaultIndenter(" ", "\n");
        DefaultPrettyPrinter printer =
                new DefaultPrettyPrinter().withObjectIndenter(indenter).withArrayIndenter(indenter);
        String text = JSON.writer(printer).writeValueAsString(Map.of("requests", REQUESTS));
        Files.writeString(Path.of(System.getenv("RECORDING_TRUTH")), text.replace("\" :", "\":") + "\n");
    }

    static Map<String, Object> getWeather(String city) {
        return recorded("get_weather", Map.of("city", city), () -> {
            return Map.of("city", city, "celsius", Map.of("Kyoto", 21, "Osaka", 23).get(city));
        });
    }

    static Map<String, Object> lookUpOrder(String orderId) {
        return recorded("look_up_order", Map.of("order_id", orderId), () -> {
            if (FAILED_ONCE.add(orderId)) {
                throw new IllegalStateException("the order service did not answer");
            }
            return Map.of("order_id", orderId, "status", "shipped");
        });
    }

    private static Map<String, Object> recorded(
            String name, Map<String, Object> arguments, Supplier<Map<String, Object>> tool) {
        Map<String, Object> call = new LinkedHashMap<>(Map.of("name", name));
        call.put("args", arguments);
        call.put("error", null);
        used.add(call);
        try {
            return tool.get();
        } catch (RuntimeException error) {
            call.put("error", error.getMessage());
            throw error;
        }
    }
}
