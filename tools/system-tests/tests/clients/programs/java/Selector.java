// LeaderSelector: a leader is alone; all contenders lead in turn, before and after a failover.

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.leader.LeaderSelector;
import org.apache.curator.framework.recipes.leader.LeaderSelectorListenerAdapter;

final class Selector {
    private static final String PATH = "/curator/selector";

    /** Number of times that each contender leads before the failover, and again after it. */
    private static final int TURNS = 3;

    public static void main(String[] arguments) {
        Harness.run(arguments, Selector::test);
    }

    private static void test() throws Exception {
        List<CuratorFramework> clients = Harness.curators(3);
        LimitedResource leadership = new LimitedResource(1);
        List<AtomicInteger> turns = new ArrayList<>();
        List<LeaderSelector> selectors = new ArrayList<>();
        for (int i = 0; i < clients.size(); i++) {
            AtomicInteger own = new AtomicInteger();
            turns.add(own);
            LeaderSelector selector = new LeaderSelector(clients.get(i), PATH, new LeaderSelectorListenerAdapter() {
                @Override
                public void takeLeadership(CuratorFramework client) throws Exception {
                    leadership.use();
                    own.incrementAndGet();
                }
            });
            selector.setId("selector-" + i);
            selector.autoRequeue();
            selector.start();
            selectors.add(selector);
        }
        allLead(turns);
        Harness.say("all have led");
        Harness.killServerOf(clients.get(0));
        turns.forEach(own -> own.set(0));
        allLead(turns);
        Harness.say("all have led after a failover");
        for (LeaderSelector selector : selectors) {
            selector.close();
        }
        Harness.say("the most leaders at once: " + leadership.most());
        Harness.await("nobody is left", () -> Harness.childCount(clients.get(0), PATH) == 0);
    }

    private static void allLead(List<AtomicInteger> turns) throws Exception {
        Harness.await("each has led", () -> turns.stream().allMatch(own -> own.get() >= TURNS));
    }
}
