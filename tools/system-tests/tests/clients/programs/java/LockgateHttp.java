// A lock of Lockgate over HTTP, for the programs that share a queue with those who use it. Knows nothing of ZooKeeper.

import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.time.Duration;
import java.util.UUID;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** A lock, for one session of its own. */
final class LockgateHttp {
    /** Longer than any of these programs runs: nobody sends heartbeats; in milliseconds. */
    private static final int TTL_MS = 120_000;

    /** Before a call is made again whose node was lost; in milliseconds. */
    private static final int PAUSE_MS = 50;

    /** Where the nodes serve HTTP. */
    private static final String[] SERVERS = System.getenv("LOCKGATE_HTTP").split(",");

    private static final HttpClient CLIENT = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();

    private final String name;
    private final String wish;
    private final String session;
    private String holder;

    /** A lock by its name; `wish` are more fields of `acquire`, each with a comma before it. */
    LockgateHttp(String name, String wish) throws Exception {
        this.name = name;
        this.wish = wish;
        this.session = field("session", call("/v1/sessions", "\"ttl_ms\": " + TTL_MS).body());
    }

    /** Whether it was had in time; `waitMs` may be null: for as long as it takes. */
    boolean acquire(Integer waitMs) throws Exception {
        HttpResponse<String> answer = call(
                "/v1/locks/" + name + "/acquire", "\"session\": \"" + session + "\", \"wait_ms\": " + waitMs + wish);
        if (answer.statusCode() == 409) {
            return false;
        }
        Harness.same(200, answer.statusCode(), answer.body());
        holder = field("holder", answer.body());
        return true;
    }

    /** Gives it back. */
    void release() throws Exception {
        HttpResponse<String> answer = call(
                "/v1/locks/" + name + "/release", "\"session\": \"" + session + "\", \"holder\": \"" + holder + "\"");
        Harness.same(200, answer.statusCode(), answer.body());
    }

    /** One request, made again at the next node until it is answered: once done it is not done again. */
    private static HttpResponse<String> call(String path, String fields) throws Exception {
        String body = "{" + fields + ", \"request_id\": \"" + UUID.randomUUID() + "\"}";
        long deadline = System.nanoTime() + Duration.ofMillis(Harness.PATIENCE_MS).toNanos();
        for (int attempt = 0; ; attempt++) {
            Harness.check(System.nanoTime() < deadline, path + " is answered");
            URI uri = URI.create("http://" + SERVERS[attempt % SERVERS.length] + path);
            HttpRequest request = HttpRequest.newBuilder(uri)
                    .timeout(Duration.ofMillis(Harness.PATIENCE_MS))
                    .POST(HttpRequest.BodyPublishers.ofString(body))
                    .build();
            try {
                HttpResponse<String> answer = CLIENT.send(request, HttpResponse.BodyHandlers.ofString());
                if (answer.statusCode() < 500) {
                    return answer;
                }
            } catch (IOException lost) {
                // The node was lost, before or while it answered.
            }
            Thread.sleep(PAUSE_MS);
        }
    }

    private static String field(String name, String json) {
        Matcher matcher = Pattern.compile("\"" + name + "\":\"([^\"]*)\"").matcher(json);
        Harness.check(matcher.find(), "there is a " + name + " in " + json);
        return matcher.group(1);
    }
}
