import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.TreeMap;
import java.util.stream.Stream;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.nodes.GroupMember;

/**
 * A member of a group, which joins at once.
 *
 * <pre>
 * members NAME      answers with the members' IDs and data, in turn, sorted by ID
 * data NAME DATA    changes its data
 * leave NAME        leaves the group
 * </pre>
 */
final class Membership implements Agent.Member {
  private final GroupMember member;

  Membership(CuratorFramework client, String path, String id, String data) {
    member = new GroupMember(client, path, id, data.getBytes(StandardCharsets.UTF_8));
    member.start();
  }

  @Override public List<String> run(String command, List<String> args) {
    switch (command) {
      case "members":
        return new TreeMap<>(member.getCurrentMembers()).entrySet().stream()
            .flatMap(e -> Stream.of(e.getKey(), new String(e.getValue(), StandardCharsets.UTF_8))).toList();
      case "data":
        member.setThisData(args.get(0).getBytes(StandardCharsets.UTF_8));
        return List.of();
      case "leave":
        member.close();
        return List.of();
      default:
        throw new IllegalArgumentException(command);
    }
  }
}
