// Revocation: the holder of a mutex is asked to release it, even if its server was lost in between.

import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.Revoker;

final class Revocation {
    private static final String PATH = "/curator/revocable";

    public static void main(String[] arguments) {
        Harness.run(arguments, Revocation::test);
    }

    private static void test() throws Exception {
        List<CuratorFramework> clients = Harness.curators(3);
        Harness.say("asked: " + hold(clients, false));
        Harness.say("asked after a failover: " + hold(clients, true));
    }

    /** One client holds the mutex, and two more ask for its release; the holder is notified, and all get the mutex in turn. */
    private static int hold(List<CuratorFramework> clients, boolean failover) throws Exception {
        InterProcessMutex held = new InterProcessMutex(clients.get(0), PATH);
        AtomicInteger asked = new AtomicInteger();
        CountDownLatch revoked = new CountDownLatch(1);
        held.makeRevocable(lock -> {
            asked.incrementAndGet();
            revoked.countDown();
        });
        held.acquire();
        LimitedResource resource = new LimitedResource(1);
        CountDownLatch had = new CountDownLatch(2);
        for (CuratorFramework client : clients.subList(1, 3)) {
            new Thread(() -> {
                try {
                    InterProcessMutex mutex = new InterProcessMutex(client, PATH);
                    Harness.check(mutex.acquire(Harness.PATIENCE_MS, TimeUnit.MILLISECONDS), "a waiter gets the mutex");
                    resource.use();
                    mutex.release();
                    had.countDown();
                } catch (Exception failed) {
                    failed.printStackTrace();
                }
            }).start();
        }
        Harness.await("two wait", () -> held.getParticipantNodes().size() == 3);
        if (failover) {
            Harness.killServerOf(clients.get(0));
        }
        String holder = new InterProcessMutex(clients.get(1), PATH).getParticipantNodes().iterator().next();
        Revoker.attemptRevoke(clients.get(1), holder);
        Harness.await("the holder is asked", revoked);
        Harness.same(2L, had.getCount(), "how many wait");
        resource.use();
        held.release();
        Harness.await("both had it", had);
        return asked.get();
    }
}
