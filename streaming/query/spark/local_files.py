"""Hadoop's file system for this machine's disks, without a process for each new file.

Hadoop sets the permissions of a file through its C library, which pyspark does not contain. Without it, Hadoop starts
the program `chmod` for each file that it creates: for two files of each batch, and for the state of each task. Here
Java sets them itself.

Hadoop keeps one object for each file system, so Spark uses the one that is made first.

Source: Hadoop's RawLocalFileSystem.setPermission.
"""

import logging
from typing import Any

from py4j.protocol import Py4JError

from streaming.query.spark import janino

log = logging.getLogger(__name__)

NAME = "LocalFiles"
SOURCE = f"""
import java.nio.file.Files;
import java.nio.file.attribute.PosixFilePermissions;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;

public class {NAME} extends RawLocalFileSystem {{
    public void setPermission(Path path, FsPermission wanted) throws java.io.IOException {{
        String text = new FsPermission((short) (wanted.toShort() & 0777)).toString();
        Files.setPosixFilePermissions(pathToFile(path).toPath(), PosixFilePermissions.fromString(text));
    }}
}}
"""


def use_in(jvm: Any) -> None:
    """Make the file system that a Java process uses for paths on this machine.

    Args:
        jvm: The Java process of Spark, as py4j shows it. It has used no file system yet.
    """
    try:
        settings = jvm.org.apache.hadoop.conf.Configuration()
        settings.setClassLoader(janino.loader_of(jvm, SOURCE))
        settings.set("fs.file.impl", NAME)
        jvm.org.apache.hadoop.fs.FileSystem.get(jvm.java.net.URI("file:///"), settings)
    except Py4JError as error:  # another version of Hadoop
        log.warning("each new file of the checkpoint starts a program, which takes time: %s", error)
