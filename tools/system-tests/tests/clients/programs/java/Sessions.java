// Sessions: their ephemerals, their resumption by another client, and the notification of their end.

import java.util.ArrayList;
import java.util.List;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.Watcher.Event.KeeperState;
import org.apache.zookeeper.ZooDefs;
import org.apache.zookeeper.data.ACL;

final class Sessions {
    private static final String ROOT = "/java-sessions";
    private static final List<ACL> OPEN = ZooDefs.Ids.OPEN_ACL_UNSAFE;

    /** Session timeout, short enough for the program to wait for it; in milliseconds. */
    private static final int SHORT_TIMEOUT_MS = 2_000;

    private static Client observer;

    public static void main(String[] arguments) {
        Harness.run(arguments, Sessions::test);
    }

    private static void test() throws Exception {
        observer = Client.connect();
        observer.create(ROOT, new byte[0], OPEN, CreateMode.PERSISTENT);
        closed();
        resumed();
        refused();
        expired();
        observer.close();
    }

    private static boolean exists(String path) throws Exception {
        observer.upToDate();
        return observer.exists(ROOT + path, false) != null;
    }

    private static void closed() throws Exception {
        Client client = Client.connect();
        Harness.say("the timeout that was asked for: " + (client.getSessionTimeout() == Harness.SESSION_TIMEOUT_MS));
        client.create(ROOT + "/closed", new byte[0], OPEN, CreateMode.EPHEMERAL);
        client.create(ROOT + "/stays", new byte[0], OPEN, CreateMode.PERSISTENT);
        Harness.say("an ephemeral while its session lives: " + exists("/closed"));
        long id = client.getSessionId();
        byte[] password = client.getSessionPasswd();
        client.close();
        Harness.say("after its session was closed: " + exists("/closed") + ", others: " + exists("/stays"));
        expect("who goes on with a closed session", Client.resume(id, password));
    }

    private static void resumed() throws Exception {
        Client client = Client.connect();
        client.create(ROOT + "/resumed", new byte[0], OPEN, CreateMode.EPHEMERAL);
        String first = Harness.serverOf(client);
        client.crash();
        // Each server in turn; at the end the same one as at the start.
        for (String server : Harness.servers.split(",")) {
            String all = Harness.servers;
            Harness.servers = server;
            Client next = Client.resume(client.getSessionId(), client.getSessionPasswd()).connected();
            Harness.servers = all;
            next.upToDate();
            Harness.same(client.getSessionId(), next.getSessionId(), "the session");
            Harness.same(1, next.getEphemerals().size(), "how many ephemerals it has");
            next.crash();
        }
        Client last = Client.resume(client.getSessionId(), client.getSessionPasswd()).connected();
        last.setData(ROOT + "/resumed", first.getBytes(), 0);
        Harness.say("the same session at each server, its ephemeral: " + exists("/resumed"));
        last.close();
        Harness.say("and when it is closed: " + exists("/resumed"));
    }

    private static void refused() throws Exception {
        Client client = Client.connect();
        client.create(ROOT + "/refused", new byte[0], OPEN, CreateMode.EPHEMERAL);
        byte[] wrong = client.getSessionPasswd().clone();
        wrong[3]++;
        expect("who has a wrong password", Client.resume(client.getSessionId(), wrong));
        Harness.say("the session itself: " + exists("/refused") + ", its ephemerals: " + ephemerals(client));
        expect("who names a session that never was", Client.resume(client.getSessionId() + 0x10_0000, wrong));
        client.close();
    }

    /** ZooKeeper closes the connection of a session when any client tries to resume it at the connected server. */
    private static List<String> ephemerals(Client client) throws Exception {
        List<String> found = new ArrayList<>();
        Harness.await("a client is answered", () -> {
            try {
                found.addAll(client.connected().getEphemerals());
                return true;
            } catch (KeeperException.ConnectionLossException again) {
                return false;
            }
        });
        return found;
    }

    private static void expired() throws Exception {
        Client client = Client.connect(Harness.servers, SHORT_TIMEOUT_MS);
        client.create(ROOT + "/expired", new byte[0], OPEN, CreateMode.EPHEMERAL);
        Client.Notices notices = new Client.Notices();
        Harness.check(exists("/expired"), "it is there");
        observer.exists(ROOT + "/expired", notices);
        client.crash();
        Harness.say("who is silent for too long loses its ephemerals: " + notices.next());
        expect("who comes back too late", Client.resume(client.getSessionId(), client.getSessionPasswd()));
    }

    private static void expect(String what, Client client) throws Exception {
        client.told(KeeperState.Expired);
        try {
            client.exists("/", false);
        } catch (KeeperException over) {
            Harness.say(what + " is told: " + over.code());
        }
        client.close();
    }
}
