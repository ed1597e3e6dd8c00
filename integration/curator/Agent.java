import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.leader.LeaderLatchListener;
import org.apache.curator.framework.recipes.leader.LeaderSelector;
import org.apache.curator.framework.recipes.leader.LeaderSelectorListenerAdapter;
import org.apache.curator.framework.recipes.leader.Participant;
import org.apache.curator.retry.ExponentialBackoffRetry;

/**
 * Takes part in elections as Apache Curator does. Each line of standard input is a command, answered by one line: "ok" and
 * the result, or "error" and why. It ends with standard input.
 *
 * <pre>
 * connect CLIENT               opens a session
 * disconnect CLIENT            closes it
 * latch NAME CLIENT PATH ID    enters an election
 * selector NAME CLIENT PATH ID enters an election; leads until told to resign, then stands again
 * leads NAME                   true or false
 * participants NAME            the ids, the leader's with a star
 * resign NAME                  ends a selector's term
 * close NAME                   leaves the election
 * handover NAME NEXT           closes a latch; answers with the nanoseconds until another's listener is called
 * </pre>
 */
public final class Agent {
  /** What a latch and a selector have in common. */
  private interface Candidate {
    boolean leads();

    Collection<Participant> participants() throws Exception;

    void resign();

    void close() throws Exception;
  }

  private record Latch(LeaderLatch latch, CompletableFuture<Long> elected) implements Candidate {
    static Latch start(CuratorFramework client, String path, String id) throws Exception {
      var elected = new CompletableFuture<Long>();
      var latch = new LeaderLatch(client, path, id);
      latch.addListener(new LeaderLatchListener() {
        @Override public void isLeader() {
          elected.complete(System.nanoTime());
        }

        @Override public void notLeader() {}
      });
      latch.start();
      return new Latch(latch, elected);
    }

    @Override public boolean leads() {
      return latch.hasLeadership();
    }

    @Override public Collection<Participant> participants() throws Exception {
      return latch.getParticipants();
    }

    @Override public void resign() {
      throw new UnsupportedOperationException("a latch leads until it is closed");
    }

    @Override public void close() throws Exception {
      latch.close();
    }
  }

  private record Selector(LeaderSelector selector) implements Candidate {
    static Selector start(CuratorFramework client, String path, String id) {
      var selector = new LeaderSelector(client, path, new LeaderSelectorListenerAdapter() {
        @Override public void takeLeadership(CuratorFramework client) throws InterruptedException {
          Thread.sleep(Long.MAX_VALUE);
        }
      });
      selector.setId(id);
      selector.autoRequeue();
      selector.start();
      return new Selector(selector);
    }

    @Override public boolean leads() {
      return selector.hasLeadership();
    }

    @Override public Collection<Participant> participants() throws Exception {
      return selector.getParticipants();
    }

    @Override public void resign() {
      selector.interruptLeadership();
    }

    @Override public void close() {
      selector.close();
    }
  }

  private final String servers;
  private final int sessionTimeout;
  private final Map<String, CuratorFramework> clients = new HashMap<>();
  private final Map<String, Candidate> candidates = new HashMap<>();

  private Agent(String servers, int sessionTimeout) {
    this.servers = servers;
    this.sessionTimeout = sessionTimeout;
  }

  private String run(List<String> words) throws Exception {
    String name = words.get(1);
    Candidate candidate = candidates.get(name);
    switch (words.get(0)) {
      case "connect" -> clients.put(name, connect());
      case "disconnect" -> clients.remove(name).close();
      case "latch" -> candidates.put(name, Latch.start(clients.get(words.get(2)), words.get(3), words.get(4)));
      case "selector" -> candidates.put(name, Selector.start(clients.get(words.get(2)), words.get(3), words.get(4)));
      case "resign" -> candidate.resign();
      case "close" -> candidates.remove(name).close();
      case "leads" -> {
        return String.valueOf(candidate.leads());
      }
      case "participants" -> {
        return candidate.participants().stream().map(p -> p.getId() + (p.isLeader() ? "*" : "")).collect(Collectors.joining(" "));
      }
      case "handover" -> {
        var elected = ((Latch) candidates.get(words.get(2))).elected();
        long closed = System.nanoTime();
        candidates.remove(name).close();
        return String.valueOf(elected.get(1, TimeUnit.MINUTES) - closed);
      }
      default -> throw new IllegalArgumentException("unknown command");
    }
    return "";
  }

  private CuratorFramework connect() throws InterruptedException {
    var client = CuratorFrameworkFactory.builder().connectString(servers).sessionTimeoutMs(sessionTimeout)
        .connectionTimeoutMs(15_000).retryPolicy(new ExponentialBackoffRetry(50, 10)).build();
    client.start();
    client.blockUntilConnected();
    return client;
  }

  public static void main(String[] args) throws Exception {
    var agent = new Agent(args[0], Integer.parseInt(args[1]));
    var in = new BufferedReader(new InputStreamReader(System.in));
    for (String line = in.readLine(); line != null; line = in.readLine()) {
      try {
        System.out.println(("ok " + agent.run(List.of(line.split(" ")))).trim());
      } catch (Exception e) {
        System.out.println("error " + String.valueOf(e).replace('\n', ' '));
      }
    }
    agent.clients.values().forEach(CuratorFramework::close);
  }
}
