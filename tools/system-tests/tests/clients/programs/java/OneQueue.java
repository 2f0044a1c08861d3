// One of three programs that use one lock, here with Curator's mutex. The holder is alone at a znode that all of them know.

import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;

final class OneQueue {
    private static final int TURNS = 25;
    private static final String USED = "/in-use";

    public static void main(String[] arguments) {
        Harness.run(arguments, OneQueue::test);
    }

    private static void test() throws Exception {
        CuratorFramework client = Harness.curator();
        InterProcessMutex mutex = new InterProcessMutex(client, "/locks/one-queue");
        for (int turn = 0; turn < TURNS; turn++) {
            mutex.acquire();
            // Fails if another holder exists.
            client.create().forPath(USED);
            client.delete().forPath(USED);
            mutex.release();
        }
        Harness.say("turns: " + TURNS);
    }
}
