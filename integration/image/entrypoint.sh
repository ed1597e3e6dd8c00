# Becomes the server, as process 1, so that a signal to the container is a signal to ZooKeeper.
# JVMFLAGS is split into words on purpose. Netty is named because the manifest of Debian's zookeeper.jar leaves out two
# of the jars that TLS needs.
set -eu
mkdir -p /data
jars=/usr/share/java
exec java -XX:+UseSerialGC -Xmx256m -Dorg.slf4j.simpleLogger.showDateTime=true ${JVMFLAGS:-} \
	-cp "$jars/zookeeper.jar:$jars/slf4j-simple.jar:$jars/netty-codec.jar:$jars/netty-resolver.jar" \
	org.apache.zookeeper.server.quorum.QuorumPeerMain /conf/zoo.cfg
