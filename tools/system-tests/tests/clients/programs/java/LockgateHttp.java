// A lock of Lockgate over HTTP, for the programs that share a queue with HTTP callers. Independent of ZooKeeper.

import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.time.Duration;
import java.util.UUID;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** A lock, with a session of its own. */
final class LockgateHttp {
    /** Session timeout, longer than any of these programs runs, as they send no heartbeats; in milliseconds. */
    private static final int TTL_MS = 120_000;

    /** Pause before a call is repeated after its node was lost; in milliseconds. */
    private static final int PAUSE_MS = 50;

    /** HTTP addresses of the nodes. */
    private static final String[] SERVERS = System.getenv("LOCKGATE_HTTP").split(",");

    private static final HttpClient CLIENT = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();

    private final String name;
    private final String wish;
    private final String session;
    private String holder;

    /** Returns a lock by its name; `wish` has further fields of `acquire`, each with a comma before it. */
    LockgateHttp(String name, String wish) throws Exception {
        this.name = name;
        this.wish = wish;
        this.session = field("session", call("/v1/sessions", "\"ttl_ms\": " + TTL_MS).body());
    }

    /** Acquires the lock and returns whether that succeeded in time; `waitMs` may be null, for no time limit. */
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

    /** Releases the lock. */
    void release() throws Exception {
        HttpResponse<String> answer = call(
                "/v1/locks/" + name + "/release", "\"session\": \"" + session + "\", \"holder\": \"" + holder + "\"");
        Harness.same(200, answer.statusCode(), answer.body());
    }

    /**
     * Sends a request, and repeats it at the next node until there is a response; its request id prevents a second
     * execution.
     */
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
                // The node was lost before or during its response.
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
