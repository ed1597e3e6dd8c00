import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Proxy;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.WatcherRemoveCuratorFramework;
import org.apache.curator.framework.api.ACLProvider;
import org.apache.curator.framework.api.CreateBuilder;
import org.apache.curator.framework.api.GetDataBuilder;
import org.apache.curator.framework.api.SetDataBuilder;
import org.apache.curator.framework.state.ConnectionState;
import org.apache.curator.retry.ExponentialBackoffRetry;
import org.apache.zookeeper.ZooDefs;
import org.apache.zookeeper.data.ACL;

/**
 * A Curator client, and the news that its session is lost. Its options:
 *
 * <pre>
 * namespace=NAME      works below /NAME
 * auth=USER:PASSWORD  is known by a digest, and gives that alone access to what it makes
 * compress=all        compresses all data; see compressing
 * </pre>
 */
record Client(CuratorFramework framework, CountDownLatch lost) {
  static Client connect(String servers, int sessionTimeout, List<String> options) throws InterruptedException {
    var builder = CuratorFrameworkFactory.builder().connectString(servers).sessionTimeoutMs(sessionTimeout)
        .connectionTimeoutMs(15_000).retryPolicy(new ExponentialBackoffRetry(50, 10));
    boolean compress = false;
    for (String option : options) {
      String[] pair = option.split("=", 2);
      switch (pair[0]) {
        case "namespace" -> builder.namespace(pair[1]);
        case "auth" -> builder.authorization("digest", pair[1].getBytes()).aclProvider(new Creator());
        case "compress" -> compress = true;
        default -> throw new IllegalArgumentException(option);
      }
    }
    CuratorFramework framework = builder.build();
    var lost = new CountDownLatch(1);
    framework.getConnectionStateListenable().addListener((client, state) -> {
      if (state == ConnectionState.LOST) {
        lost.countDown();
      }
    });
    framework.start();
    framework.blockUntilConnected();
    return new Client(compress ? (CuratorFramework) compressing(framework, CuratorFramework.class) : framework, lost);
  }

  private static final class Creator implements ACLProvider {
    @Override public List<ACL> getDefaultAcl() {
      return ZooDefs.Ids.CREATOR_ALL_ACL;
    }

    @Override public List<ACL> getAclForPath(String path) {
      return getDefaultAcl();
    }
  }

  /**
   * What enableCompression() of Curator 5.8 and later makes of a client: every create, setData and getData goes through the
   * compression provider, as if it were asked for with compressed() or decompressed(), which 5.4 has too. 5.4 itself never
   * compresses what a recipe writes.
   */
  private static Object compressing(Object client, Class<?> type) {
    return Proxy.newProxyInstance(type.getClassLoader(), new Class<?>[] {type}, (proxy, method, args) -> {
      Object result;
      try {
        result = method.invoke(client, args);
      } catch (InvocationTargetException e) {
        throw e.getCause();
      }
      switch (method.getName()) {
        case "create" -> ((CreateBuilder) result).compressed();
        case "setData" -> ((SetDataBuilder) result).compressed();
        case "getData" -> ((GetDataBuilder) result).decompressed();
        case "newWatcherRemoveCuratorFramework" -> result = compressing(result, WatcherRemoveCuratorFramework.class);
        default -> { }
      }
      return result;
    });
  }
}
