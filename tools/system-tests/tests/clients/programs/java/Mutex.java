// InterProcessMutex: reentrant, one holder at a time, even through a failover.

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;

final class Mutex {
    /** A path of its own, and the path at which all other clients of Lockgate have their locks. */
    private static final List<String> PATHS = List.of("/curator/mutex", "/locks/curator-mutex");

    public static void main(String[] arguments) {
        Harness.run(arguments, Mutex::test);
    }

    private static void test() throws Exception {
        List<CuratorFramework> clients = Harness.curators(2);
        for (String path : PATHS) {
            Harness.say(path);
            test(clients, path);
        }
    }

    private static void test(List<CuratorFramework> clients, String path) throws Exception {
        InterProcessMutex first = new InterProcessMutex(clients.get(0), path);
        InterProcessMutex second = new InterProcessMutex(clients.get(1), path);

        first.acquire();
        Harness.say("again in the same thread: " + first.acquire(Harness.SHORT_MS, TimeUnit.MILLISECONDS));
        Harness.say("another client meanwhile: " + second.acquire(Harness.SHORT_MS, TimeUnit.MILLISECONDS));
        first.release();
        Harness.say("after one release it is held: " + first.isOwnedByCurrentThread());
        Harness.say("another client still: " + second.acquire(Harness.SHORT_MS, TimeUnit.MILLISECONDS));
        first.release();
        Harness.say("after two it is held: " + first.isOwnedByCurrentThread());
        Harness.say("another client then: " + second.acquire(Harness.PATIENCE_MS, TimeUnit.MILLISECONDS));
        second.release();

        LimitedResource resource = new LimitedResource(1);
        List<Harness.Turn> everybody = new ArrayList<>();
        for (InterProcessMutex mutex : List.of(first, first, second, second)) {
            everybody.add(() -> {
                mutex.acquire();
                try {
                    resource.use();
                    mutex.acquire();
                    mutex.release();
                } finally {
                    mutex.release();
                }
            });
        }
        Harness.contend(clients.get(0), 8, everybody);
        Harness.say("the most at once: " + resource.most());
        Harness.say("contenders left: " + Harness.childCount(clients.get(1), path));
    }
}
