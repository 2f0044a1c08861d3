// DistributedBarrier and DistributedDoubleBarrier: no client passes too early, and all pass, even through a failover.

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.barriers.DistributedBarrier;
import org.apache.curator.framework.recipes.barriers.DistributedDoubleBarrier;

final class Barriers {
    private static final String SINGLE = "/curator/barrier";
    private static final String DOUBLE = "/curator/double-barrier";

    public static void main(String[] arguments) {
        Harness.run(arguments, Barriers::test);
    }

    private static void test() throws Exception {
        List<CuratorFramework> clients = Harness.curators(3);
        single(clients);
        twofold(clients);
    }

    private static void single(List<CuratorFramework> clients) throws Exception {
        DistributedBarrier control = new DistributedBarrier(clients.get(0), SINGLE);
        control.setBarrier();
        Harness.say("through a barrier that is set: " + control.waitOnBarrier(Harness.SHORT_MS, TimeUnit.MILLISECONDS));
        for (CuratorFramework client : clients) {
            Harness.upToDate(client);
        }
        AtomicInteger passed = new AtomicInteger();
        ExecutorService threads = Executors.newCachedThreadPool();
        List<Future<Boolean>> waiters = new ArrayList<>();
        for (int i = 0; i < 6; i++) {
            CuratorFramework client = clients.get(i % 3);
            waiters.add(threads.submit(() -> {
                boolean through =
                        new DistributedBarrier(client, SINGLE).waitOnBarrier(Harness.PATIENCE_MS, TimeUnit.MILLISECONDS);
                passed.incrementAndGet();
                return through;
            }));
        }
        Harness.killServerOf(clients.get(0));
        Harness.reconnected(clients);
        Harness.say("through a barrier while it is set: " + passed.get());
        control.removeBarrier();
        for (Future<Boolean> waiter : waiters) {
            Harness.check(waiter.get(Harness.PATIENCE_MS, TimeUnit.MILLISECONDS), "a waiter passes");
        }
        Harness.say("through a barrier when it is gone: " + passed.get());
        threads.shutdown();
    }

    private static void twofold(List<CuratorFramework> clients) throws Exception {
        AtomicInteger entered = new AtomicInteger();
        AtomicInteger left = new AtomicInteger();
        ExecutorService threads = Executors.newCachedThreadPool();
        List<DistributedDoubleBarrier> members = new ArrayList<>();
        List<Future<Boolean>> ways = new ArrayList<>();
        for (CuratorFramework client : clients) {
            members.add(new DistributedDoubleBarrier(client, DOUBLE, clients.size()));
        }
        for (DistributedDoubleBarrier member : members.subList(0, 2)) {
            ways.add(threads.submit(() -> enter(member, entered)));
        }
        Harness.await("two are before it", () -> Harness.childCount(clients.get(2), DOUBLE) == 2);
        Harness.say("inside before all are there: " + entered.get());
        ways.add(threads.submit(() -> enter(members.get(2), entered)));
        all(ways);
        Harness.say("inside when all are there: " + entered.get());

        // A client that waits at the double barrier when its server is lost may get an error instead of waiting
        // further; a client inside may not.
        Harness.killServerOf(clients.get(0));
        Harness.reconnected(clients);
        for (DistributedDoubleBarrier member : members.subList(0, 2)) {
            ways.add(threads.submit(() -> leave(member, left)));
        }
        // Of three znodes and "ready", every client but the lowest deletes its znode and waits for the lowest.
        Harness.await("one wants to leave", () -> Harness.childCount(clients.get(2), DOUBLE) < 4);
        Harness.say("outside before all leave: " + left.get());
        ways.add(threads.submit(() -> leave(members.get(2), left)));
        all(ways);
        Harness.say("outside when all have left: " + left.get());
        threads.shutdown();
    }

    private static boolean enter(DistributedDoubleBarrier member, AtomicInteger entered) throws Exception {
        boolean through = member.enter(Harness.PATIENCE_MS, TimeUnit.MILLISECONDS);
        entered.incrementAndGet();
        return through;
    }

    private static boolean leave(DistributedDoubleBarrier member, AtomicInteger left) throws Exception {
        boolean through = member.leave(Harness.PATIENCE_MS, TimeUnit.MILLISECONDS);
        left.incrementAndGet();
        return through;
    }

    private static void all(List<Future<Boolean>> ways) throws Exception {
        for (Future<Boolean> way : ways) {
            Harness.check(way.get(Harness.PATIENCE_MS, TimeUnit.MILLISECONDS), "a member passes");
        }
        ways.clear();
    }
}
