// InterProcessReadWriteLock: readers share, a writer is alone, and may become a reader.

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;

final class ReadWriteLock {
    /** A path of its own, and the path at which all other clients of Lockgate have their locks. */
    private static final List<String> PATHS = List.of("/curator/read-write", "/locks/curator-read-write");

    public static void main(String[] arguments) {
        Harness.run(arguments, ReadWriteLock::test);
    }

    private static void test() throws Exception {
        List<CuratorFramework> clients = Harness.curators(2);
        for (String path : PATHS) {
            Harness.say(path);
            test(clients, path);
        }
    }

    private static void test(List<CuratorFramework> clients, String path) throws Exception {
        InterProcessReadWriteLock first = new InterProcessReadWriteLock(clients.get(0), path);
        InterProcessReadWriteLock second = new InterProcessReadWriteLock(clients.get(1), path);

        first.readLock().acquire();
        Harness.say("two readers: " + soon(second.readLock()));
        second.readLock().release();
        Harness.say("a writer beside a reader: " + soon(second.writeLock()));
        Harness.say("a reader becomes a writer: " + soon(first.writeLock()));
        first.readLock().release();

        first.writeLock().acquire();
        Harness.say("a reader beside a writer: " + soon(second.readLock()));
        Harness.say("a writer beside a writer: " + soon(second.writeLock()));
        Harness.say("a writer enters as a reader: " + soon(first.readLock()));
        Harness.say("another reader meanwhile: " + soon(second.readLock()));
        first.writeLock().release();
        Harness.say("a writer has become a reader: " + first.readLock().isOwnedByCurrentThread());
        Harness.say("another reader then: " + second.readLock().acquire(Harness.PATIENCE_MS, TimeUnit.MILLISECONDS));
        Harness.say("another writer then: " + soon(second.writeLock()));
        second.readLock().release();
        first.readLock().release();

        // No writer becomes a reader here: before Curator 5.5, such a writer does not keep waiting writers out
        // (CURATOR-621).
        LimitedResource resource = LimitedResource.readersOrWriter();
        List<Harness.Turn> everybody = new ArrayList<>();
        for (InterProcessReadWriteLock lock : List.of(first, second)) {
            for (int i = 0; i < 2; i++) {
                everybody.add(() -> {
                    lock.readLock().acquire();
                    try {
                        resource.use();
                    } finally {
                        lock.readLock().release();
                    }
                });
            }
            everybody.add(() -> {
                lock.writeLock().acquire();
                try {
                    resource.useAlone();
                } finally {
                    lock.writeLock().release();
                }
            });
        }
        Harness.contend(clients.get(0), 5, everybody);
        Harness.say("a writer was always alone: true");
        Harness.say("contenders left: " + Harness.childCount(clients.get(1), path));
    }

    private static boolean soon(InterProcessMutex lock) throws Exception {
        return lock.acquire(Harness.SHORT_MS, TimeUnit.MILLISECONDS);
    }
}
