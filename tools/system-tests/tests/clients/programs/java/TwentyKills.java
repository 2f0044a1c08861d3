// A session with ephemerals, a lock and watches survives its server twenty times, and misses no change.

import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.state.ConnectionState;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.WatchedEvent;
import org.apache.zookeeper.Watcher;
import org.apache.zookeeper.data.Stat;

final class TwentyKills {
    private static final String ROOT = "/twenty-kills";
    private static final int KILLS = 20;
    private static final int EPHEMERALS = 5;

    /** Number of changes around each kill. */
    private static final int CHANGES = 5;

    public static void main(String[] arguments) {
        Harness.run(arguments, TwentyKills::test);
    }

    private static void test() throws Exception {
        CuratorFramework client = Harness.curator();
        CuratorFramework other = Harness.curator();
        AtomicBoolean lost = new AtomicBoolean();
        client.getConnectionStateListenable().addListener((who, state) -> {
            if (state == ConnectionState.LOST) {
                lost.set(true);
            }
        });
        long session = client.getZookeeperClient().getZooKeeper().getSessionId();
        client.create().creatingParentsIfNeeded().forPath(ROOT + "/data", "0".getBytes());
        client.create().forPath(ROOT + "/children");
        client.create().forPath(ROOT + "/ephemerals");
        for (int i = 0; i < EPHEMERALS; i++) {
            client.create().withMode(CreateMode.EPHEMERAL).forPath(ROOT + "/ephemerals/e" + i);
        }
        InterProcessMutex lock = new InterProcessMutex(client, ROOT + "/lock");
        InterProcessMutex wanted = new InterProcessMutex(other, ROOT + "/lock");
        lock.acquire();
        Follower follower = new Follower(client);

        for (int kill = 1; kill <= KILLS; kill++) {
            int number = kill;
            int first = (kill - 1) * CHANGES;
            // The changes begin before the kill and continue while the session moves.
            CompletableFuture<Void> changes = CompletableFuture.runAsync(() -> change(other, first));
            String server = Harness.killServerOf(client);
            changes.get(Harness.PATIENCE_MS, TimeUnit.MILLISECONDS);
            int last = first + CHANGES;
            Harness.await("the watch of data tells of the last change", () -> follower.data.get() == last);
            Harness.await("the watch of children tells of the last change", () -> follower.children.get() == last);
            Harness.await("the watch of what is not there tells of each creation", () -> follower.created.get() == number);
            Harness.same(null, follower.failure.get(), "what went wrong in a watcher");

            Harness.same(session, client.getZookeeperClient().getZooKeeper().getSessionId(), "the session");
            Harness.check(!lost.get(), "the session was never lost");
            for (int i = 0; i < EPHEMERALS; i++) {
                Stat stat = other.checkExists().forPath(ROOT + "/ephemerals/e" + i);
                Harness.check(stat != null && stat.getEphemeralOwner() == session, "an ephemeral stays");
            }
            Harness.check(lock.isAcquiredInThisProcess(), "the lock is held");
            Harness.check(!wanted.acquire(50, TimeUnit.MILLISECONDS), "nobody else gets the lock");
            Harness.start(server);
            Harness.say("kill " + kill + " ok");
        }
        lock.release();
        Harness.say("the lock afterwards: " + wanted.acquire(Harness.PATIENCE_MS, TimeUnit.MILLISECONDS));
        client.close();
        Harness.upToDate(other);
        Harness.say("its ephemerals afterwards: " + other.getChildren().forPath(ROOT + "/ephemerals"));
    }

    /** Makes the changes after this number. Each is made exactly once, even if its reply is lost. */
    private static void change(CuratorFramework other, int first) {
        try {
            for (int i = first + 1; i <= first + CHANGES; i++) {
                other.setData().forPath(ROOT + "/data", Integer.toString(i).getBytes());
                try {
                    other.create().forPath(ROOT + "/children/c" + i);
                } catch (KeeperException.NodeExistsException ours) {
                    // The reply to the first attempt was lost.
                }
            }
            try {
                other.create().forPath(ROOT + "/created-" + (first / CHANGES + 1));
            } catch (KeeperException.NodeExistsException ours) {
                // The reply to the first attempt was lost.
            }
        } catch (Exception failed) {
            throw new IllegalStateException(failed);
        }
    }

    /** A reader that knows only its notifications: it reads when a watch fires, and at no other time. */
    private static final class Follower {
        private final CuratorFramework client;
        private final AtomicInteger data = new AtomicInteger();
        private final AtomicInteger children = new AtomicInteger();
        private final AtomicInteger created = new AtomicInteger();
        private final AtomicReference<Exception> failure = new AtomicReference<>();

        Follower(CuratorFramework client) throws Exception {
            this.client = client;
            data(null);
            children(null);
            created(null);
        }

        private void data(WatchedEvent event) throws Exception {
            data.set(Integer.parseInt(new String(client.getData().usingWatcher(on(this::data)).forPath(ROOT + "/data"))));
        }

        private void children(WatchedEvent event) throws Exception {
            children.set(client.getChildren().usingWatcher(on(this::children)).forPath(ROOT + "/children").size());
        }

        /** Watches for the creation of the next znode in a row. */
        private void created(WatchedEvent event) throws Exception {
            while (client.checkExists().usingWatcher(on(this::created)).forPath(ROOT + "/created-" + (created.get() + 1)) != null) {
                created.incrementAndGet();
            }
        }

        /** A watcher for one change, which ignores events of the connection. */
        private Watcher on(Change change) {
            return event -> {
                if (event.getType() != Watcher.Event.EventType.None) {
                    // Not in the client's own thread, which must deliver the replies.
                    CompletableFuture.runAsync(() -> {
                        try {
                            change.happened(event);
                        } catch (Exception failed) {
                            failure.compareAndSet(null, failed);
                        }
                    });
                }
            };
        }

        private interface Change {
            void happened(WatchedEvent event) throws Exception;
        }
    }
}
