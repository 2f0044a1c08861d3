// multi: all or nothing, with a result for each item; and many reads at once.

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.Op;
import org.apache.zookeeper.OpResult;
import org.apache.zookeeper.ZooDefs;
import org.apache.zookeeper.data.ACL;
import org.apache.zookeeper.data.Stat;

final class Multi {
    private static final String ROOT = "/java-multi";
    private static final List<ACL> OPEN = ZooDefs.Ids.OPEN_ACL_UNSAFE;

    private static Client client;

    public static void main(String[] arguments) {
        Harness.run(arguments, Multi::test);
    }

    private static void test() throws Exception {
        client = Client.connect();
        client.create(ROOT, new byte[0], OPEN, CreateMode.PERSISTENT);
        success();
        failure();
        reads();
        asynchronous();
        transaction();
        client.close();
    }

    private static Op create(String path, CreateMode mode) {
        return mode.isTTL()
                ? Op.create(ROOT + path, "data".getBytes(), OPEN, mode, 3_600_000)
                : Op.create(ROOT + path, "data".getBytes(), OPEN, mode);
    }

    private static void say(String what, List<Op> items) throws Exception {
        Harness.say(what);
        List<OpResult> results;
        try {
            results = client.multi(items);
        } catch (KeeperException refused) {
            Harness.say("  refused: " + refused.code());
            results = refused.getResults();
        }
        results.forEach(result -> Harness.say("  " + Show.result(result)));
    }

    private static void success() throws Exception {
        say("every kind of item", List.of(
                create("/a", CreateMode.PERSISTENT),
                create("/a/n-", CreateMode.PERSISTENT_SEQUENTIAL),
                create("/a/n-", CreateMode.EPHEMERAL_SEQUENTIAL),
                create("/container", CreateMode.CONTAINER),
                create("/ttl", CreateMode.PERSISTENT_WITH_TTL),
                create("/ephemeral", CreateMode.EPHEMERAL),
                Op.setData(ROOT + "/a", "set".getBytes(), 0),
                Op.check(ROOT + "/a", 1),
                Op.delete(ROOT + "/ephemeral", 0)));
        Stat a = client.exists(ROOT + "/a", false);
        Stat container = client.exists(ROOT + "/container", false);
        Harness.say("one zxid for all: " + (a.getCzxid() == container.getCzxid() && a.getMzxid() == a.getCzxid()));
        Harness.say("  " + Show.stat(a, client.getSessionId()));
        say("no items", List.of());
    }

    private static void failure() throws Exception {
        say("the first", List.of(Op.check(ROOT + "/missing", -1), create("/b", CreateMode.PERSISTENT)));
        say("one in the middle", List.of(
                create("/b", CreateMode.PERSISTENT),
                Op.setData(ROOT + "/a", new byte[0], 7),
                Op.delete(ROOT + "/missing", -1)));
        say("the last", List.of(create("/b", CreateMode.PERSISTENT), create("/a", CreateMode.PERSISTENT)));
        say("one with children", List.of(Op.delete(ROOT + "/a", -1)));
        say("a child of an ephemeral", List.of(
                create("/e", CreateMode.EPHEMERAL), create("/e/child", CreateMode.PERSISTENT)));
        Harness.say("nothing of it was done: " + (client.exists(ROOT + "/b", false) == null)
                + ", " + (client.exists(ROOT + "/e", false) == null)
                + ", version " + client.exists(ROOT + "/a", false).getVersion());
        // The number of a rolled back sequential znode is free again.
        say("the next number", List.of(create("/a/n-", CreateMode.PERSISTENT_SEQUENTIAL)));
    }

    private static void reads() throws Exception {
        say("reads", List.of(
                Op.getData(ROOT + "/a"),
                Op.getChildren(ROOT + "/a"),
                Op.getData(ROOT + "/missing"),
                Op.getChildren(ROOT + "/missing"),
                Op.getData(ROOT + "/container")));
    }

    private static void asynchronous() throws Exception {
        List<String> answers = new ArrayList<>();
        CountDownLatch left = new CountDownLatch(2);
        client.multi(List.of(create("/c", CreateMode.PERSISTENT), Op.delete(ROOT + "/c", 0)), (code, path, context, results) -> {
            answers.add(KeeperException.Code.get(code) + " " + results.stream().map(Show::result).toList());
            left.countDown();
        }, null);
        client.multi(List.of(create("/c", CreateMode.PERSISTENT), Op.delete(ROOT + "/c", 1)), (code, path, context, results) -> {
            answers.add(KeeperException.Code.get(code) + " " + results.stream().map(Show::result).toList());
            left.countDown();
        }, null);
        Harness.await("both are answered", left);
        answers.forEach(answer -> Harness.say("asynchronous " + answer));
    }

    private static void transaction() throws Exception {
        List<OpResult> results = client.transaction()
                .create(ROOT + "/t", new byte[0], OPEN, CreateMode.PERSISTENT)
                .check(ROOT + "/t", 0)
                .setData(ROOT + "/t", "t".getBytes(), 0)
                .delete(ROOT + "/t", 1)
                .commit();
        Harness.say("a transaction: " + results.stream().map(Show::result).toList());
    }
}
