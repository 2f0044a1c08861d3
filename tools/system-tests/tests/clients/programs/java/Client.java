// ZooKeeper's own client, with what a test wants beside it: its notifications, and a death without a word.

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.WatchedEvent;
import org.apache.zookeeper.Watcher;
import org.apache.zookeeper.ZooDefs;
import org.apache.zookeeper.ZooKeeper;

final class Client extends ZooKeeper {
    private final States states;

    private Client(String servers, int timeoutMs, States states) throws Exception {
        super(servers, timeoutMs, states);
        this.states = states;
    }

    private Client(String servers, int timeoutMs, States states, long id, byte[] password) throws Exception {
        super(servers, timeoutMs, states, id, password);
        this.states = states;
    }

    /** A new session at any server. */
    static Client connect() throws Exception {
        return connect(Harness.servers, Harness.SESSION_TIMEOUT_MS);
    }

    /** A new session at one of these servers (and below a path, if one follows them). */
    static Client connect(String servers, int timeoutMs) throws Exception {
        return new Client(servers, timeoutMs, new States()).connected();
    }

    /** Wants to go on with a session, which need not succeed. */
    static Client resume(long id, byte[] password) throws Exception {
        return new Client(Harness.servers, Harness.SESSION_TIMEOUT_MS, new States(), id, password);
    }

    /** Waits until it is connected. */
    Client connected() throws Exception {
        Harness.await("a client connects", () -> getState().isConnected());
        return this;
    }

    /** Waits until it is told this of its session. */
    void told(Watcher.Event.KeeperState state) throws Exception {
        Harness.await("a client is told " + state, () -> states.seen.contains(state));
    }

    /** Whether it was ever told this of its session. */
    boolean wasTold(Watcher.Event.KeeperState state) {
        return states.seen.contains(state);
    }

    /** As `Harness.upToDate`. */
    void upToDate() throws Exception {
        try {
            create("/up-to-date", new byte[0], ZooDefs.Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT);
        } catch (KeeperException.NodeExistsException there) {
            setData("/up-to-date", new byte[0], -1);
        }
    }

    /** Is silent from now on, as after the death of its process: its session is not closed. */
    void crash() {
        cnxn.disconnect();
    }

    /** What its session is told. */
    private static final class States implements Watcher {
        private final List<Event.KeeperState> seen = java.util.Collections.synchronizedList(new ArrayList<>());

        @Override
        public void process(WatchedEvent event) {
            seen.add(event.getState());
        }
    }

    /** What a watcher is told. */
    static final class Notices implements Watcher {
        private final BlockingQueue<String> queue = new LinkedBlockingQueue<>();

        @Override
        public void process(WatchedEvent event) {
            if (event.getType() != Event.EventType.None) {
                queue.add(Show.event(event));
            }
        }

        /** The next one, which is waited for. */
        String next() throws Exception {
            String notice = queue.poll(Harness.PATIENCE_MS, TimeUnit.MILLISECONDS);
            Harness.check(notice != null, "a notification comes");
            return notice;
        }

        /** The next ones, in the order of the alphabet: some come in any order. */
        List<String> next(int count) throws Exception {
            List<String> notices = new ArrayList<>();
            for (int i = 0; i < count; i++) {
                notices.add(next());
            }
            java.util.Collections.sort(notices);
            return notices;
        }

        /** All that have come until a question that is asked now is answered. */
        List<String> until(ZooKeeper client) throws Exception {
            // The answer goes through the same queue as the notifications, which a plain call's does not.
            CountDownLatch answered = new CountDownLatch(1);
            client.exists("/", false, (code, path, context, stat) -> answered.countDown(), null);
            Harness.await("a question is answered", answered);
            List<String> notices = new ArrayList<>();
            queue.drainTo(notices);
            return notices;
        }
    }
}
