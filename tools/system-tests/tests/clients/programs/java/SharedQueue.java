// Curator's mutex and read-write lock in one queue with HTTP callers: they exclude each other, even through a failover.

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;

final class SharedQueue {
    public static void main(String[] arguments) {
        Harness.run(arguments, SharedQueue::test);
    }

    private static void test() throws Exception {
        List<CuratorFramework> clients = Harness.curators(2);
        mutex(clients);
        readWrite(clients);
    }

    private static void mutex(List<CuratorFramework> clients) throws Exception {
        String name = "mutex-and-http";
        InterProcessMutex ours = new InterProcessMutex(clients.get(0), "/locks/" + name);
        LockgateHttp theirs = new LockgateHttp(name, "");

        ours.acquire();
        Harness.say("by HTTP beside the mutex: " + theirs.acquire(Harness.SHORT_MS));
        ours.release();
        Harness.say("then: " + theirs.acquire(null));
        Harness.say("the mutex beside it: " + soon(ours));
        theirs.release();
        Harness.say("then: " + ours.acquire(Harness.PATIENCE_MS, TimeUnit.MILLISECONDS));
        ours.release();

        LimitedResource resource = new LimitedResource(1);
        List<Harness.Turn> everybody = new ArrayList<>();
        for (CuratorFramework client : clients) {
            InterProcessMutex mutex = new InterProcessMutex(client, "/locks/" + name);
            everybody.add(() -> {
                mutex.acquire();
                try {
                    resource.use();
                } finally {
                    mutex.release();
                }
            });
            LockgateHttp http = new LockgateHttp(name, "");
            everybody.add(() -> {
                http.acquire(null);
                resource.use();
                http.release();
            });
        }
        Harness.contend(clients.get(0), 8, everybody);
        Harness.say("the most at once: " + resource.most());
    }

    private static void readWrite(List<CuratorFramework> clients) throws Exception {
        String name = "read-write-and-http";
        String names = ", \"names\": \"read_write\"";
        InterProcessReadWriteLock ours = new InterProcessReadWriteLock(clients.get(0), "/locks/" + name);
        LockgateHttp reader = new LockgateHttp(name, ", \"mode\": \"shared\"" + names);
        LockgateHttp writer = new LockgateHttp(name, names);

        ours.readLock().acquire();
        Harness.say("a reader beside a reader: " + reader.acquire(Harness.SHORT_MS));
        Harness.say("a writer beside them: " + writer.acquire(Harness.SHORT_MS));
        ours.readLock().release();
        Harness.say("Curator's writer beside the reader by HTTP: " + soon(ours.writeLock()));
        reader.release();
        Harness.say("Curator's writer: " + ours.writeLock().acquire(Harness.PATIENCE_MS, TimeUnit.MILLISECONDS));
        Harness.say("a reader beside it: " + reader.acquire(Harness.SHORT_MS));
        ours.writeLock().release();
        Harness.say("the writer by HTTP: " + writer.acquire(null));
        Harness.say("Curator's reader beside it: " + soon(ours.readLock()));
        writer.release();
    }

    private static boolean soon(InterProcessMutex lock) throws Exception {
        return lock.acquire(Harness.SHORT_MS, TimeUnit.MILLISECONDS);
    }
}
