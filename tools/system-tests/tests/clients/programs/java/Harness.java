// What every program here shares: its servers, its results, and its requests to whoever runs it. Knows no recipe.

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
 * A program's only argument is the list of servers. What it prints are its results: the same ones in every run, whatever
 * the servers are. A line that begins with `!` is no result but a request, which is answered on standard input.
 */
final class Harness {
    /** Longer than any failover takes, so that no session ends that was not meant to; in milliseconds. */
    static final int SESSION_TIMEOUT_MS = 15_000;

    /** No condition takes longer to come true, on however busy a machine; in milliseconds. */
    static final int PATIENCE_MS = 60_000;

    /** Long enough to show that somebody waits, and that a wait ends; in milliseconds. */
    static final int SHORT_MS = 300;

    /** How often a condition is looked at; in milliseconds. */
    private static final int LOOK_EVERY_MS = 10;

    /** How often and after what pause a call is made again whose server was lost: together, PATIENCE_MS at least. */
    private static final RetryNTimes RETRY = new RetryNTimes(PATIENCE_MS / 100, 100);

    /** `ZooKeeper.toString` is where its client tells which server it uses. */
    private static final Pattern REMOTE = Pattern.compile("remoteserver:[^/]*/([0-9.]+:[0-9]+)");

    /** The servers, as `host:port,host:port`. */
    static String servers;

    private static final BufferedReader ANSWERS = new BufferedReader(new InputStreamReader(System.in));

    private Harness() {}

    /** What may throw anything. */
    interface Body {
        void run() throws Exception;
    }

    /** Runs a program and ends the process, whatever threads are left. */
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

    /** A result. */
    static void say(String line) {
        System.out.println(line);
        System.out.flush();
    }

    /** What must hold for the results to mean anything. */
    static void check(boolean holds, String what) {
        if (!holds) {
            throw new AssertionError("it does not hold that " + what);
        }
    }

    /** As `check`, and says both if they differ. */
    static void same(Object expected, Object found, String what) {
        check(Objects.equals(expected, found), what + " is " + expected + "; it is " + found);
    }

    /** Waits until something holds. */
    static void await(String what, Callable<Boolean> condition) throws Exception {
        long deadline = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(PATIENCE_MS);
        while (!condition.call()) {
            check(System.nanoTime() < deadline, "at last, " + what);
            Thread.sleep(LOOK_EVERY_MS);
        }
    }

    /** Waits for a latch of a thread or a watcher. */
    static void await(String what, CountDownLatch latch) throws Exception {
        check(latch.await(PATIENCE_MS, TimeUnit.MILLISECONDS), "at last, " + what);
    }

    /** A Curator client that is connected. */
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

    /** As many Curator clients. */
    static List<CuratorFramework> curators(int count) throws Exception {
        List<CuratorFramework> clients = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            clients.add(curator());
        }
        return clients;
    }

    /**
     * Makes sure that a client sees what was answered to others until now: a server that has carried out a client's write
     * has all that was before it. (A `sync` at ZooKeeper's leader waits for nothing.)
     */
    static void upToDate(CuratorFramework client) throws Exception {
        client.create().orSetData().forPath("/up-to-date");
    }

    /** How many children a znode has by now; none if it is gone, as a container is that nobody uses. */
    static int childCount(CuratorFramework client, String path) throws Exception {
        upToDate(client);
        try {
            return client.getChildren().forPath(path).size();
        } catch (KeeperException.NoNodeException gone) {
            return 0;
        }
    }

    /** Which server a client is connected to, as `host:port`; it is waited for. */
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

    /** Kills the server that a client is connected to, with SIGKILL. Says which one it was. */
    static String killServerOf(CuratorFramework client) throws Exception {
        return killServerOf(client.getZookeeperClient().getZooKeeper());
    }

    /** Likewise. */
    static String killServerOf(ZooKeeper client) throws Exception {
        String server = serverOf(client);
        request("kill " + server);
        return server;
    }

    /** Starts a server that was killed, and waits until it serves. */
    static void start(String server) throws Exception {
        request("start " + server);
    }

    /** Makes sure that the clients have lived through a failover: each has been answered. */
    static void reconnected(List<CuratorFramework> clients) throws Exception {
        for (CuratorFramework client : clients) {
            client.checkExists().forPath("/");
        }
    }

    private static synchronized void request(String what) throws Exception {
        say("!" + what);
        same("done", ANSWERS.readLine(), "the answer to " + what);
    }

    /** One turn of somebody who competes with others. */
    interface Turn {
        void take() throws Exception;
    }

    /**
     * Has all compete at once, each in a thread of its own, and kills the server of `victim` in the middle: everybody has
     * taken so many turns before, and takes as many after.
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
                // The kill comes while everybody competes, not in a pause.
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
