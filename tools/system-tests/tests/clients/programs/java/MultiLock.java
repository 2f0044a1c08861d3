// InterProcessMultiLock: several locks or none.

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.locks.InterProcessMultiLock;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;

final class MultiLock {
    private static final List<String> PATHS =
            List.of("/curator/multi/one", "/curator/multi/two", "/curator/multi/three");

    public static void main(String[] arguments) {
        Harness.run(arguments, MultiLock::test);
    }

    private static void test() throws Exception {
        List<CuratorFramework> clients = Harness.curators(2);
        InterProcessMultiLock all = new InterProcessMultiLock(clients.get(0), PATHS);
        InterProcessMutex one = new InterProcessMutex(clients.get(1), PATHS.get(0));
        InterProcessMutex two = new InterProcessMutex(clients.get(1), PATHS.get(1));

        two.acquire();
        Harness.say("all while one is another's: " + all.acquire(Harness.SHORT_MS, TimeUnit.MILLISECONDS));
        Harness.say("the others were given back: " + one.acquire(Harness.PATIENCE_MS, TimeUnit.MILLISECONDS));
        one.release();
        two.release();
        Harness.say("all when they are free: " + all.acquire(Harness.PATIENCE_MS, TimeUnit.MILLISECONDS));
        Harness.say("held by this process: " + all.isAcquiredInThisProcess());
        Harness.say("one of them meanwhile: " + one.acquire(Harness.SHORT_MS, TimeUnit.MILLISECONDS));
        all.release();

        LimitedResource resource = new LimitedResource(1);
        List<Harness.Turn> everybody = new ArrayList<>();
        for (CuratorFramework client : List.of(clients.get(0), clients.get(1), clients.get(1))) {
            InterProcessMultiLock lock = new InterProcessMultiLock(client, PATHS);
            everybody.add(() -> {
                lock.acquire();
                try {
                    resource.use();
                } finally {
                    lock.release();
                }
            });
        }
        everybody.add(() -> {
            two.acquire();
            try {
                resource.use();
            } finally {
                two.release();
            }
        });
        Harness.contend(clients.get(0), 4, everybody);
        Harness.say("the most at once: " + resource.most());
        for (String path : PATHS) {
            Harness.say("contenders left: " + Harness.childCount(clients.get(1), path));
        }
    }
}
