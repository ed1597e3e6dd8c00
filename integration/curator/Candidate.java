import java.util.Collection;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.leader.LeaderLatchListener;
import org.apache.curator.framework.recipes.leader.LeaderSelector;
import org.apache.curator.framework.recipes.leader.LeaderSelectorListenerAdapter;
import org.apache.curator.framework.recipes.leader.Participant;

/**
 * A latch or a selector that stands for election.
 *
 * <pre>
 * leads NAME         true or false
 * leader NAME        the id of the leader
 * participants NAME  the ids, the leader's with a star
 * resign NAME        ends a selector's term
 * </pre>
 */
abstract class Candidate implements Agent.Member {
  /** When it was told for the first time that it leads. */
  private final CompletableFuture<Long> elected = new CompletableFuture<>();

  abstract boolean leads();

  abstract Participant leader() throws Exception;

  abstract Collection<Participant> participants() throws Exception;

  abstract void resign();

  abstract void close() throws Exception;

  interface Step {
    void run() throws Exception;
  }

  /** Nanoseconds from the beginning of a step to the election. */
  long electedAfter(Step step) throws Exception {
    long began = System.nanoTime();
    step.run();
    return elected.get(1, TimeUnit.MINUTES) - began;
  }

  @Override public List<String> run(String command, List<String> args) throws Exception {
    switch (command) {
      case "leads":
        return List.of(String.valueOf(leads()));
      case "leader":
        return List.of(leader().getId());
      case "participants":
        return participants().stream().map(p -> p.getId() + (p.isLeader() ? "*" : "")).toList();
      case "resign":
        resign();
        return List.of();
      default:
        throw new IllegalArgumentException(command);
    }
  }

  static Candidate latch(CuratorFramework client, String path, String id) throws Exception {
    var latch = new LeaderLatch(client, path, id);
    var candidate = new Candidate() {
      @Override boolean leads() { return latch.hasLeadership(); }

      @Override Participant leader() throws Exception { return latch.getLeader(); }

      @Override Collection<Participant> participants() throws Exception { return latch.getParticipants(); }

      @Override void resign() { throw new UnsupportedOperationException("a latch leads until it is closed"); }

      @Override void close() throws Exception { latch.close(); }
    };
    latch.addListener(new LeaderLatchListener() {
      @Override public void isLeader() { ((Candidate) candidate).elected.complete(System.nanoTime()); }

      @Override public void notLeader() {}
    });
    latch.start();
    return candidate;
  }

  static Candidate selector(CuratorFramework client, String path, String id) {
    var selector = new LeaderSelector(client, path, new LeaderSelectorListenerAdapter() {
      @Override public void takeLeadership(CuratorFramework client) throws InterruptedException {
        Thread.sleep(Long.MAX_VALUE);
      }
    });
    selector.setId(id);
    selector.autoRequeue();
    selector.start();
    return new Candidate() {
      @Override boolean leads() { return selector.hasLeadership(); }

      @Override Participant leader() throws Exception { return selector.getLeader(); }

      @Override Collection<Participant> participants() throws Exception { return selector.getParticipants(); }

      @Override void resign() { selector.interruptLeadership(); }

      @Override void close() { selector.close(); }
    };
  }
}
