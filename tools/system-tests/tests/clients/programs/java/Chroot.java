// A client with a chroot sees nothing outside it, and paths in calls, replies and notifications are relative to it.

import java.util.List;
import org.apache.zookeeper.AddWatchMode;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.Op;
import org.apache.zookeeper.OpResult;
import org.apache.zookeeper.ZooDefs;
import org.apache.zookeeper.data.ACL;

final class Chroot {
    private static final List<ACL> OPEN = ZooDefs.Ids.OPEN_ACL_UNSAFE;

    public static void main(String[] arguments) {
        Harness.run(arguments, Chroot::test);
    }

    private static void test() throws Exception {
        Client above = Client.connect();
        Client client = Client.connect(Harness.servers + "/java-chroot/app", Harness.SESSION_TIMEOUT_MS);
        Harness.say("before its root is there: "
                + Show.outcome(() -> client.create("/a", new byte[0], OPEN, CreateMode.PERSISTENT)));
        above.create("/java-chroot", new byte[0], OPEN, CreateMode.PERSISTENT);
        above.create("/java-chroot/app", new byte[0], OPEN, CreateMode.PERSISTENT);
        Harness.say("created: " + client.create("/a", new byte[0], OPEN, CreateMode.PERSISTENT_SEQUENTIAL));
        above.upToDate();
        Harness.say("from above: " + above.getChildren("/java-chroot/app", false));
        Harness.say("from below: " + client.getChildren("/", false));
        Client.Notices notices = new Client.Notices();
        client.addWatch("/", notices, AddWatchMode.PERSISTENT_RECURSIVE);
        above.create("/java-chroot/app/b", new byte[0], OPEN, CreateMode.PERSISTENT);
        above.setData("/java-chroot/app", new byte[] {1}, -1);
        Harness.say("told: " + notices.next() + ", " + notices.next());
        List<OpResult> results = client.multi(List.of(
                Op.create("/c", new byte[0], OPEN, CreateMode.PERSISTENT), Op.delete("/b", -1)));
        Harness.say("a multi: " + results.stream().map(Show::result).toList());
        Harness.say("told: " + notices.next() + ", " + notices.next());
        client.close();
        above.close();
    }
}
