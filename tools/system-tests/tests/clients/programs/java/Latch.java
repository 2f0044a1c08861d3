// LeaderLatch: one leader of three; a new one when it leaves, and again one after a failover.

import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.leader.Participant;

final class Latch {
    private static final String PATH = "/curator/latch";

    public static void main(String[] arguments) {
        Harness.run(arguments, Latch::test);
    }

    private static void test() throws Exception {
        List<CuratorFramework> clients = Harness.curators(3);
        List<LeaderLatch> latches = new ArrayList<>();
        for (int i = 0; i < clients.size(); i++) {
            LeaderLatch latch = new LeaderLatch(clients.get(i), PATH, "latch-" + i);
            latch.start();
            latches.add(latch);
        }
        LeaderLatch leader = one(latches);
        Harness.say("participants: " + ids(leader));

        Harness.killServerOf(clients.get(latches.indexOf(leader)));
        Harness.reconnected(clients);
        one(latches);
        Harness.say("participants after a failover: " + ids(latches.get(0)));

        Set<String> led = new TreeSet<>();
        while (!latches.isEmpty()) {
            leader = one(latches);
            led.add(leader.getId());
            latches.remove(leader);
            leader.close();
            Harness.say("who has gone leads: " + leader.hasLeadership());
        }
        Harness.say("each led: " + led);
    }

    /** Returns the only leader, once all agree. */
    private static LeaderLatch one(List<LeaderLatch> latches) throws Exception {
        LeaderLatch[] found = new LeaderLatch[1];
        Harness.await("all agree on one leader", () -> {
            int leaders = 0;
            for (LeaderLatch latch : latches) {
                if (latch.hasLeadership()) {
                    leaders++;
                    found[0] = latch;
                }
            }
            Harness.check(leaders <= 1, "there is one leader at a time (" + leaders + ")");
            if (leaders == 0 || ids(latches.get(0)).size() != latches.size()) {
                return false;
            }
            for (LeaderLatch latch : latches) {
                if (!latch.getLeader().getId().equals(found[0].getId())) {
                    return false;
                }
            }
            return found[0].hasLeadership();
        });
        return found[0];
    }

    private static Set<String> ids(LeaderLatch latch) throws Exception {
        Set<String> ids = new TreeSet<>();
        for (Participant participant : latch.getParticipants()) {
            ids.add(participant.getId());
        }
        return ids;
    }
}
