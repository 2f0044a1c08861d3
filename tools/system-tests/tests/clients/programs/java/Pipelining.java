// Thousands of asynchronous calls: their replies arrive in order, and each read sees the writes before it.

import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.KeeperException.Code;
import org.apache.zookeeper.ZooDefs;

final class Pipelining {
    private static final String ROOT = "/java-pipelining";

    /** Two writes and a read for each znode; all writes are sent before any read. */
    private static final int IN_BULK = 500;

    /** Write, write, read, write, read for each znode before the next one. */
    private static final int IN_TURN = 100;

    /**
     * Number of attempts. A call that cannot be executed in its order costs the connection, and so an attempt. This happens
     * when the leader changes in between, or when a busy machine rejects a part of the calls.
     */
    private static final int ATTEMPTS = 5;

    private final Client client;
    private final String root;
    private final AtomicInteger answered = new AtomicInteger();
    private final AtomicReference<String> wrong = new AtomicReference<>();
    private final AtomicBoolean lost = new AtomicBoolean();
    private final CountDownLatch left = new CountDownLatch(3 * IN_BULK + 5 * IN_TURN);
    private int asked;

    private Pipelining(Client client, String root) {
        this.client = client;
        this.root = root;
    }

    public static void main(String[] arguments) {
        Harness.run(arguments, Pipelining::test);
    }

    private static void test() throws Exception {
        Client client = Client.connect();
        boolean through = false;
        for (int attempt = 1; !through; attempt++) {
            Harness.check(attempt <= ATTEMPTS, "a connection holds for long enough");
            through = new Pipelining(client.connected(), ROOT + "-" + attempt).attempt();
        }
        client.close();
    }

    /** Makes all calls and returns whether the connection lasted. All replies so far must be correct in either case. */
    private boolean attempt() throws Exception {
        client.create(root, new byte[0], ZooDefs.Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT);
        for (int i = 0; i < IN_BULK; i++) {
            create("/bulk-" + i);
        }
        for (int i = 0; i < IN_BULK; i++) {
            set("/bulk-" + i, "bulk " + i);
        }
        for (int i = 0; i < IN_BULK; i++) {
            get("/bulk-" + i, "bulk " + i);
        }
        for (int i = 0; i < IN_TURN; i++) {
            String path = "/turn-" + i;
            create(path);
            set(path, "turn " + i);
            get(path, "turn " + i);
            if (i % 2 == 0) {
                delete(path);
                isGone(path);
            } else {
                setInVain(path);
                get(path, "turn " + i);
            }
        }
        Harness.await("all are answered", left);
        Harness.same(null, wrong.get(), "what is wrong");
        if (lost.get()) {
            System.err.println("the connection was lost at " + root);
            return false;
        }
        Harness.say("answered in order: " + answered.get() + " calls");
        Harness.say("left: " + client.getAllChildrenNumber(root));
        return true;
    }

    private void create(String path) {
        client.create(root + path, new byte[0], ZooDefs.Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT,
                (code, at, number, name) -> answer(number, code, Code.OK, true, at), asked++);
    }

    private void set(String path, String data) {
        client.setData(root + path, data.getBytes(), 0,
                (code, at, number, stat) -> answer(number, code, Code.OK, stat != null && stat.getVersion() == 1, at), asked++);
    }

    /** The version in this call was current before the preceding write. */
    private void setInVain(String path) {
        client.setData(root + path, new byte[0], 0,
                (code, at, number, stat) -> answer(number, code, Code.BADVERSION, true, at), asked++);
    }

    private void get(String path, String data) {
        client.getData(root + path, false,
                (code, at, number, found, stat) ->
                        answer(number, code, Code.OK, found != null && data.equals(new String(found)), at), asked++);
    }

    private void delete(String path) {
        client.delete(root + path, 1, (code, at, number) -> answer(number, code, Code.OK, true, at), asked++);
    }

    private void isGone(String path) {
        client.exists(root + path, false, (code, at, number, stat) -> answer(number, code, Code.NONODE, true, at), asked++);
    }

    private void answer(Object number, int code, Code expected, boolean right, String path) {
        int place = answered.getAndIncrement();
        if (code == Code.CONNECTIONLOSS.intValue()) {
            lost.set(true);
        } else if (!lost.get() && (code != expected.intValue() || !right) || !number.equals(place)) {
            wrong.compareAndSet(null, "call " + number + " of " + path + ", answered as number " + place
                    + " with " + Code.get(code) + (right ? "" : " and something else than it should"));
        }
        left.countDown();
    }
}
