// The format of results: without values that differ from run to run, such as zxids, times and session ids.

import java.util.List;
import java.util.stream.Collectors;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.OpResult;
import org.apache.zookeeper.WatchedEvent;
import org.apache.zookeeper.ZooDefs;
import org.apache.zookeeper.data.ACL;
import org.apache.zookeeper.data.Stat;

final class Show {
    /** Owner in the stat of a container. */
    private static final long CONTAINER = Long.MIN_VALUE;

    /** Highest byte of the owner in the stat of a znode with a TTL. */
    private static final long TTL_MARK = 0xffL;

    private Show() {}

    /** Formats a stat; `session` is the reader's. */
    static String stat(Stat stat, long session) {
        return "version " + stat.getVersion() + ", cversion " + stat.getCversion() + ", aversion " + stat.getAversion()
                + ", length " + stat.getDataLength() + ", children " + stat.getNumChildren()
                + ", owner " + owner(stat.getEphemeralOwner(), session)
                + ", " + (stat.getCzxid() == stat.getMzxid() ? "never set" : "set")
                + ", " + (stat.getCzxid() == stat.getPzxid() ? "children never changed" : "children changed");
    }

    private static String owner(long owner, long session) {
        if (owner == 0) {
            return "nobody";
        }
        if (owner == session) {
            return "this session";
        }
        if (owner == CONTAINER) {
            return "a container";
        }
        return owner >>> 56 == TTL_MARK ? "a ttl of " + (owner & 0xff_ffff_ffffL) + " ms" : "another session";
    }

    /** Formats a notification. */
    static String event(WatchedEvent event) {
        return event.getType() + " " + event.getPath();
    }

    /** Formats an access control list. */
    static String acl(List<ACL> acl) {
        return acl.stream()
                .map(entry -> entry.getId().getScheme() + ":" + entry.getId().getId() + ":" + perms(entry.getPerms()))
                .collect(Collectors.joining(", "));
    }

    private static String perms(int perms) {
        StringBuilder text = new StringBuilder();
        int[] bits = {ZooDefs.Perms.CREATE, ZooDefs.Perms.DELETE, ZooDefs.Perms.READ, ZooDefs.Perms.WRITE, ZooDefs.Perms.ADMIN};
        for (int i = 0; i < bits.length; i++) {
            if ((perms & bits[i]) != 0) {
                text.append("cdrwa".charAt(i));
            }
        }
        return text.toString();
    }

    /** Formats the result of one operation of a multi. */
    static String result(OpResult result) {
        if (result instanceof OpResult.ErrorResult error) {
            return "error " + KeeperException.Code.get(error.getErr());
        }
        if (result instanceof OpResult.CreateResult create) {
            Stat stat = create.getStat();
            return "created " + create.getPath() + (stat == null ? "" : ", version " + stat.getVersion());
        }
        if (result instanceof OpResult.SetDataResult set) {
            return "set, version " + set.getStat().getVersion();
        }
        if (result instanceof OpResult.GetDataResult get) {
            return "data " + new String(get.getData()) + ", version " + get.getStat().getVersion();
        }
        if (result instanceof OpResult.GetChildrenResult children) {
            return "children " + children.getChildren().stream().sorted().toList();
        }
        if (result instanceof OpResult.DeleteResult) {
            return "deleted";
        }
        return result instanceof OpResult.CheckResult ? "checked" : "unknown " + result;
    }

    /** Formats the error or the result of an operation. */
    static String outcome(Call call) throws Exception {
        try {
            return call.run();
        } catch (KeeperException refused) {
            return "refused: " + refused.code();
        } catch (IllegalArgumentException invalid) {
            return "invalid";
        }
    }

    /** A call with a result to print. */
    interface Call {
        String run() throws Exception;
    }
}
