// InterProcessSemaphoreMutex: one holder at a time, not reentrant, and any thread may release it.

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreMutex;

final class SemaphoreMutex {
    private static final String PATH = "/curator/semaphore-mutex";

    public static void main(String[] arguments) {
        Harness.run(arguments, SemaphoreMutex::test);
    }

    private static void test() throws Exception {
        List<CuratorFramework> clients = Harness.curators(2);
        InterProcessSemaphoreMutex mutex = new InterProcessSemaphoreMutex(clients.get(0), PATH);
        InterProcessSemaphoreMutex other = new InterProcessSemaphoreMutex(clients.get(1), PATH);

        mutex.acquire();
        Harness.say("again in the same thread: " + mutex.acquire(Harness.SHORT_MS, TimeUnit.MILLISECONDS));
        Harness.say("another client meanwhile: " + other.acquire(Harness.SHORT_MS, TimeUnit.MILLISECONDS));
        Thread releaser = new Thread(() -> {
            try {
                mutex.release();
            } catch (Exception failed) {
                failed.printStackTrace();
            }
        });
        releaser.start();
        releaser.join();
        Harness.say("after another thread's release: " + other.acquire(Harness.PATIENCE_MS, TimeUnit.MILLISECONDS));
        other.release();

        LimitedResource resource = new LimitedResource(1);
        List<Harness.Turn> everybody = new ArrayList<>();
        for (int i = 0; i < 4; i++) {
            CuratorFramework client = clients.get(i % 2);
            everybody.add(() -> {
                InterProcessSemaphoreMutex own = new InterProcessSemaphoreMutex(client, PATH);
                own.acquire();
                try {
                    resource.use();
                } finally {
                    own.release();
                }
            });
        }
        Harness.contend(clients.get(0), 5, everybody);
        Harness.say("the most at once: " + resource.most());
        Harness.say("leases left: " + Harness.childCount(clients.get(1), PATH + "/leases"));
    }
}
