import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.UUID;
import java.util.zip.CRC32C;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.BulkDelete;
import org.apache.hadoop.fs.ChecksumException;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FSDataOutputStreamBuilder;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import SPARK.CheckpointFileManager.CancellableFSDataOutputStream;
import SPARK.FileSystemBasedCheckpointFileManager;

/**
 * The files of a checkpoint on an object store: each is one object, which is written whole or not at all.
 *
 * A file that must not replace another is written by one request with a condition, which the store checks. No file is
 * renamed, since a store copies it for that, without a condition. Every error of a write is thrown.
 *
 * Source: Hadoop's fs.option.create.conditional.overwrite, and Spark's CheckpointFileManager.
 */
public class CheckpointFiles extends FileSystemBasedCheckpointFileManager {
    private static final String WRITER = "writer";
    private static final String CHECKSUM = "crc32c";
    private static final List NOTES = Arrays.asList(new String[] {"offsets", "commits"});
    private static final String DRIVER = "coordinator.checkpoint.driver";
    private final boolean isStore;
    private final String driver;

    public CheckpointFiles(Path path, Configuration settings) {
        super(path, settings);
        isStore = "s3a".equals(fs().getScheme());
        driver = driverIn(settings);
    }

    /** Writes a file, which must not exist, in one request. */
    public static void write(Path path, byte[] content, Configuration settings) throws IOException {
        CancellableFSDataOutputStream file = new First(path.getFileSystem(settings), path, driverIn(settings));
        file.write(content);
        file.close();
    }

    /** The id of the process that writes. Without one, each file has a writer of its own. */
    private static String driverIn(Configuration settings) {
        return settings.get(DRIVER, UUID.randomUUID().toString());
    }

    /** Reads a whole file, and compares it with the checksum that was stored with it, if there is one. */
    public static byte[] read(Path path, Configuration settings) throws IOException {
        return read(path.getFileSystem(settings), path);
    }

    private static byte[] read(FileSystem store, Path path) throws IOException {
        byte[] content;
        FSDataInputStream file = store.open(path);
        try {
            content = file.readAllBytes();
        } finally {
            file.close();
        }
        String stored = header(store, path, CHECKSUM);
        if (stored != null && !stored.equals(checksum(content))) {
            throw new ChecksumException(path + " fails its checksum", 0);
        }
        return content;
    }

    private static String checksum(byte[] content) {
        CRC32C sum = new CRC32C();
        sum.update(content, 0, content.length);
        return Long.toHexString(sum.getValue());
    }

    /** What was stored with a file; null if there is no such thing, as with a file that was copied to the store. */
    private static String header(FileSystem store, Path path, String name) throws IOException {
        byte[] value = (byte[]) store.getXAttrs(path).get("header." + name);
        return value == null ? null : new String(value, StandardCharsets.UTF_8);
    }

    /** Whether the store of a folder refuses the second of two files of one name. */
    public static boolean excludes(Path folder, Configuration settings) throws IOException {
        Path probe = new Path(folder, "probe-" + UUID.randomUUID());
        write(probe, new byte[] {'1'}, settings);
        Configuration another = new Configuration(settings);
        another.unset(DRIVER);
        try {
            write(probe, new byte[] {'2'}, another);
            return false;
        } catch (FileAlreadyExistsException refused) {
            return true;
        } finally {
            new CheckpointFiles(folder, settings).delete(probe);
        }
    }

    /** Opens a file. A plan, a commit or the query's metadata is read and checked first: Spark checks none of them. */
    public FSDataInputStream open(Path path) {
        try {
            if (isStore && (NOTES.contains(path.getParent().getName()) || path.getName().equals("metadata"))) {
                read(fs(), path);
            }
        } catch (IOException error) {
            throw new java.io.UncheckedIOException(error);
        }
        return super.open(path);
    }

    public CancellableFSDataOutputStream createAtomic(Path path, boolean replaces) {
        if (!isStore) {
            return super.createAtomic(path, replaces);
        }
        try {
            return replaces ? new Replacing(fs(), path) : new First(fs(), path, driver);
        } catch (IOException error) {
            throw new java.io.UncheckedIOException(error);
        }
    }

    /** Deletes without the requests by which Hadoop looks at the folder above. */
    public void delete(Path path) {
        if (!isStore) {
            super.delete(path);
            return;
        }
        try {
            BulkDelete files = fs().createBulkDelete(path.getParent());
            try {
                List failed = files.bulkDelete(Collections.singletonList(path));
                if (!failed.isEmpty()) {
                    throw new IOException("not deleted: " + failed);
                }
            } finally {
                files.close();
            }
        } catch (IOException error) {
            throw new java.io.UncheckedIOException(error);
        }
    }

    private static FSDataOutputStreamBuilder builder(FileSystem store, Path path) throws IOException {
        FSDataOutputStreamBuilder builder = store.createFile(path);
        builder.overwrite(true);
        builder.opt("fs.s3a.create.performance", true);
        return builder;
    }

    /** A file that replaces an earlier one of its name. */
    private static class Replacing extends CancellableFSDataOutputStream {
        private final FSDataOutputStream object;
        private boolean isOver;

        Replacing(FileSystem store, Path path) throws IOException {
            this((FSDataOutputStream) builder(store, path).build());
        }

        private Replacing(FSDataOutputStream object) {
            super(object);
            this.object = object;
        }

        public void close() throws IOException {
            if (!isOver) {
                isOver = true;
                super.close();
            }
        }

        public void cancel() {
            if (!isOver) {
                isOver = true;
                object.abort();
            }
        }
    }

    /** A file that no other file of its name precedes. It is small, and is sent when it is closed. */
    private static class First extends CancellableFSDataOutputStream {
        private final FileSystem store;
        private final Path path;
        private final String driver;
        private final ByteArrayOutputStream content;
        private boolean isOver;

        First(FileSystem store, Path path, String driver) {
            this(store, path, driver, new ByteArrayOutputStream());
        }

        private First(FileSystem store, Path path, String driver, ByteArrayOutputStream content) {
            super(content);
            this.driver = driver;
            this.store = store;
            this.path = path;
            this.content = content;
        }

        public void close() throws IOException {
            if (isOver) {
                return;
            }
            isOver = true;
            super.close();
            String writer = driver + "/" + UUID.randomUUID();
            try {
                send(writer);
            } catch (IOException error) {
                if (!isRefused(error)) {
                    throw error;
                }
                String found = writerOf();
                if (found != null && !found.equals(writer) && found.startsWith(driver + "/")) {
                    throw new IOException("an earlier request of this driver came late: " + path, error);
                }
                if (!writer.equals(found)) {
                    throw (IOException) new FileAlreadyExistsException(path.toString()).initCause(error);
                }
            }
        }

        public void cancel() {
            isOver = true;
        }

        private void send(String writer) throws IOException {
            FSDataOutputStreamBuilder builder = builder(store, path);
            builder.must("fs.option.create.conditional.overwrite", true);
            builder.opt("fs.s3a.create.header." + WRITER, writer);
            builder.opt("fs.s3a.create.header." + CHECKSUM, checksum(content.toByteArray()));
            FSDataOutputStream object = (FSDataOutputStream) builder.build();
            try {
                content.writeTo(object);
            } catch (IOException error) {
                object.abort();
                throw error;
            }
            object.close();
        }

        /** Whether a store refused to replace an object. The refused request may be a repeat of one that it took. */
        private static boolean isRefused(IOException error) {
            String name = error.getClass().getSimpleName();
            return error instanceof FileAlreadyExistsException || name.equals("RemoteFileChangedException")
                || String.valueOf(error.getMessage()).contains("Status Code: 412");
        }

        private String writerOf() throws IOException {
            try {
                return header(store, path, WRITER);
            } catch (java.io.FileNotFoundException gone) {
                return null;
            }
        }
    }
}
