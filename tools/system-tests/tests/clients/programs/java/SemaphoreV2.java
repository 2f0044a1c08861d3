// InterProcessSemaphoreV2: at most the limit's number of leases; the limit is fixed, or a SharedCount that changes.

import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.locks.Lease;
import org.apache.curator.framework.recipes.shared.SharedCount;

final class SemaphoreV2 {
    /** A path of its own, and the path at which all other clients of Lockgate have their locks. */
    private static final List<String> PATHS = List.of("/curator/semaphore", "/locks/curator-semaphore");

    /** A limit that may change, which only Curator's clients know. */
    private static final String COUNTED = "/curator/counted-semaphore";

    private static final int LEASES = 3;

    public static void main(String[] arguments) {
        Harness.run(arguments, SemaphoreV2::test);
    }

    private static void test() throws Exception {
        List<CuratorFramework> clients = Harness.curators(2);
        for (String path : PATHS) {
            Harness.say(path);
            fixed(clients, path);
        }
        Harness.say(COUNTED);
        counted(clients);
    }

    private static void fixed(List<CuratorFramework> clients, String path) throws Exception {
        InterProcessSemaphoreV2 first = new InterProcessSemaphoreV2(clients.get(0), path, LEASES);
        InterProcessSemaphoreV2 second = new InterProcessSemaphoreV2(clients.get(1), path, LEASES);
        Collection<Lease> two = first.acquire(2);
        Lease third = second.acquire();
        Harness.say("a fourth of three leases: " + (soon(first) != null));
        Harness.say("participants: " + first.getParticipantNodes().size());
        first.returnAll(two);
        Lease another = second.acquire(Harness.PATIENCE_MS, TimeUnit.MILLISECONDS);
        Harness.say("after two came back: " + (another != null));
        Harness.say("two more at once: " + (second.acquire(2, Harness.SHORT_MS, TimeUnit.MILLISECONDS) != null));
        second.returnLease(another);
        second.returnLease(third);

        LimitedResource resource = new LimitedResource(LEASES);
        List<Harness.Turn> everybody = new ArrayList<>();
        for (InterProcessSemaphoreV2 semaphore : List.of(first, first, first, second, second, second)) {
            everybody.add(() -> {
                Lease lease = semaphore.acquire();
                try {
                    resource.use();
                } finally {
                    semaphore.returnLease(lease);
                }
            });
        }
        Harness.contend(clients.get(0), 4, everybody);
        Harness.say("never more than three at once: " + (resource.most() <= LEASES));
        Harness.say("leases left: " + Harness.childCount(clients.get(1), path + "/leases"));
    }

    private static void counted(List<CuratorFramework> clients) throws Exception {
        List<SharedCount> counts = new ArrayList<>();
        List<InterProcessSemaphoreV2> semaphores = new ArrayList<>();
        for (CuratorFramework client : clients) {
            SharedCount count = new SharedCount(client, COUNTED + "-limit", 1);
            count.start();
            counts.add(count);
            semaphores.add(new InterProcessSemaphoreV2(client, COUNTED, count));
        }
        Lease first = semaphores.get(0).acquire();
        Harness.say("a second lease of one: " + (soon(semaphores.get(1)) != null));
        CompletableFuture<Lease> waiting = CompletableFuture.supplyAsync(() -> {
            try {
                return semaphores.get(1).acquire(Harness.PATIENCE_MS, TimeUnit.MILLISECONDS);
            } catch (Exception failed) {
                throw new IllegalStateException(failed);
            }
        });
        Harness.await("the second waits", () -> Harness.childCount(clients.get(0), COUNTED + "/leases") == 2);
        counts.get(0).setCount(2);
        Lease second = waiting.get(Harness.PATIENCE_MS, TimeUnit.MILLISECONDS);
        Harness.say("who waited when the limit became two: " + (second != null));
        semaphores.get(0).returnLease(first);
        semaphores.get(1).returnLease(second);

        LimitedResource resource = new LimitedResource(2);
        List<Harness.Turn> everybody = new ArrayList<>();
        for (int i = 0; i < 4; i++) {
            InterProcessSemaphoreV2 semaphore = semaphores.get(i % 2);
            everybody.add(() -> {
                Lease lease = semaphore.acquire();
                try {
                    resource.use();
                } finally {
                    semaphore.returnLease(lease);
                }
            });
        }
        Harness.contend(clients.get(0), 4, everybody);
        Harness.say("never more than two at once: " + (resource.most() <= 2));
        Harness.say("leases left: " + Harness.childCount(clients.get(1), COUNTED + "/leases"));
    }

    private static Lease soon(InterProcessSemaphoreV2 semaphore) throws Exception {
        return semaphore.acquire(Harness.SHORT_MS, TimeUnit.MILLISECONDS);
    }
}
