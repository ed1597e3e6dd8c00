import java.util.List;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;

/**
 * A read-write lock. Its name has one thread, which owns what it acquires.
 *
 * <pre>
 * read NAME, write NAME              waits for the lock
 * tryread NAME MS, trywrite NAME MS  answers whether that has succeeded in time
 * unread NAME, unwrite NAME          gives it back
 * readers NAME, writers NAME         the paths of the contenders
 * </pre>
 */
final class ReadWriteLock implements Agent.Member {
  private final InterProcessReadWriteLock lock;

  ReadWriteLock(CuratorFramework client, String path) {
    lock = new InterProcessReadWriteLock(client, path);
  }

  @Override public List<String> run(String command, List<String> args) throws Exception {
    switch (command) {
      case "read":
        lock.readLock().acquire();
        return List.of();
      case "write":
        lock.writeLock().acquire();
        return List.of();
      case "tryread":
        return List.of(String.valueOf(lock.readLock().acquire(Long.parseLong(args.get(0)), TimeUnit.MILLISECONDS)));
      case "trywrite":
        return List.of(String.valueOf(lock.writeLock().acquire(Long.parseLong(args.get(0)), TimeUnit.MILLISECONDS)));
      case "unread":
        lock.readLock().release();
        return List.of();
      case "unwrite":
        lock.writeLock().release();
        return List.of();
      case "readers":
        return List.copyOf(lock.readLock().getParticipantNodes());
      case "writers":
        return List.copyOf(lock.writeLock().getParticipantNodes());
      default:
        throw new IllegalArgumentException(command);
    }
  }
}
