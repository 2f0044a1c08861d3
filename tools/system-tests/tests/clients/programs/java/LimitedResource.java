// A resource with a limited number of users. It detects more users than allowed.

import java.util.concurrent.atomic.AtomicInteger;

/** The resource that a lock protects in these programs. */
final class LimitedResource {
    /** Duration of a use, long enough for another user to enter if the lock allowed it; in milliseconds. */
    private static final int USE_MS = 2;

    /** Weight of a writer: that of all possible readers. */
    private static final int ALONE = 1_000;

    private final int limit;
    private final AtomicInteger users = new AtomicInteger();
    private final AtomicInteger most = new AtomicInteger();

    /** A resource for at most this many users at once. */
    LimitedResource(int limit) {
        this.limit = limit;
    }

    /** A resource for one writer at a time, or any number of readers. */
    static LimitedResource readersOrWriter() {
        return new LimitedResource(ALONE);
    }

    /** Use by one of several readers. */
    void use() throws InterruptedException {
        use(1);
    }

    /** Use by a writer, which must be alone. */
    void useAlone() throws InterruptedException {
        use(limit);
    }

    /** Highest number of simultaneous users. */
    int most() {
        return most.get();
    }

    private void use(int weight) throws InterruptedException {
        int now = users.addAndGet(weight);
        most.accumulateAndGet(now, Math::max);
        try {
            Harness.check(now <= limit, "no more use the resource than may (" + now + " of " + limit + ")");
            Thread.sleep(USE_MS);
        } finally {
            users.addAndGet(-weight);
        }
    }
}
