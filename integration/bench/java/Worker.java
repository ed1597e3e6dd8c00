import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.net.URLDecoder;
import java.net.URLEncoder;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.ExponentialBackoffRetry;

/** Puts Curator's locks and latches under load. Package load says how commands and answers look. */
public final class Worker {
  private static final int SESSION_TIMEOUT_MS = 30_000;

  private final List<CuratorFramework> sessions = new ArrayList<>();
  private final Map<String, Crowd> crowds = new ConcurrentHashMap<>();
  private final Map<String, List<InterProcessMutex>> holders = new ConcurrentHashMap<>();
  /** Each name has a thread of its own: a Curator lock belongs to the thread that has acquired it. */
  private final Map<String, ExecutorService> threads = new ConcurrentHashMap<>();

  private List<Long> run(String command, String name, List<String> args) throws Exception {
    switch (command) {
      case "open" -> open(args.get(0), Integer.parseInt(args.get(1)));
      case "prepare" -> crowds.put(name, new Crowd(sessions, args));
      case "loop" -> {
        Crowd crowd = crowds.get(name);
        try {
          write(args.get(0), crowd.run(Long.parseLong(args.get(1)), Integer.parseInt(args.get(2)), Long.parseLong(args.get(3))));
        } finally {
          crowds.remove(name);
        }
      }
      case "hold" -> {
        return hold(name, args.get(0), Integer.parseInt(args.get(1)));
      }
      case "release" -> {
        return release(name);
      }
      case "latch" ->
        write(args.get(0), Handover.run(sessions, args.get(1), Integer.parseInt(args.get(2)), Long.parseLong(args.get(3))));
      case "memory" -> {
        return memory();
      }
      case "close" -> close();
      default -> throw new IllegalArgumentException(command);
    }
    return List.of();
  }

  private void open(String address, int count) throws InterruptedException {
    for (int i = 0; i < count; i++) {
      CuratorFramework client = CuratorFrameworkFactory.builder().connectString(address).sessionTimeoutMs(SESSION_TIMEOUT_MS)
          .connectionTimeoutMs(15_000).retryPolicy(new ExponentialBackoffRetry(50, 10)).build();
      client.start();
      client.blockUntilConnected();
      sessions.add(client);
    }
  }

  /** Closes the sessions first, so that contenders that wait find nothing to clean up. */
  private void close() {
    sessions.parallelStream().forEach(CuratorFramework::close);
    sessions.clear();
    holders.clear();
    crowds.values().forEach(Crowd::interrupt);
  }

  private List<Long> hold(String name, String path, int locks) throws Exception {
    long called = System.nanoTime();
    List<InterProcessMutex> held = new ArrayList<>();
    for (int i = 0; i < locks; i++) {
      InterProcessMutex mutex = new InterProcessMutex(sessions.get(i % sessions.size()), Crowd.lockPath(path, locks, i));
      mutex.acquire();
      held.add(mutex);
    }
    holders.put(name, held);
    return List.of(called, System.nanoTime());
  }

  private List<Long> release(String name) throws Exception {
    List<InterProcessMutex> held = holders.remove(name);
    long called = System.nanoTime();
    for (InterProcessMutex mutex : held) {
      mutex.release();
    }
    return List.of(called, System.nanoTime());
  }

  /** Of the resident bytes those that the heap keeps free are left out, because Go gives them back before it is asked. */
  private static List<Long> memory() throws IOException {
    System.gc();
    System.gc(); // what finalizers kept from the first
    var usage = ManagementFactory.getMemoryMXBean().getHeapMemoryUsage();
    long heap = usage.getUsed();
    long threads = ManagementFactory.getThreadMXBean().getThreadCount();
    long resident = 0;
    for (String line : Files.readAllLines(Path.of("/proc/self/status"))) {
      if (line.startsWith("VmRSS:")) {
        resident = (Long.parseLong(line.replaceAll("\\D", "")) << 10) - (usage.getCommitted() - heap);
      }
    }
    return List.of(heap, 0L, resident, threads); // the stacks of threads are in resident alone
  }

  static void write(String file, List<long[]> spans) throws IOException {
    var bytes = new ByteArrayOutputStream();
    var out = new DataOutputStream(bytes);
    for (long[] span : spans) {
      for (long time : span) {
        out.writeLong(time);
      }
    }
    Files.write(Path.of(file), bytes.toByteArray());
  }

  private void answer(String number, List<String> words) {
    String result;
    try {
      result = line("ok", run(words.get(0), words.get(1), words.subList(2, words.size())).stream().map(String::valueOf).toList());
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
    var worker = new Worker();
    var in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = in.readLine(); line != null; line = in.readLine()) {
      var words = Arrays.stream(line.split(" ", -1)).map(w -> URLDecoder.decode(w, StandardCharsets.UTF_8)).toList();
      var thread = worker.threads.computeIfAbsent(words.get(2), name -> Executors.newSingleThreadExecutor());
      thread.execute(() -> worker.answer(words.get(0), words.subList(1, words.size())));
      if (words.get(1).equals("loop")) {
        worker.threads.remove(words.get(2)).shutdown(); // once that is done
      }
    }
    worker.close();
    System.exit(0);
  }
}
