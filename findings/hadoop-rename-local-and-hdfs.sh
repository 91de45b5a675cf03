#!/usr/bin/env bash
# Hadoop's FileSystem.rename gives other results on a local disk than on HDFS, in three everyday cases.
#
# onto a file that exists     HDFS keeps the file and returns false; the local disk replaces it and returns true
# into a missing folder       HDFS returns false; the local disk creates the folder and returns true
# of a missing file           HDFS returns false; the local disk raises FileNotFoundException
#
# "Who renames first owns the name" is a sound lock on HDFS. In tests on a local disk each driver gets it, and a test of
# its loser passes only by accident. And whoever expects an exception on HDFS misses every one of these failures.
#
# Needs: a JDK 17, mvn. Takes about half a minute. Exits with 1 if the behaviour has changed.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

jar() {                                             # group:artifact:version, without what it depends on
  IFS=: read -r group artifact version <<< "$1"
  echo "<dependency><groupId>$group</groupId><artifactId>$artifact</artifactId><version>$version</version>
    <exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions></dependency>"
}
cat > pom.xml <<POM
<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>x</groupId><artifactId>x</artifactId><version>1</version><dependencies>
$(jar org.apache.hadoop:hadoop-client-api:3.5.0)
$(jar org.apache.hadoop:hadoop-client-runtime:3.5.0)
$(jar org.apache.hadoop:hadoop-client-minicluster:3.5.0)
$(jar org.slf4j:slf4j-api:1.7.36)
$(jar org.slf4j:slf4j-nop:1.7.36)
$(jar commons-logging:commons-logging:1.3.5)
$(jar org.mockito:mockito-core:4.11.0)
</dependencies></project>
POM
mvn -q -B org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies -DoutputDirectory=jars

cat > Main.java <<'JAVA'
import java.io.File;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.List;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.hdfs.MiniDFSCluster;
import org.apache.hadoop.util.VersionInfo;

public class Main {
    static void write(FileSystem files, Path path) throws IOException {
        try (FSDataOutputStream out = files.create(path, false)) {
            out.write(path.getName().getBytes(StandardCharsets.UTF_8));
        }
    }

    static String read(FileSystem files, Path path) throws IOException {
        try (FSDataInputStream in = files.open(path)) {
            return new String(in.readAllBytes(), StandardCharsets.UTF_8);
        }
    }

    static String rename(FileSystem files, Path from, Path to) {
        try {
            return String.valueOf(files.rename(from, to));
        } catch (IOException error) {
            return error.getClass().getSimpleName();
        }
    }

    static List<String> probe(FileSystem files, Path folder) throws IOException {
        Path first = new Path(folder, "first"), second = new Path(folder, "second"), third = new Path(folder, "third");
        Path goal = new Path(folder, "goal");
        for (Path each : List.of(first, second, third)) {
            write(files, each);
        }
        return List.of(
            rename(files, first, goal),
            rename(files, second, goal),
            read(files, goal),
            rename(files, third, new Path(folder, "missing/goal")),
            rename(files, new Path(folder, "nothing"), new Path(folder, "other")));
    }

    static void show(String name, List<String> found) {
        System.out.printf("%s first rename: %s; onto its goal: %s, which has the file \"%s\"; into a missing folder: %s;"
            + " of a missing file: %s%n", name, found.get(0), found.get(1), found.get(2), found.get(3), found.get(4));
    }

    public static void main(String[] arguments) throws Exception {
        Configuration configuration = new Configuration();
        configuration.set(MiniDFSCluster.HDFS_MINIDFS_BASEDIR, new File("cluster").getAbsolutePath());
        File folder = new File("local").getAbsoluteFile();
        List<String> local = probe(FileSystem.get(folder.toURI(), configuration), new Path(folder.toURI()));
        MiniDFSCluster cluster = new MiniDFSCluster.Builder(configuration).numDataNodes(1).build();
        List<String> remote = probe(cluster.getFileSystem(), new Path("/folder"));
        cluster.shutdown();
        System.out.println("Hadoop " + VersionInfo.getVersion());
        show("file:", local);
        show("hdfs:", remote);
        boolean same = local.equals(List.of("true", "true", "second", "true", "FileNotFoundException"))
            && remote.equals(List.of("true", "false", "first", "false", "false"));
        System.exit(same ? 0 : 1);
    }
}
JAVA
java -Xmx300m -XX:TieredStopAtLevel=1 -cp 'jars/*' Main.java 2> errors || { cat errors >&2; exit 1; }
