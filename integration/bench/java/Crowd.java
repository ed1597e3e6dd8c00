import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;

/** The contenders of this process: each a lock object, which a thread of its own locks and unlocks. */
final class Crowd {
  private final List<InterProcessMutex> contenders = new ArrayList<>();
  private final ExecutorService threads = Executors.newCachedThreadPool();

  /** Arguments: PATH LOCKS FIRST STRIDE CONTENDERS. */
  Crowd(List<CuratorFramework> sessions, List<String> args) {
    String path = args.get(0);
    int locks = Integer.parseInt(args.get(1));
    int stride = Integer.parseInt(args.get(3));
    int all = Integer.parseInt(args.get(4));
    for (int i = Integer.parseInt(args.get(2)); i < all; i += stride) {
      contenders.add(new InterProcessMutex(sessions.get(i / stride % sessions.size()), lockPath(path, locks, i % locks)));
    }
  }

  static String lockPath(String path, int locks, int lock) {
    return locks == 1 ? path : path + "-" + lock;
  }

  /** Locks and unlocks until the pairs are done; with none, once for each contender. */
  List<long[]> run(long begin, int pairs, long hold) throws InterruptedException, ExecutionException {
    var left = new AtomicLong(pairs);
    List<Future<List<long[]>>> shares = new ArrayList<>();
    for (InterProcessMutex contender : contenders) {
      shares.add(threads.submit(() -> contend(contender, begin, pairs, hold, left)));
    }
    List<long[]> spans = new ArrayList<>();
    try {
      for (var share : shares) {
        spans.addAll(share.get());
      }
    } finally {
      threads.shutdownNow();
    }
    return spans;
  }

  void interrupt() {
    threads.shutdownNow();
  }

  private static List<long[]> contend(InterProcessMutex mutex, long begin, int pairs, long hold, AtomicLong left) throws Exception {
    pauseUntil(begin);
    List<long[]> spans = new ArrayList<>();
    while (pairs == 0 ? spans.isEmpty() : left.getAndDecrement() > 0) {
      long called = System.nanoTime();
      mutex.acquire();
      long acquired = System.nanoTime();
      if (hold > 0) {
        pauseUntil(acquired + hold);
      }
      long releasing = System.nanoTime();
      mutex.release();
      spans.add(new long[] {called, acquired, releasing, System.nanoTime()});
    }
    return spans;
  }

  static void pauseUntil(long at) {
    for (long rest = at - System.nanoTime(); rest > 0; rest = at - System.nanoTime()) {
      LockSupport.parkNanos(rest);
    }
  }
}
