import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;
import java.time.Duration;
import java.util.Arrays;
import java.util.concurrent.CompletableFuture;
import java.util.stream.Stream;

/**
 * Calls the paths of the services in this folder with Java's own client as it is by default, which asks for
 * `Upgrade: h2c` on a connection's first request; usage: ClientJava.java URL.
 */
public class ClientJava {
    static final HttpClient CLIENT = HttpClient.newBuilder().connectTimeout(Duration.ofSeconds(20)).build();
    static String base;

    static HttpRequest.Builder to(String path) {
        return HttpRequest.newBuilder(URI.create(base + path)).timeout(Duration.ofSeconds(20));
    }

    static void check(boolean held, Object what) {
        if (!held) {
            throw new AssertionError(what);
        }
    }

    public static void main(String[] args) throws Exception {
        base = args[0];
        for (int round = 0; round < 20; round++) {
            HttpResponse<String> answer = CLIENT.send(to("/hello").build(), BodyHandlers.ofString());
            check(answer.statusCode() == 200 && answer.body().equals("hello"), answer + answer.body());
            check(answer.version() == HttpClient.Version.HTTP_1_1, answer.version());
        }
        byte[] body = new byte[1_000_000];
        Arrays.fill(body, (byte) 'x');
        HttpRequest whole = to("/echo").POST(BodyPublishers.ofByteArray(body)).build();
        check(Arrays.equals(CLIENT.send(whole, BodyHandlers.ofByteArray()).body(), body), "echo");
        HttpRequest parts = to("/echo").POST(BodyPublishers.ofByteArrays(Arrays.asList(body, body))).build();
        check(CLIENT.send(parts, BodyHandlers.ofByteArray()).body().length == 2_000_000, "chunked echo");
        check(CLIENT.send(to("/big").build(), BodyHandlers.ofString()).body().length() == 1_000_000, "big");
        check(CLIENT.send(to("/nowhere").build(), BodyHandlers.discarding()).statusCode() == 404, "nowhere");
        // Each is the first request of a new connection.
        Stream.generate(() -> CLIENT.sendAsync(to("/hello").build(), BodyHandlers.ofString())).limit(50).toList()
            .stream().map(CompletableFuture::join)
            .forEach(answer -> check(answer.body().equals("hello"), answer + answer.body()));
        System.out.println("ok");
    }
}
