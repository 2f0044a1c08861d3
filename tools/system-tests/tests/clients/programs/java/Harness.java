// The common parts of all programs: servers, results, and requests to the test that runs the program. Independent of any
// recipe.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.Callable;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.retry.RetryNTimes;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.ZooKeeper;

/**
 * Common parts of the programs. A program's only argument is the list of servers. Its output is its results, which are the
 * same in every run and with any servers. A line that begins with `!` is not a result but a request, to which the test
 * responds on standard input.
 */
final class Harness {
    /** Session timeout, longer than any failover, so that no session ends by accident; in milliseconds. */
    static final int SESSION_TIMEOUT_MS = 15_000;

    /** Timeout of a condition, even on a busy machine; in milliseconds. */
    static final int PATIENCE_MS = 60_000;

    /** Long enough to show that a caller waits, and that a wait times out; in milliseconds. */
    static final int SHORT_MS = 300;

    /** Interval of the checks of a condition; in milliseconds. */
    private static final int LOOK_EVERY_MS = 10;

    /** Number of retries of a call after its server was lost, and the pause before each: together at least PATIENCE_MS. */
    private static final RetryNTimes RETRY = new RetryNTimes(PATIENCE_MS / 100, 100);

    /** Pattern of the connected server in `ZooKeeper.toString`. */
    private static final Pattern REMOTE = Pattern.compile("remoteserver:[^/]*/([0-9.]+:[0-9]+)");

    /** The servers, as `host:port,host:port`. */
    static String servers;

    private static final BufferedReader ANSWERS = new BufferedReader(new InputStreamReader(System.in));

    private Harness() {}

    /** An action that may throw anything. */
    interface Body {
        void run() throws Exception;
    }

    /** Runs a program and ends the process, even if threads are left. */
    static void run(String[] arguments, Body body) {
        servers = arguments[0];
        try {
            body.run();
            System.out.flush();
            Runtime.getRuntime().halt(0);
        } catch (Throwable thrown) {
            thrown.printStackTrace();
            Runtime.getRuntime().halt(1);
        }
    }

    /** Prints a result. */
    static void say(String line) {
        System.out.println(line);
        System.out.flush();
    }

    /** Checks a condition without which the results are meaningless. */
    static void check(boolean holds, String what) {
        if (!holds) {
            throw new AssertionError("it does not hold that " + what);
        }
    }

    /** Checks that two values are equal, and reports both if they are not. */
    static void same(Object expected, Object found, String what) {
        check(Objects.equals(expected, found), what + " is " + expected + "; it is " + found);
    }

    /** Waits until a condition holds. */
    static void await(String what, Callable<Boolean> condition) throws Exception {
        long deadline = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(PATIENCE_MS);
        while (!condition.call()) {
            check(System.nanoTime() < deadline, "at last, " + what);
            Thread.sleep(LOOK_EVERY_MS);
        }
    }

    /** Waits for a latch that a thread or a watcher counts down. */
    static void await(String what, CountDownLatch latch) throws Exception {
        check(latch.await(PATIENCE_MS, TimeUnit.MILLISECONDS), "at last, " + what);
    }

    /** Returns a connected Curator client. */
    static CuratorFramework curator() throws Exception {
        CuratorFramework client = CuratorFrameworkFactory.builder()
                .connectString(servers)
                .sessionTimeoutMs(SESSION_TIMEOUT_MS)
                .connectionTimeoutMs(SESSION_TIMEOUT_MS)
                .retryPolicy(RETRY)
                .build();
        client.start();
        check(client.blockUntilConnected(PATIENCE_MS, TimeUnit.MILLISECONDS), "a client connects");
        return client;
    }

    /** Returns several connected Curator clients. */
    static List<CuratorFramework> curators(int count) throws Exception {
        List<CuratorFramework> clients = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            clients.add(curator());
        }
        return clients;
    }

    /**
     * Ensures that a client sees all writes that were acknowledged to others so far. A server that has applied a write of
     * the client has applied all writes before it. (A `sync` at ZooKeeper's leader waits for nothing.)
     */
    static void upToDate(CuratorFramework client) throws Exception {
        client.create().orSetData().forPath("/up-to-date");
    }

    /** Returns the number of a znode's children; 0 if it does not exist, like a container that is no longer in use. */
    static int childCount(CuratorFramework client, String path) throws Exception {
        upToDate(client);
        try {
            return client.getChildren().forPath(path).size();
        } catch (KeeperException.NoNodeException gone) {
            return 0;
        }
    }

    /** Waits until a client is connected, and returns its server as `host:port`. */
    static String serverOf(ZooKeeper client) throws Exception {
        String[] found = new String[1];
        await("a client is connected", () -> {
            Matcher matcher = REMOTE.matcher(client.toString());
            boolean connected = client.getState().isConnected() && matcher.find();
            found[0] = connected ? matcher.group(1) : null;
            return connected;
        });
        return found[0];
    }

    /** Kills the server to which a client is connected with SIGKILL, and returns its address. */
    static String killServerOf(CuratorFramework client) throws Exception {
        return killServerOf(client.getZookeeperClient().getZooKeeper());
    }

    /** Does the same for a plain client. */
    static String killServerOf(ZooKeeper client) throws Exception {
        String server = serverOf(client);
        request("kill " + server);
        return server;
    }

    /** Starts a killed server and waits until it serves. */
    static void start(String server) throws Exception {
        request("start " + server);
    }

    /** Waits until each client has received a reply after a failover. */
    static void reconnected(List<CuratorFramework> clients) throws Exception {
        for (CuratorFramework client : clients) {
            client.checkExists().forPath("/");
        }
    }

    private static synchronized void request(String what) throws Exception {
        say("!" + what);
        same("done", ANSWERS.readLine(), "the answer to " + what);
    }

    /** One turn of a contender. */
    interface Turn {
        void take() throws Exception;
    }

    /**
     * Runs all contenders at once, each in a thread of its own, and kills the server of `victim` in between. Every
     * contender takes a number of turns before the kill and as many after it.
     */
    static void contend(CuratorFramework victim, int turns, List<Turn> everybody) throws Exception {
        ExecutorService threads = Executors.newFixedThreadPool(everybody.size());
        CountDownLatch warm = new CountDownLatch(everybody.size());
        CountDownLatch killed = new CountDownLatch(1);
        List<Future<?>> ends = new ArrayList<>();
        for (Turn one : everybody) {
            ends.add(threads.submit(() -> {
                try {
                    for (int i = 0; i < turns; i++) {
                        one.take();
                    }
                } finally {
                    warm.countDown();
                }
                // The kill happens while all contend, not between two phases.
                while (killed.getCount() > 0) {
                    one.take();
                }
                for (int i = 0; i < turns; i++) {
                    one.take();
                }
                return null;
            }));
        }
        await("all have had their first turns", warm);
        killServerOf(victim);
        killed.countDown();
        for (Future<?> end : ends) {
            end.get(PATIENCE_MS, TimeUnit.MILLISECONDS);
        }
        threads.shutdown();
    }
}
