import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.List;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.leader.LeaderSelector;
import org.apache.curator.framework.recipes.leader.LeaderSelectorListenerAdapter;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;

/**
 * A lock, with an id as its znode's data if one is given.
 *
 * <pre>
 * acquire NAME                waits for the lock; answers with its znode's path
 * tryacquire NAME MS          the same, or nothing if that takes too long
 * release NAME
 * nodes NAME                  the paths of all contenders
 * participants NAME           their ids as LeaderSelector reads them, the holder's with a star
 * revocable NAME              before an acquire: listens for a revocation
 * revoked NAME MS             waits until it was called, or answers false
 * soak NAME FOLDER TOTAL      increments the counter until it is there; answers with its own share
 * </pre>
 */
final class Mutex extends InterProcessMutex implements Agent.Member {
  private final CuratorFramework client;
  private final String path;
  private final byte[] id;
  private final Semaphore revoked = new Semaphore(0);

  private Mutex(CuratorFramework client, String path, byte[] id) {
    super(client, path);
    this.client = client;
    this.path = path;
    this.id = id;
  }

  static Mutex of(CuratorFramework client, List<String> pathAndId) {
    return new Mutex(client, pathAndId.get(0), pathAndId.size() < 2 ? null : pathAndId.get(1).getBytes(StandardCharsets.UTF_8));
  }

  @Override protected byte[] getLockNodeBytes() {
    return id;
  }

  @Override public List<String> run(String command, List<String> args) throws Exception {
    switch (command) {
      case "acquire":
        acquire();
        return List.of(getLockPath());
      case "tryacquire":
        return acquire(Long.parseLong(args.get(0)), TimeUnit.MILLISECONDS) ? List.of(getLockPath()) : List.of();
      case "release":
        release();
        return List.of();
      case "nodes":
        return List.copyOf(getParticipantNodes());
      case "participants":
        return new LeaderSelector(client, path, new LeaderSelectorListenerAdapter() {
          @Override public void takeLeadership(CuratorFramework client) {}
        }).getParticipants().stream().map(p -> p.getId() + (p.isLeader() ? "*" : "")).toList();
      case "revocable":
        makeRevocable(mutex -> revoked.release());
        return List.of();
      case "revoked":
        return List.of(String.valueOf(revoked.tryAcquire(Long.parseLong(args.get(0)), TimeUnit.MILLISECONDS)));
      case "soak":
        return List.of(String.valueOf(soak(Path.of(args.get(0)), Integer.parseInt(args.get(1)))));
      default:
        throw new IllegalArgumentException(command);
    }
  }

  /** Nothing but the lock guards the two files. */
  private int soak(Path folder, int total) throws Exception {
    for (int share = 0;; share++) {
      acquire();
      try {
        int count = Integer.parseInt(Files.readString(folder.resolve("counter")));
        if (count >= total) {
          return share;
        }
        Files.writeString(folder.resolve("order"), getLockPath() + "\n", StandardOpenOption.APPEND);
        Files.writeString(folder.resolve("counter"), String.valueOf(count + 1));
      } finally {
        release();
      }
    }
  }
}
