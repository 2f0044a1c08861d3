// CuratorCache: it converges to the tree, despite many writers and the loss of its server.

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.cache.ChildData;
import org.apache.curator.framework.recipes.cache.CuratorCache;
import org.apache.curator.framework.recipes.cache.CuratorCacheListener;
import org.apache.zookeeper.KeeperException;

final class Cache {
    private static final String PATH = "/curator/cache";
    private static final int NODES = 6;

    public static void main(String[] arguments) {
        Harness.run(arguments, Cache::test);
    }

    private static void test() throws Exception {
        List<CuratorFramework> clients = Harness.curators(3);
        CuratorFramework reader = clients.get(0);
        reader.create().creatingParentsIfNeeded().forPath(PATH, "root".getBytes());
        reader.create().creatingParentsIfNeeded().forPath(PATH + "/before/child", "old".getBytes());
        // The events, as opposed to the cache's own contents.
        Map<String, String> told = new ConcurrentHashMap<>();
        CountDownLatch initialized = new CountDownLatch(1);
        CuratorCache cache = CuratorCache.build(reader, PATH);
        cache.listenable().addListener(CuratorCacheListener.builder()
                .forCreates(node -> told.put(node.getPath(), text(node)))
                .forChanges((before, node) -> told.put(node.getPath(), text(node)))
                .forDeletes(node -> told.remove(node.getPath()))
                .forInitialized(initialized::countDown)
                .build());
        cache.start();
        Harness.await("the cache is filled", initialized);
        Harness.say("at first: " + new TreeMap<>(told));

        AtomicInteger number = new AtomicInteger();
        List<Harness.Turn> everybody = new ArrayList<>();
        for (CuratorFramework writer : clients.subList(1, 3)) {
            everybody.add(() -> {
                int n = number.incrementAndGet();
                String path = PATH + "/node-" + n % NODES;
                if (n % 4 == 0) {
                    writer.delete().quietly().forPath(path);
                    return;
                }
                try {
                    writer.create().orSetData().forPath(path, ("at " + n).getBytes());
                } catch (KeeperException.NoNodeException deleted) {
                    // Written by the other client between two attempts of Curator.
                }
            });
        }
        Harness.contend(reader, 20, everybody);
        // CuratorCache reports nothing about a znode that was deleted and recreated during its absence if the new
        // znode has the version of the old one (as of 5.4: putStorage compares nothing else). So the last writes
        // wait until the cache is up to date.
        Harness.await("the cache has caught up", () -> tree(clients.get(1), PATH).equals(content(cache)));
        for (int i = 0; i < NODES; i++) {
            clients.get(1).create().orSetData().forPath(PATH + "/node-" + i, ("last " + i).getBytes());
        }
        clients.get(2).delete().deletingChildrenIfNeeded().forPath(PATH + "/before");
        Map<String, String> expected = new TreeMap<>();
        expected.put(PATH, "root");
        for (int i = 0; i < NODES; i++) {
            expected.put(PATH + "/node-" + i, "last " + i);
        }
        Harness.await("the cache has all", () -> expected.equals(content(cache)));
        Harness.await("the events told all", () -> expected.equals(new TreeMap<>(told)));
        Harness.say("at last: " + content(cache));
    }

    /** Returns the contents of the subtree at this path, while there are no writes. */
    private static Map<String, String> tree(CuratorFramework client, String path) throws Exception {
        Map<String, String> content = new TreeMap<>();
        content.put(path, new String(client.getData().forPath(path)));
        for (String child : client.getChildren().forPath(path)) {
            content.putAll(tree(client, path + "/" + child));
        }
        return content;
    }

    private static Map<String, String> content(CuratorCache cache) {
        Map<String, String> content = new TreeMap<>();
        cache.stream().forEach(node -> content.put(node.getPath(), text(node)));
        return content;
    }

    private static String text(ChildData node) {
        return new String(node.getData());
    }
}
