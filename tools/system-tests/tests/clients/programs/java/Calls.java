// Every call that reads or writes znodes, each with its results and its errors.

import java.util.ArrayList;
import java.util.List;
import java.util.TreeSet;
import java.util.concurrent.CountDownLatch;
import org.apache.zookeeper.AsyncCallback;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.ZooDefs;
import org.apache.zookeeper.admin.ZooKeeperAdmin;
import org.apache.zookeeper.data.ACL;
import org.apache.zookeeper.data.Stat;

final class Calls {
    private static final String ROOT = "/java-calls";
    private static final List<ACL> OPEN = ZooDefs.Ids.OPEN_ACL_UNSAFE;
    private static final byte[] ONE = "one".getBytes();

    private static Client client;

    public static void main(String[] arguments) {
        Harness.run(arguments, Calls::test);
    }

    private static void test() throws Exception {
        client = Client.connect();
        client.create(ROOT, new byte[0], OPEN, CreateMode.PERSISTENT);
        modes();
        data();
        children();
        counting();
        asynchronous();
        swept();
        administration();
        client.close();
    }

    private static void say(String what, Show.Call call) throws Exception {
        Harness.say(what + ": " + Show.outcome(call));
    }

    private static String stat(String path) throws Exception {
        Stat stat = client.exists(path, false);
        return stat == null ? "no znode" : Show.stat(stat, client.getSessionId());
    }

    private static void modes() throws Exception {
        for (CreateMode mode : CreateMode.values()) {
            String path = ROOT + "/" + mode.name().toLowerCase();
            long ttl = mode.isTTL() ? 3_600_000 : -1;
            say("create " + mode, () -> client.create(path, ONE, OPEN, mode, null, ttl));
            Stat stat = new Stat();
            say("create again with a stat", () -> client.create(path, ONE, OPEN, mode, stat, ttl)
                    + ", " + Show.stat(stat, client.getSessionId()));
            if (!mode.isSequential()) {
                Harness.say("  " + stat(path));
            }
        }
        say("below what is not there", () -> client.create(ROOT + "/missing/child", ONE, OPEN, CreateMode.PERSISTENT));
        say("below an ephemeral", () -> client.create(ROOT + "/ephemeral/child", ONE, OPEN, CreateMode.PERSISTENT));
        say("without an ACL", () -> client.create(ROOT + "/no-acl", ONE, new ArrayList<>(), CreateMode.PERSISTENT));
        say("the root", () -> client.create("/", ONE, OPEN, CreateMode.PERSISTENT));
        // The numbers count all children ever created, including deleted ones.
        client.create(ROOT + "/numbers", ONE, OPEN, CreateMode.PERSISTENT);
        client.create(ROOT + "/numbers/other", ONE, OPEN, CreateMode.PERSISTENT);
        client.delete(ROOT + "/numbers/other", -1);
        say("a number after a deletion",
                () -> client.create(ROOT + "/numbers/n-", ONE, OPEN, CreateMode.PERSISTENT_SEQUENTIAL));
    }

    private static void data() throws Exception {
        String path = ROOT + "/data";
        client.create(path, ONE, OPEN, CreateMode.PERSISTENT);
        Stat stat = new Stat();
        say("getData", () -> new String(client.getData(path, false, stat)));
        say("setData", () -> Show.stat(client.setData(path, "three".getBytes(), 0), client.getSessionId()));
        say("setData of an old version", () -> Show.stat(client.setData(path, ONE, 0), client.getSessionId()));
        say("setData of any version", () -> Show.stat(client.setData(path, new byte[0], -1), client.getSessionId()));
        say("getData of nothing", () -> client.getData(path, false, stat).length + ", " + Show.stat(stat, client.getSessionId()));
        say("getData of no znode", () -> new String(client.getData(ROOT + "/missing", false, null)));
        say("setData of no znode", () -> "" + client.setData(ROOT + "/missing", ONE, -1));
        byte[] large = new byte[1_000_000];
        client.setData(path, large, -1);
        say("a million bytes", () -> "" + client.getData(path, false, null).length);
        say("delete of an old version", () -> delete(path, 1));
        say("delete", () -> delete(path, 3));
        say("delete again", () -> delete(path, -1));
        say("exists then", () -> stat(path));
        say("delete of one with children", () -> delete(ROOT, -1));
        say("delete of the root", () -> delete("/", -1));
    }

    private static String delete(String path, int version) throws Exception {
        client.delete(path, version);
        return "done";
    }

    private static void children() throws Exception {
        String path = ROOT + "/children";
        client.create(path, ONE, OPEN, CreateMode.PERSISTENT);
        for (String name : List.of("b", "a", "c")) {
            client.create(path + "/" + name, ONE, OPEN, CreateMode.PERSISTENT);
        }
        client.delete(path + "/c", -1);
        client.setData(path + "/a", new byte[0], -1);
        Stat stat = new Stat();
        say("getChildren", () -> new TreeSet<>(client.getChildren(path, false)).toString());
        say("getChildren with a stat", () -> new TreeSet<>(client.getChildren(path, false, stat))
                + ", " + Show.stat(stat, client.getSessionId()));
        say("getChildren of none", () -> client.getChildren(path + "/a", false).toString());
        say("getChildren of no znode", () -> client.getChildren(ROOT + "/missing", false).toString());
        say("the root has its own", () -> "" + client.getChildren("/", false).contains("zookeeper"));
        Stat own = client.exists(path + "/a", false);
        Stat parent = client.exists(path, false);
        Stat other = client.exists(path + "/b", false);
        // The zxids may be any numbers, but their order is the order of the changes.
        Harness.say("the order of zxids: " + (parent.getCzxid() < other.getCzxid() && other.getCzxid() < own.getCzxid()
                && own.getCzxid() < parent.getPzxid() && parent.getPzxid() < own.getMzxid()));
        Harness.say("the order of times: " + (parent.getCtime() <= other.getCtime() && own.getCtime() <= own.getMtime()));
    }

    private static void counting() throws Exception {
        say("getAllChildrenNumber", () -> "" + client.getAllChildrenNumber(ROOT + "/children"));
        say("getAllChildrenNumber of no znode", () -> "" + client.getAllChildrenNumber(ROOT + "/missing"));
        client.create(ROOT + "/children/mine", ONE, OPEN, CreateMode.EPHEMERAL);
        say("getEphemerals", () -> new TreeSet<>(client.getEphemerals()).toString());
        say("getEphemerals below", () -> client.getEphemerals(ROOT + "/children").toString());
        say("getEphemerals elsewhere", () -> client.getEphemerals("/elsewhere").toString());
    }

    /** Each call in its asynchronous form, all at once; the replies arrive in the order of the calls. */
    private static void asynchronous() throws Exception {
        String path = ROOT + "/asynchronous";
        List<String> answers = new ArrayList<>();
        CountDownLatch left = new CountDownLatch(14);
        AsyncCallback.StatCallback stat = (code, at, context, found) -> {
            answers.add(context + " " + code(code) + (found == null ? "" : ", version " + found.getVersion()));
            left.countDown();
        };
        AsyncCallback.VoidCallback done = (code, at, context) -> {
            answers.add(context + " " + code(code));
            left.countDown();
        };
        client.create(path, ONE, OPEN, CreateMode.PERSISTENT, (code, at, context, name) -> {
            answers.add(context + " " + code(code) + ", " + name);
            left.countDown();
        }, "create");
        AsyncCallback.Create2Callback created = (code, at, context, name, found) -> {
            answers.add(context + " " + code(code) + ", " + name + ", version " + (found == null ? "none" : found.getVersion()));
            left.countDown();
        };
        client.create(path + "/n-", ONE, OPEN, CreateMode.PERSISTENT_SEQUENTIAL, created, "create2");
        client.create(path + "/ttl", ONE, OPEN, CreateMode.PERSISTENT_WITH_TTL, created, "createTTL", 3_600_000);
        client.exists(path, false, stat, "exists");
        client.setData(path, "two".getBytes(), 0, stat, "setData");
        client.setData(path, "two".getBytes(), 0, stat, "setData");
        client.getData(path, false, (code, at, context, data, found) -> {
            answers.add(context + " " + code(code) + ", " + new String(data) + ", version " + found.getVersion());
            left.countDown();
        }, "getData");
        client.getChildren(path, false, (code, at, context, names) -> {
            answers.add(context + " " + code(code) + ", " + new TreeSet<>(names));
            left.countDown();
        }, "getChildren");
        client.getChildren(path, false, (code, at, context, names, found) -> {
            answers.add(context + " " + code(code) + ", " + new TreeSet<>(names) + ", cversion " + found.getCversion());
            left.countDown();
        }, "getChildren2");
        client.getAllChildrenNumber(path, (code, at, context, number) -> {
            answers.add(context + " " + code(code) + ", " + number);
            left.countDown();
        }, "getAllChildrenNumber");
        client.getEphemerals(ROOT + "/children", (code, context, paths) -> {
            answers.add(context + " " + code(code) + ", " + paths);
            left.countDown();
        }, "getEphemerals");
        client.sync(path, done, "sync");
        client.delete(path, -1, done, "delete");
        client.exists(ROOT + "/missing", false, stat, "exists");
        Harness.await("all are answered", left);
        answers.forEach(answer -> Harness.say("asynchronous " + answer));
    }

    private static String code(int code) {
        return KeeperException.Code.get(code).toString();
    }

    /** Znodes that the server deletes: an empty container, and a znode with an expired TTL. */
    private static void swept() throws Exception {
        String container = ROOT + "/swept-container";
        client.create(container, ONE, OPEN, CreateMode.CONTAINER);
        client.create(container + "/child", ONE, OPEN, CreateMode.PERSISTENT);
        client.delete(container + "/child", -1);
        client.create(ROOT + "/swept-ttl", ONE, OPEN, CreateMode.PERSISTENT_WITH_TTL, null, 1);
        Harness.await("the container goes", () -> client.exists(container, false) == null);
        Harness.await("the ttl ends", () -> client.exists(ROOT + "/swept-ttl", false) == null);
        Harness.say("swept: an empty container and a znode whose time is over");
        say("not swept: a container that never had a child", () -> stat(ROOT + "/container"));
        say("not swept: a znode whose time is not over", () -> stat(ROOT + "/persistent_with_ttl"));
    }

    private static void administration() throws Exception {
        say("the configuration can be read", () -> "" + (client.getConfig(false, new Stat()) != null));
        try (ZooKeeperAdmin admin = new ZooKeeperAdmin(Harness.servers, Harness.SESSION_TIMEOUT_MS, event -> {})) {
            say("reconfigure", () -> new String(admin.reconfigure((String) null, "3", null, -1, new Stat())));
        }
        say("create below /zookeeper", () -> client.create("/zookeeper/mine", ONE, OPEN, CreateMode.PERSISTENT));
        say("delete /zookeeper/quota", () -> delete("/zookeeper/quota", -1));
    }
}
