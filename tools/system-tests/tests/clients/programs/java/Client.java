// ZooKeeper's own client with additions for tests: its notifications, and a death without closing its session.

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

    /** Opens a new session at any server. */
    static Client connect() throws Exception {
        return connect(Harness.servers, Harness.SESSION_TIMEOUT_MS);
    }

    /** Opens a new session at one of these servers, below a path if the list ends with one. */
    static Client connect(String servers, int timeoutMs) throws Exception {
        return new Client(servers, timeoutMs, new States()).connected();
    }

    /** Tries to resume a session, which may fail. */
    static Client resume(long id, byte[] password) throws Exception {
        return new Client(Harness.servers, Harness.SESSION_TIMEOUT_MS, new States(), id, password);
    }

    /** Waits until the client is connected. */
    Client connected() throws Exception {
        Harness.await("a client connects", () -> getState().isConnected());
        return this;
    }

    /** Waits for this event of the session. */
    void told(Watcher.Event.KeeperState state) throws Exception {
        Harness.await("a client is told " + state, () -> states.seen.contains(state));
    }

    /** Returns whether the client ever received this event of its session. */
    boolean wasTold(Watcher.Event.KeeperState state) {
        return states.seen.contains(state);
    }

    /** Does the same as `Harness.upToDate`. */
    void upToDate() throws Exception {
        try {
            create("/up-to-date", new byte[0], ZooDefs.Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT);
        } catch (KeeperException.NodeExistsException there) {
            setData("/up-to-date", new byte[0], -1);
        }
    }

    /** Stops all communication, as after the death of the process: the session is not closed. */
    void crash() {
        cnxn.disconnect();
    }

    /** Events of the session. */
    private static final class States implements Watcher {
        private final List<Event.KeeperState> seen = java.util.Collections.synchronizedList(new ArrayList<>());

        @Override
        public void process(WatchedEvent event) {
            seen.add(event.getState());
        }
    }

    /** Notifications of a watcher. */
    static final class Notices implements Watcher {
        private final BlockingQueue<String> queue = new LinkedBlockingQueue<>();

        @Override
        public void process(WatchedEvent event) {
            if (event.getType() != Event.EventType.None) {
                queue.add(Show.event(event));
            }
        }

        /** Waits for the next notification and returns it. */
        String next() throws Exception {
            String notice = queue.poll(Harness.PATIENCE_MS, TimeUnit.MILLISECONDS);
            Harness.check(notice != null, "a notification comes");
            return notice;
        }

        /** Waits for the next notifications and returns them sorted, as the order of some varies. */
        List<String> next(int count) throws Exception {
            List<String> notices = new ArrayList<>();
            for (int i = 0; i < count; i++) {
                notices.add(next());
            }
            java.util.Collections.sort(notices);
            return notices;
        }

        /** Returns all notifications up to the reply to a request that is sent now. */
        List<String> until(ZooKeeper client) throws Exception {
            // This reply passes through the same queue as the notifications; a synchronous call's does not.
            CountDownLatch answered = new CountDownLatch(1);
            client.exists("/", false, (code, path, context, stat) -> answered.countDown(), null);
            Harness.await("a question is answered", answered);
            List<String> notices = new ArrayList<>();
            queue.drainTo(notices);
            return notices;
        }
    }
}
