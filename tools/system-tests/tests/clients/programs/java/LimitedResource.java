// Something that only so many may use at once. Notices if more do.

import java.util.concurrent.atomic.AtomicInteger;

/** What a lock protects in these programs. */
final class LimitedResource {
    /** A use takes so long, for another to come in if it could; in milliseconds. */
    private static final int USE_MS = 2;

    /** A writer weighs as much as all readers that there may be. */
    private static final int ALONE = 1_000;

    private final int limit;
    private final AtomicInteger users = new AtomicInteger();
    private final AtomicInteger most = new AtomicInteger();

    /** At most so many at once. */
    LimitedResource(int limit) {
        this.limit = limit;
    }

    /** For one user at a time, or any number of readers. */
    static LimitedResource readersOrWriter() {
        return new LimitedResource(ALONE);
    }

    /** One of those that share it. */
    void use() throws InterruptedException {
        use(1);
    }

    /** One that must be alone. */
    void useAlone() throws InterruptedException {
        use(limit);
    }

    /** The most users that there were at once. */
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
