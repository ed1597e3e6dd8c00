import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.URLDecoder;
import java.net.URLEncoder;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.apache.curator.framework.recipes.locks.Revoker;

/**
 * Takes part in locks and elections as Apache Curator does. Package agent says how commands and answers look.
 *
 * <pre>
 * connect CLIENT [OPTION…]      opens a session: namespace=…, auth=user:password, compress=…; see Client
 * disconnect CLIENT             closes it
 * lost CLIENT                   waits until it is told that its session is lost
 * revoke CLIENT PATH            asks a lock's holder to release
 * mutex NAME CLIENT PATH [ID]   makes a lock
 * rwlock NAME CLIENT PATH       makes a read-write lock
 * semaphore NAME CLIENT PATH LIMIT   makes a semaphore: see Permits
 * semaphoremutex NAME CLIENT PATH    makes a semaphore mutex
 * multilock NAME CLIENT PATH…        takes some of the locks together: see Baskets
 * member NAME CLIENT PATH ID DATA    joins a group: see Membership
 * latch NAME CLIENT PATH ID     enters an election
 * selector NAME CLIENT PATH ID  enters an election; leads until told to resign, then stands again
 * close NAME                    leaves the election
 * handover NAME NEXT            closes a latch; answers with the nanoseconds until another's listener is called
 * … NAME …                      what else a lock or a candidate is told: see Mutex, ReadWriteLock, Permits, Baskets, Membership and Candidate
 * </pre>
 */
public final class Agent {
  /** What a command may be about. */
  interface Member {
    List<String> run(String command, List<String> args) throws Exception;
  }

  private final Map<String, Client> clients = new ConcurrentHashMap<>();
  private final Map<String, Member> members = new ConcurrentHashMap<>();
  /** Each name has a thread of its own: a Curator lock belongs to the thread that has acquired it. */
  private final Map<String, ExecutorService> threads = new ConcurrentHashMap<>();
  private final String servers;
  private final int sessionTimeout;

  private Agent(String servers, int sessionTimeout) {
    this.servers = servers;
    this.sessionTimeout = sessionTimeout;
  }

  private List<String> run(String command, String name, List<String> args) throws Exception {
    switch (command) {
      case "connect" -> clients.put(name, Client.connect(servers, sessionTimeout, args));
      case "disconnect" -> clients.remove(name).framework().close();
      case "lost" -> clients.get(name).lost().await();
      case "revoke" -> Revoker.attemptRevoke(clients.get(name).framework(), args.get(0));
      case "mutex" -> members.put(name, Mutex.of(clients.get(args.get(0)).framework(), args.subList(1, args.size())));
      case "rwlock" -> members.put(name, new ReadWriteLock(clients.get(args.get(0)).framework(), args.get(1)));
      case "semaphore" -> members.put(name, Permits.of(clients.get(args.get(0)).framework(), args.get(1), args.get(2)));
      case "semaphoremutex" -> members.put(name, Permits.mutex(clients.get(args.get(0)).framework(), args.get(1)));
      case "multilock" -> members.put(name, new Baskets(clients.get(args.get(0)).framework(), List.copyOf(args.subList(1, args.size()))));
      case "member" -> members.put(name, new Membership(clients.get(args.get(0)).framework(), args.get(1), args.get(2), args.get(3)));
      case "latch" -> members.put(name, Candidate.latch(clients.get(args.get(0)).framework(), args.get(1), args.get(2)));
      case "selector" -> members.put(name, Candidate.selector(clients.get(args.get(0)).framework(), args.get(1), args.get(2)));
      case "close" -> ((Candidate) members.remove(name)).close();
      case "handover" -> {
        var next = (Candidate) members.get(args.get(0));
        return List.of(String.valueOf(next.electedAfter(((Candidate) members.remove(name))::close)));
      }
      default -> {
        return members.get(name).run(command, args);
      }
    }
    return List.of();
  }

  private void answer(String number, List<String> words) {
    String result;
    try {
      result = line("ok", run(words.get(0), words.get(1), words.subList(2, words.size())));
    } catch (Throwable e) {
      result = line("error", List.of(String.valueOf(e)));
    }
    System.out.println(number + " " + result);
  }

  private static String line(String verdict, List<String> words) {
    return Stream.concat(Stream.of(verdict), words.stream().map(w -> URLEncoder.encode(w, StandardCharsets.UTF_8)))
        .collect(Collectors.joining(" "));
  }

  public static void main(String[] args) throws Exception {
    var agent = new Agent(args[0], Integer.parseInt(args[1]));
    var in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = in.readLine(); line != null; line = in.readLine()) {
      var words = Stream.of(line.split(" ", -1)).map(w -> URLDecoder.decode(w, StandardCharsets.UTF_8)).toList();
      agent.threads.computeIfAbsent(words.get(2), name -> Executors.newSingleThreadExecutor())
          .execute(() -> agent.answer(words.get(0), words.subList(1, words.size())));
      if (Set.of("close", "handover").contains(words.get(1))) {
        agent.threads.remove(words.get(2)).shutdown(); // once that is done
      }
    }
    agent.clients.values().parallelStream().forEach(client -> client.framework().close());
    System.exit(0);
  }
}
