// SharedCount and DistributedAtomicLong: no increment is lost with many concurrent clients and through a failover.

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.atomic.AtomicValue;
import org.apache.curator.framework.recipes.atomic.DistributedAtomicLong;
import org.apache.curator.framework.recipes.atomic.PromotedToLock;
import org.apache.curator.framework.recipes.shared.SharedCount;
import org.apache.curator.framework.recipes.shared.SharedCountListener;
import org.apache.curator.framework.recipes.shared.SharedCountReader;
import org.apache.curator.framework.recipes.shared.VersionedValue;
import org.apache.curator.framework.state.ConnectionState;
import org.apache.curator.retry.RetryNTimes;

final class Counters {
    public static void main(String[] arguments) {
        Harness.run(arguments, Counters::test);
    }

    private static void test() throws Exception {
        List<CuratorFramework> clients = Harness.curators(3);
        sharedCount(clients);
        atomicLong(clients);
    }

    /**
     * Curator repeats a write whose reply was lost, and then finds that another write was faster: its own. So one write of
     * each thread that is in flight at the failover may count twice, and none may be missing.
     */
    private static String verdict(long counted, long value, int threads) {
        Harness.check(counted <= value && value <= counted + threads, counted + " were counted as " + value);
        return "no increment is lost: true";
    }

    private static void sharedCount(List<CuratorFramework> clients) throws Exception {
        List<SharedCount> counts = new ArrayList<>();
        for (CuratorFramework client : clients) {
            SharedCount count = new SharedCount(client, "/curator/count", 7);
            count.start();
            counts.add(count);
        }
        Harness.say("the seed: " + counts.get(1).getCount());
        AtomicInteger told = new AtomicInteger();
        counts.get(2).addListener(new SharedCountListener() {
            @Override
            public void countHasChanged(SharedCountReader count, int value) {
                told.set(value);
            }

            @Override
            public void stateChanged(CuratorFramework client, ConnectionState state) {}
        });
        counts.get(0).setCount(0);
        Harness.await("another is told", () -> counts.get(1).getCount() == 0);
        VersionedValue<Integer> old = counts.get(1).getVersionedValue();
        counts.get(0).setCount(1);
        Harness.say("a change of an old version: " + counts.get(1).trySetCount(old, 99));
        counts.get(0).setCount(0);

        AtomicInteger counted = new AtomicInteger();
        List<Harness.Turn> everybody = new ArrayList<>();
        for (SharedCount count : counts) {
            everybody.add(() -> {
                VersionedValue<Integer> now = count.getVersionedValue();
                while (!count.trySetCount(now, now.getValue() + 1)) {
                    now = count.getVersionedValue();
                }
                counted.incrementAndGet();
            });
        }
        Harness.contend(clients.get(0), 8, everybody);
        Harness.upToDate(clients.get(0));
        byte[] data = clients.get(0).getData().forPath("/curator/count");
        int value = java.nio.ByteBuffer.wrap(data).getInt();
        Harness.say("SharedCount, " + verdict(counted.get(), value, everybody.size()));
        Harness.await("the listener is told of the last change", () -> told.get() == value);
        for (SharedCount count : counts) {
            Harness.await("all see the last change", () -> count.getCount() == value);
        }
        Harness.say("all see the last change");
    }

    private static void atomicLong(List<CuratorFramework> clients) throws Exception {
        String path = "/curator/atomic-long";
        PromotedToLock lock = PromotedToLock.builder()
                .lockPath(path + "-lock")
                .retryPolicy(new RetryNTimes(100, 10))
                .build();
        List<DistributedAtomicLong> longs = new ArrayList<>();
        for (CuratorFramework client : clients) {
            longs.add(new DistributedAtomicLong(client, path, new RetryNTimes(10, 10), lock));
        }
        Harness.say("initialized: " + longs.get(0).initialize(5L) + ", and again: " + longs.get(1).initialize(6L));
        Harness.say("added: " + show(longs.get(0).add(10L)));
        Harness.say("subtracted: " + show(longs.get(1).subtract(3L)));
        Harness.say("decremented: " + show(longs.get(2).decrement()));
        Harness.upToDate(clients.get(0));
        Harness.say("set from 11 to 0: " + show(longs.get(0).compareAndSet(11L, 0L)));
        Harness.say("set from 11 again: " + longs.get(1).compareAndSet(11L, 0L).succeeded());

        AtomicInteger counted = new AtomicInteger();
        List<Harness.Turn> everybody = new ArrayList<>();
        for (DistributedAtomicLong number : longs) {
            everybody.add(() -> {
                if (number.increment().succeeded()) {
                    counted.incrementAndGet();
                }
            });
        }
        Harness.contend(clients.get(0), 8, everybody);
        Harness.upToDate(clients.get(0));
        long value = longs.get(0).get().postValue();
        Harness.say("DistributedAtomicLong, " + verdict(counted.get(), value, everybody.size()));
    }

    private static String show(AtomicValue<Long> value) {
        return value.succeeded() + ", from " + value.preValue() + " to " + value.postValue();
    }
}
