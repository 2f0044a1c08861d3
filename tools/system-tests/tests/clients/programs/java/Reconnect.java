// A client without a server is notified of missed changes once after it reconnects, and its watches stay set.

import java.util.List;
import org.apache.zookeeper.AddWatchMode;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.Watcher.Event.KeeperState;
import org.apache.zookeeper.ZooDefs;
import org.apache.zookeeper.data.ACL;

final class Reconnect {
    private static final String ROOT = "/java-reconnect";
    private static final List<ACL> OPEN = ZooDefs.Ids.OPEN_ACL_UNSAFE;

    /** Longer than a killed server takes to return; in milliseconds. */
    private static final int LONG_TIMEOUT_MS = 40_000;

    private static Client writer;

    public static void main(String[] arguments) {
        Harness.run(arguments, Reconnect::test);
    }

    private static void test() throws Exception {
        writer = Client.connect();
        for (String path : List.of("", "/set", "/deleted", "/quiet", "/parent", "/gone", "/quiet-parent", "/persistent", "/tree")) {
            writer.create(ROOT + path, new byte[0], OPEN, CreateMode.PERSISTENT);
        }
        // The client knows a single server, so it is disconnected until that one returns.
        String server = Harness.servers.split(",")[0];
        Client client = Client.connect(server, LONG_TIMEOUT_MS);
        client.create(ROOT + "/mine", new byte[0], OPEN, CreateMode.EPHEMERAL);
        client.upToDate();
        Client.Notices notices = new Client.Notices();
        for (String path : List.of("/set", "/deleted", "/quiet")) {
            client.getData(ROOT + path, notices, null);
        }
        for (String path : List.of("/created", "/never")) {
            client.exists(ROOT + path, notices);
        }
        for (String path : List.of("/parent", "/gone", "/quiet-parent")) {
            client.getChildren(ROOT + path, notices);
        }
        Client.Notices persistent = new Client.Notices();
        client.addWatch(ROOT + "/persistent", persistent, AddWatchMode.PERSISTENT);
        client.addWatch(ROOT + "/tree", persistent, AddWatchMode.PERSISTENT_RECURSIVE);

        Harness.killServerOf(client);
        client.told(KeeperState.Disconnected);
        writer.setData(ROOT + "/set", new byte[] {1}, -1);
        writer.delete(ROOT + "/deleted", -1);
        writer.create(ROOT + "/created", new byte[0], OPEN, CreateMode.PERSISTENT);
        writer.create(ROOT + "/parent/child", new byte[0], OPEN, CreateMode.PERSISTENT);
        writer.delete(ROOT + "/gone", -1);
        writer.create(ROOT + "/other", new byte[0], OPEN, CreateMode.PERSISTENT);
        Harness.start(server);

        Harness.say("what was missed: " + notices.next(5));
        Harness.say("and nothing else: " + notices.until(client.connected()));
        Harness.say("its session is the same: " + !client.wasTold(KeeperState.Expired) + ", " + client.getEphemerals());
        writer.setData(ROOT + "/set", new byte[] {2}, -1);
        writer.setData(ROOT + "/quiet", new byte[] {2}, -1);
        Harness.say("a watch that had not fired: " + notices.next());
        writer.create(ROOT + "/never", new byte[0], OPEN, CreateMode.PERSISTENT);
        Harness.say("a watch that had not fired: " + notices.next());
        writer.create(ROOT + "/quiet-parent/child", new byte[0], OPEN, CreateMode.PERSISTENT);
        Harness.say("a watch that had not fired: " + notices.next());
        persistent.until(client);
        writer.setData(ROOT + "/persistent", new byte[] {2}, -1);
        Harness.say("a persistent watch: " + persistent.next());
        writer.create(ROOT + "/tree/leaf", new byte[0], OPEN, CreateMode.PERSISTENT);
        Harness.say("a recursive watch: " + persistent.next());
        Harness.say("and nothing else: " + notices.until(client) + persistent.until(client));
        client.close();
        writer.close();
    }
}
