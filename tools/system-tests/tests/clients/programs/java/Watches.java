// Watches: the changes at which each kind fires, once or repeatedly, and their removal.

import java.util.List;
import org.apache.zookeeper.AddWatchMode;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.Op;
import org.apache.zookeeper.Watcher.WatcherType;
import org.apache.zookeeper.ZooDefs;
import org.apache.zookeeper.data.ACL;

final class Watches {
    private static final String ROOT = "/java-watches";
    private static final List<ACL> OPEN = ZooDefs.Ids.OPEN_ACL_UNSAFE;

    private static Client watcher;
    private static Client writer;

    public static void main(String[] arguments) {
        Harness.run(arguments, Watches::test);
    }

    private static void test() throws Exception {
        watcher = Client.connect();
        writer = Client.connect();
        create("");
        once();
        deletion();
        persistent();
        recursive();
        removal();
        several();
        sessions();
    }

    /** Prints all notifications of a change. */
    private static void say(String what, Client.Notices notices) throws Exception {
        // A notification precedes any reply that shows its change.
        watcher.upToDate();
        Harness.say(what + ": " + notices.until(watcher));
    }

    /** The client reports the removals of different kinds of watches in any order. */
    private static void sayInAnyOrder(String what, Client.Notices notices) throws Exception {
        watcher.upToDate();
        Harness.say(what + ": " + notices.until(watcher).stream().sorted().toList());
    }

    private static void create(String path) throws Exception {
        writer.create(ROOT + path, new byte[0], OPEN, CreateMode.PERSISTENT);
    }

    private static void set(String path) throws Exception {
        writer.setData(ROOT + path, new byte[] {1}, -1);
    }

    private static void delete(String path) throws Exception {
        writer.delete(ROOT + path, -1);
    }

    private static void once() throws Exception {
        Client.Notices notices = new Client.Notices();
        watcher.exists(ROOT + "/once", notices);
        create("/once");
        say("exists, created", notices);
        set("/once");
        say("not watched any more, set", notices);
        watcher.upToDate();
        watcher.exists(ROOT + "/once", notices);
        set("/once");
        set("/once");
        say("exists, set twice", notices);
        watcher.getData(ROOT + "/once", notices, null);
        create("/once/child");
        say("getData, a child created", notices);
        set("/once");
        say("getData, set", notices);
        watcher.getChildren(ROOT + "/once", notices);
        set("/once");
        set("/once/child");
        say("getChildren, it and a child set", notices);
        delete("/once/child");
        create("/once/child");
        say("getChildren, a child deleted and created", notices);
        watcher.getChildren(ROOT + "/once", notices);
        writer.setACL(ROOT + "/once", OPEN, -1);
        say("getChildren, ACL set", notices);
        create("/once/other");
        say("getChildren, another child created", notices);
        try {
            watcher.getData(ROOT + "/missing", notices, null);
        } catch (org.apache.zookeeper.KeeperException.NoNodeException missing) {
            create("/missing");
            say("getData of no znode leaves no watch, created", notices);
        }
    }

    private static void deletion() throws Exception {
        create("/gone");
        create("/gone/child");
        watcher.upToDate();
        Client.Notices notices = new Client.Notices();
        watcher.getData(ROOT + "/gone/child", notices, null);
        watcher.getChildren(ROOT + "/gone/child", notices);
        watcher.getChildren(ROOT + "/gone", notices);
        delete("/gone/child");
        say("a child deleted, watched in three ways", notices);
    }

    private static void persistent() throws Exception {
        Client.Notices notices = new Client.Notices();
        watcher.addWatch(ROOT + "/persistent", notices, AddWatchMode.PERSISTENT);
        create("/persistent");
        set("/persistent");
        set("/persistent");
        create("/persistent/child");
        set("/persistent/child");
        delete("/persistent/child");
        delete("/persistent");
        create("/persistent");
        say("a persistent watch", notices);
    }

    private static void recursive() throws Exception {
        Client.Notices notices = new Client.Notices();
        watcher.addWatch(ROOT + "/tree", notices, AddWatchMode.PERSISTENT_RECURSIVE);
        create("/tree");
        create("/tree/branch");
        create("/tree/branch/leaf");
        set("/tree/branch/leaf");
        delete("/tree/branch/leaf");
        delete("/tree/branch");
        set("/tree");
        create("/trees");
        say("a recursive watch", notices);
    }

    private static void removal() throws Exception {
        create("/removal");
        watcher.upToDate();
        Client.Notices notices = new Client.Notices();
        remove("nothing to remove", ROOT + "/removal", notices, WatcherType.Any);
        watcher.getData(ROOT + "/removal", notices, null);
        watcher.getChildren(ROOT + "/removal", notices);
        remove("the children's watch", ROOT + "/removal", notices, WatcherType.Children);
        create("/removal/child");
        say("then a child created", notices);
        set("/removal");
        say("and it set", notices);
        watcher.upToDate();
        watcher.getData(ROOT + "/removal", notices, null);
        watcher.getChildren(ROOT + "/removal", notices);
        remove("any watch", ROOT + "/removal", notices, WatcherType.Any);
        set("/removal");
        create("/removal/other");
        say("then a change of each kind", notices);
        watcher.addWatch(ROOT + "/removal", notices, AddWatchMode.PERSISTENT);
        remove("a persistent watch", ROOT + "/removal", notices, WatcherType.Any);
        set("/removal");
        say("then it set", notices);
        watcher.addWatch(ROOT + "/removal", notices, AddWatchMode.PERSISTENT_RECURSIVE);
        watcher.addWatch(ROOT + "/removal", new Client.Notices(), AddWatchMode.PERSISTENT_RECURSIVE);
        Harness.say("all at once: " + Show.outcome(() -> {
            watcher.removeAllWatches(ROOT + "/removal", WatcherType.Any, false);
            return "done";
        }));
        sayInAnyOrder("what is told of it", notices);
        set("/removal/child");
        say("then a child set", notices);
    }

    private static void remove(String what, String path, Client.Notices notices, WatcherType type) throws Exception {
        Harness.say("remove, " + what + ": " + Show.outcome(() -> {
            watcher.removeWatches(path, notices, type, false);
            return "done";
        }));
        sayInAnyOrder("what is told of it", notices);
    }

    private static void several() throws Exception {
        Client.Notices notices = new Client.Notices();
        watcher.addWatch(ROOT, notices, AddWatchMode.PERSISTENT_RECURSIVE);
        writer.multi(List.of(
                Op.create(ROOT + "/several", new byte[0], OPEN, CreateMode.PERSISTENT),
                Op.setData(ROOT + "/several", new byte[] {1}, 0),
                Op.create(ROOT + "/several/child", new byte[0], OPEN, CreateMode.PERSISTENT),
                Op.delete(ROOT + "/several/child", -1),
                Op.delete(ROOT + "/several", 1)));
        say("a multi, in its order", notices);
        watcher.removeWatches(ROOT, notices, WatcherType.Any, false);
    }

    private static void sessions() throws Exception {
        Client.Notices notices = new Client.Notices();
        watcher.exists(ROOT + "/ephemeral", notices);
        writer.create(ROOT + "/ephemeral", new byte[0], OPEN, CreateMode.EPHEMERAL);
        say("an ephemeral created", notices);
        watcher.exists(ROOT + "/ephemeral", notices);
        writer.close();
        say("its session closed", notices);
        watcher.close();
    }
}
