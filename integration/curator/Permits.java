import java.util.Collection;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreMutex;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.locks.Lease;
import org.apache.curator.framework.recipes.shared.SharedCount;

/**
 * A semaphore, whose limit is a number or the path of a shared count, or a semaphore mutex.
 *
 * <pre>
 * take NAME N        waits for so many permits; answers with their names
 * trytake NAME N MS  the same, or nothing if that takes too long
 * give NAME          gives all back
 * holders NAME       the names of all permits
 * count NAME N       sets the shared count
 * acquire NAME, tryacquire NAME MS, release NAME    of a mutex; a try answers true or false
 * </pre>
 */
final class Permits implements Agent.Member {
  private final InterProcessSemaphoreV2 semaphore;
  private final InterProcessSemaphoreMutex mutex;
  private final SharedCount count;
  private Collection<Lease> leases = List.of();

  private Permits(InterProcessSemaphoreV2 semaphore, InterProcessSemaphoreMutex mutex, SharedCount count) {
    this.semaphore = semaphore;
    this.mutex = mutex;
    this.count = count;
  }

  static Permits of(CuratorFramework client, String path, String limit) throws Exception {
    if (!limit.startsWith("/")) {
      return new Permits(new InterProcessSemaphoreV2(client, path, Integer.parseInt(limit)), null, null);
    }
    var count = new SharedCount(client, limit, 1);
    count.start();
    return new Permits(new InterProcessSemaphoreV2(client, path, count), null, count);
  }

  static Permits mutex(CuratorFramework client, String path) {
    return new Permits(null, new InterProcessSemaphoreMutex(client, path), null);
  }

  private List<String> keep(Collection<Lease> taken) {
    if (taken == null) {
      return List.of();
    }
    leases = taken;
    return taken.stream().map(Lease::getNodeName).toList();
  }

  @Override public List<String> run(String command, List<String> args) throws Exception {
    switch (command) {
      case "take":
        return keep(semaphore.acquire(Integer.parseInt(args.get(0))));
      case "trytake":
        return keep(semaphore.acquire(Integer.parseInt(args.get(0)), Long.parseLong(args.get(1)), TimeUnit.MILLISECONDS));
      case "give":
        semaphore.returnAll(leases);
        return List.of();
      case "holders":
        return List.copyOf(semaphore.getParticipantNodes());
      case "count":
        count.setCount(Integer.parseInt(args.get(0)));
        return List.of();
      case "acquire":
        mutex.acquire();
        return List.of();
      case "tryacquire":
        return List.of(String.valueOf(mutex.acquire(Long.parseLong(args.get(0)), TimeUnit.MILLISECONDS)));
      case "release":
        mutex.release();
        return List.of();
      default:
        throw new IllegalArgumentException(command);
    }
  }
}
