import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Random;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.locks.InterProcessMultiLock;

/**
 * Takes several locks together, as InterProcessMultiLock does.
 *
 * <pre>
 * soak NAME FOLDER SEED ROUNDS    increments the counters of some locks under them, so many times; answers with the number of increments
 * </pre>
 */
record Baskets(CuratorFramework client, List<String> paths) implements Agent.Member {
  @Override public List<String> run(String command, List<String> args) throws Exception {
    if (!command.equals("soak")) {
      throw new IllegalArgumentException(command);
    }
    return List.of(String.valueOf(soak(Path.of(args.get(0)), new Random(Long.parseLong(args.get(1))), Integer.parseInt(args.get(2)))));
  }

  /** Nothing but the lock of a path guards its counter. */
  private int soak(Path folder, Random random, int rounds) throws Exception {
    int increments = 0;
    for (int round = 0; round < rounds; round++) {
      var wanted = paths.stream().filter(path -> random.nextBoolean()).toList(); // in the order of the paths
      if (wanted.isEmpty()) {
        continue;
      }
      var lock = new InterProcessMultiLock(client, wanted);
      lock.acquire();
      try {
        for (String path : wanted) {
          Path counter = folder.resolve(path.substring(path.lastIndexOf('/') + 1));
          Files.writeString(counter, String.valueOf(Integer.parseInt(Files.readString(counter)) + 1));
          increments++;
        }
      } finally {
        lock.release();
      }
    }
    return increments;
  }
}
