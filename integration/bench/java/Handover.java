import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.leader.LeaderLatchListener;

/** A latch that notes when it was told that it leads. */
final class Handover {
  private final LeaderLatch latch;
  private final CompletableFuture<Long> elected = new CompletableFuture<>();

  private Handover(CuratorFramework client, String path) throws Exception {
    latch = new LeaderLatch(client, path);
    latch.addListener(new LeaderLatchListener() {
      @Override public void isLeader() { elected.complete(System.nanoTime()); }

      @Override public void notLeader() {}
    });
    latch.start();
  }

  private long electedAt() throws Exception {
    return elected.get(1, TimeUnit.MINUTES);
  }

  /** Hands the election over and over between two sessions, with a pause before each time. */
  static List<long[]> run(List<CuratorFramework> sessions, String path, int times, long rest) throws Exception {
    var leader = new Handover(sessions.get(0), path);
    leader.electedAt();
    List<long[]> spans = new ArrayList<>();
    for (int i = 0; i < times; i++) {
      var next = new Handover(sessions.get((i + 1) % sessions.size()), path);
      Crowd.pauseUntil(System.nanoTime() + rest);
      long closing = System.nanoTime();
      leader.latch.close();
      long closed = System.nanoTime();
      spans.add(new long[] {closing, next.electedAt(), closing, closed, i});
      leader = next;
    }
    leader.latch.close();
    return spans;
  }
}
