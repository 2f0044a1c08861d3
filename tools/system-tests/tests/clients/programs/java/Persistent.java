// PersistentNode: it is recreated after any interference by others, and survives a failover.

import java.util.List;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.nodes.PersistentNode;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.data.Stat;

final class Persistent {
    private static final String PATH = "/curator/persistent/node";

    public static void main(String[] arguments) {
        Harness.run(arguments, Persistent::test);
    }

    private static void test() throws Exception {
        List<CuratorFramework> clients = Harness.curators(3);
        CuratorFramework owner = clients.get(0);
        PersistentNode node = new PersistentNode(owner, CreateMode.EPHEMERAL, false, PATH, "one".getBytes());
        node.start();
        Harness.check(node.waitForInitialCreate(Harness.PATIENCE_MS, java.util.concurrent.TimeUnit.MILLISECONDS), "it comes");
        Harness.upToDate(clients.get(1));
        Harness.say("data: " + new String(clients.get(1).getData().forPath(PATH)));

        // Two other clients delete it continuously, and in between its owner's server is killed.
        Harness.contend(owner, 5, List.of(() -> delete(clients.get(1)), () -> delete(clients.get(2))));
        Harness.await("it is there", () -> exists(clients.get(1)));
        node.setData("two".getBytes());
        Harness.await("its data changes", () -> "two".equals(read(clients.get(2))));
        Stat stat = clients.get(2).checkExists().forPath(PATH);
        long session = owner.getZookeeperClient().getZooKeeper().getSessionId();
        Harness.say("after a failover it is its session's: " + (stat.getEphemeralOwner() == session));
        node.close();
        Harness.await("it goes with its owner", () -> !exists(clients.get(1)));
        Harness.say("closed");
    }

    private static void delete(CuratorFramework client) throws Exception {
        Harness.await("it is there again", () -> exists(client));
        try {
            client.delete().forPath(PATH);
        } catch (KeeperException.NoNodeException other) {
            // The other client was faster.
        }
    }

    private static boolean exists(CuratorFramework client) throws Exception {
        return client.checkExists().forPath(PATH) != null;
    }

    private static String read(CuratorFramework client) throws Exception {
        try {
            return new String(client.getData().forPath(PATH));
        } catch (KeeperException.NoNodeException gone) {
            return null;
        }
    }
}
