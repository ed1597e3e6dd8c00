import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.LockSupport;
import java.util.function.IntFunction;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.locks.InterProcessLock;
import org.apache.curator.framework.recipes.locks.InterProcessMultiLock;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;

/** The contenders of this process: each a lock object, or one for each turn, which a thread of its own locks and unlocks. */
final class Crowd {
  /** The lock of a contender in a turn. */
  private final List<IntFunction<InterProcessLock>> contenders = new ArrayList<>();
  private final ExecutorService threads = Executors.newCachedThreadPool();

  /** Arguments: PATH LOCKS FIRST STRIDE CONTENDERS BASKETS. */
  Crowd(List<CuratorFramework> sessions, List<String> args) throws IOException {
    String path = args.get(0);
    int locks = Integer.parseInt(args.get(1));
    int stride = Integer.parseInt(args.get(3));
    int all = Integer.parseInt(args.get(4));
    List<List<String>> baskets = new ArrayList<>();
    if (!args.get(5).isEmpty()) {
      Files.readAllLines(Path.of(args.get(5))).forEach(line -> baskets.add(List.of(line.split(" "))));
    }
    for (int i = Integer.parseInt(args.get(2)); i < all; i += stride) {
      CuratorFramework session = sessions.get(i / stride % sessions.size());
      if (baskets.isEmpty()) {
        var mutex = new InterProcessMutex(session, lockPath(path, locks, i % locks));
        contenders.add(turn -> mutex);
      } else {
        contenders.add(turn -> new InterProcessMultiLock(session, baskets.get(turn)));
      }
    }
  }

  static String lockPath(String path, int locks, int lock) {
    return locks == 1 ? path : path + "-" + lock;
  }

  /** Locks and unlocks until the pairs are done; with none, once for each contender. */
  List<long[]> run(long begin, int pairs, long hold) throws InterruptedException, ExecutionException {
    var turns = new AtomicInteger();
    List<Future<List<long[]>>> shares = new ArrayList<>();
    for (var contender : contenders) {
      shares.add(threads.submit(() -> contend(contender, begin, pairs, hold, turns)));
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

  private static List<long[]> contend(IntFunction<InterProcessLock> contender, long begin, int pairs, long hold, AtomicInteger turns)
      throws Exception {
    pauseUntil(begin);
    List<long[]> spans = new ArrayList<>();
    while (true) {
      int turn = pairs == 0 ? spans.size() : turns.getAndIncrement();
      if (turn >= Math.max(1, pairs)) {
        return spans;
      }
      InterProcessLock lock = contender.apply(turn);
      long called = System.nanoTime();
      lock.acquire();
      long acquired = System.nanoTime();
      if (hold > 0) {
        pauseUntil(acquired + hold);
      }
      long releasing = System.nanoTime();
      lock.release();
      spans.add(new long[] {called, acquired, releasing, System.nanoTime(), turn});
    }
  }

  static void pauseUntil(long at) {
    for (long rest = at - System.nanoTime(); rest > 0; rest = at - System.nanoTime()) {
      LockSupport.parkNanos(rest);
    }
  }
}
