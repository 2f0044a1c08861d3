// Curator's transactions: all or nothing, with many clients at once and through a failover.

import java.util.ArrayList;
import java.util.List;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.api.transaction.CuratorTransactionResult;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.data.Stat;

final class Transactions {
    private static final String PATH = "/curator/accounts";
    private static final int MONEY = 100;

    public static void main(String[] arguments) {
        Harness.run(arguments, Transactions::test);
    }

    private static void test() throws Exception {
        List<CuratorFramework> clients = Harness.curators(3);
        CuratorFramework client = clients.get(0);
        client.create().creatingParentsIfNeeded().forPath(PATH);
        List<CuratorTransactionResult> results = client.transaction().forOperations(
                client.transactionOp().create().forPath(PATH + "/a", bytes(MONEY)),
                client.transactionOp().create().forPath(PATH + "/b", bytes(0)),
                client.transactionOp().create().withMode(CreateMode.PERSISTENT_SEQUENTIAL).forPath(PATH + "/entry-"),
                client.transactionOp().setData().withVersion(0).forPath(PATH + "/a", bytes(MONEY)),
                client.transactionOp().check().withVersion(1).forPath(PATH + "/a"),
                client.transactionOp().delete().forPath(PATH + "/entry-0000000002"));
        for (CuratorTransactionResult result : results) {
            Stat stat = result.getResultStat();
            Harness.say(result.getType() + " " + result.getForPath() + " -> " + result.getResultPath()
                    + ", version " + (stat == null ? "none" : stat.getVersion()) + ", error " + result.getError());
        }
        try {
            client.transaction().forOperations(
                    client.transactionOp().create().forPath(PATH + "/c"),
                    client.transactionOp().delete().forPath(PATH + "/missing"),
                    client.transactionOp().setData().forPath(PATH + "/a", bytes(1)));
        } catch (KeeperException refused) {
            Harness.say("refused: " + refused.code());
            refused.getResults().forEach(result -> Harness.say("  " + Show.result(result)));
        }
        Harness.say("nothing of it was done: " + (client.checkExists().forPath(PATH + "/c") == null));

        List<Harness.Turn> everybody = new ArrayList<>();
        for (CuratorFramework each : clients) {
            everybody.add(() -> move(each));
        }
        Harness.contend(clients.get(0), 8, everybody);
        Harness.upToDate(client);
        int left = number(client, "/a", new Stat());
        int moved = number(client, "/b", new Stat());
        Harness.say("no money is lost: " + (left + moved == MONEY) + ", some was moved: " + (moved > 0));
    }

    /** Moves one unit from an account to the other, unless another client was faster. */
    private static void move(CuratorFramework client) throws Exception {
        Stat from = new Stat();
        Stat to = new Stat();
        int a = number(client, "/a", from);
        int b = number(client, "/b", to);
        try {
            client.transaction().forOperations(
                    client.transactionOp().setData().withVersion(from.getVersion()).forPath(PATH + "/a", bytes(a - 1)),
                    client.transactionOp().setData().withVersion(to.getVersion()).forPath(PATH + "/b", bytes(b + 1)));
        } catch (KeeperException.BadVersionException faster) {
            // The transfer was not made, or it was and the reply was lost: the sum is the same in both cases.
        }
    }

    private static int number(CuratorFramework client, String account, Stat stat) throws Exception {
        return Integer.parseInt(new String(client.getData().storingStatIn(stat).forPath(PATH + account)));
    }

    private static byte[] bytes(int number) {
        return Integer.toString(number).getBytes();
    }
}
