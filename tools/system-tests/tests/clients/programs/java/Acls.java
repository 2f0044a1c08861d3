// Access control lists: the permissions of callers, and their identities.

import java.util.Arrays;
import java.util.List;
import java.util.stream.Collectors;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.Watcher.Event.KeeperState;
import org.apache.zookeeper.ZooDefs;
import org.apache.zookeeper.ZooDefs.Perms;
import org.apache.zookeeper.data.ACL;
import org.apache.zookeeper.data.ClientInfo;
import org.apache.zookeeper.data.Id;
import org.apache.zookeeper.data.Stat;
import org.apache.zookeeper.server.auth.DigestAuthenticationProvider;

final class Acls {
    private static final String ROOT = "/java-acls";
    private static final byte[] NONE = new byte[0];

    private static Client client;
    private static Client stranger;

    public static void main(String[] arguments) {
        Harness.run(arguments, Acls::test);
    }

    private static void test() throws Exception {
        client = Client.connect();
        stranger = Client.connect();
        client.create(ROOT, NONE, ZooDefs.Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT);
        world();
        digest();
        addresses();
        identities();
        refusals();
        client.close();
        stranger.close();
    }

    private static void say(String what, Show.Call call) throws Exception {
        Harness.say(what + ": " + Show.outcome(call));
    }

    private static ACL acl(int perms, String scheme, String id) {
        return new ACL(perms, new Id(scheme, id));
    }

    /** Returns a list that the client accepts: it calls contains(null), which throws for `List.of`. */
    private static List<ACL> acls(ACL... entries) {
        return Arrays.asList(entries);
    }

    private static String get(Client who, String path) throws Exception {
        return Show.acl(who.getACL(ROOT + path, new Stat()));
    }

    private static void world() throws Exception {
        String path = ROOT + "/world";
        client.create(path, NONE, acls(acl(Perms.READ | Perms.ADMIN, "world", "anyone")), CreateMode.PERSISTENT);
        say("the ACL", () -> get(client, "/world"));
        say("read", () -> "" + client.getData(path, false, null).length);
        say("write", () -> "" + client.setData(path, NONE, -1));
        say("create a child", () -> client.create(path + "/child", NONE, ZooDefs.Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT));
        say("set the ACL of an old version", () -> "" + client.setACL(path, ZooDefs.Ids.OPEN_ACL_UNSAFE, 3).getAversion());
        say("set the ACL", () -> "aversion " + client.setACL(path, ZooDefs.Ids.OPEN_ACL_UNSAFE, 0).getAversion());
        say("write then", () -> "version " + client.setData(path, NONE, -1).getVersion());
        say("the ACL then", () -> get(client, "/world"));
    }

    private static void digest() throws Exception {
        String path = ROOT + "/digest";
        String id = DigestAuthenticationProvider.generateDigest("user:secret");
        client.addAuthInfo("digest", "user:secret".getBytes());
        client.create(path, NONE, acls(acl(Perms.ALL, "digest", id)), CreateMode.PERSISTENT);
        stranger.upToDate();
        say("who is it may read its ACL", () -> get(client, "/digest"));
        say("a stranger reads the ACL", () -> get(stranger, "/digest"));
        say("a stranger reads", () -> "" + stranger.getData(path, false, null).length);
        say("a stranger lists", () -> "" + stranger.getChildren(path, false));
        say("a stranger writes", () -> "" + stranger.setData(path, NONE, -1));
        say("a stranger creates", () -> stranger.create(path + "/c", NONE, ZooDefs.Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT));
        say("a stranger sets the ACL", () -> "" + stranger.setACL(path, ZooDefs.Ids.OPEN_ACL_UNSAFE, -1));
        client.create(path + "/open", NONE, ZooDefs.Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT);
        say("a stranger deletes an open child of it", () -> {
            stranger.delete(path + "/open", -1);
            return "done";
        });
        stranger.addAuthInfo("digest", "user:wrong".getBytes());
        say("with another password", () -> "" + stranger.getData(path, false, null).length);
        stranger.addAuthInfo("digest", "user:secret".getBytes());
        say("with the password", () -> "" + stranger.getData(path, false, null).length);
        say("who has proven two, creates for all that it is", () -> {
            stranger.create(ROOT + "/creator", NONE, ZooDefs.Ids.CREATOR_ALL_ACL, CreateMode.PERSISTENT);
            client.upToDate();
            return get(client, "/creator");
        });
    }

    private static void addresses() throws Exception {
        client.create(ROOT + "/here", NONE, acls(acl(Perms.ALL, "ip", "127.0.0.1")), CreateMode.PERSISTENT);
        client.create(ROOT + "/net", NONE, acls(acl(Perms.ALL, "ip", "127.0.0.0/8")), CreateMode.PERSISTENT);
        client.create(ROOT + "/away", NONE, acls(acl(Perms.READ, "ip", "10.0.0.1"), acl(Perms.ADMIN, "world", "anyone")),
                CreateMode.PERSISTENT);
        for (String path : List.of("/here", "/net", "/away")) {
            say(path, () -> get(client, path) + "; " + Show.outcome(() -> "" + client.getData(ROOT + path, false, null).length));
        }
    }

    private static void identities() throws Exception {
        for (Client who : List.of(client, stranger)) {
            say("who am I", () -> who.whoAmI().stream().map(Acls::show).sorted().collect(Collectors.joining(", ")));
        }
    }

    private static String show(ClientInfo info) {
        return info.getAuthScheme() + ":" + info.getUser();
    }

    private static void refusals() throws Exception {
        for (ACL acl : List.of(acl(Perms.ALL, "digest", "no-hash"), acl(Perms.ALL, "ip", "300.0.0.1"),
                acl(Perms.ALL, "unknown", "who"), acl(Perms.ALL, "world", "somebody"))) {
            say("an ACL of " + acl.getId().getScheme() + ":" + acl.getId().getId(),
                    () -> client.create(ROOT + "/refused", NONE, acls(acl), CreateMode.PERSISTENT));
        }
        try (Client nobody = Client.connect()) {
            say("for all that it is, which is nothing",
                    () -> nobody.create(ROOT + "/refused", NONE, ZooDefs.Ids.CREATOR_ALL_ACL, CreateMode.PERSISTENT));
            nobody.addAuthInfo("unknown", "who".getBytes());
            nobody.told(KeeperState.AuthFailed);
            Harness.say("an unknown scheme: " + nobody.getState());
        }
    }
}
