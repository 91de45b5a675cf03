"""The compiler of Java that Spark brings: Spark compiles the generated code of its queries with it at run time."""

from typing import Any


def loader_of(jvm: Any, source: str) -> Any:
    """Compile Java, and return a class loader that has its classes.

    Args:
        jvm: The Java process of Spark, as py4j shows it.

    Raises:
        Py4JError: The process has no such compiler, or the source does not fit to its classes.
    """
    return _cooked(jvm, source).getClassLoader()


def bytecodes(jvm: Any, source: str) -> dict[str, bytes]:
    """Compile Java, and return the bytecode of each class by its name.

    Raises:
        Py4JError: As for `loader_of`.
    """
    return {str(name): bytes(code) for name, code in dict(_cooked(jvm, source).getBytecodes()).items()}


def _cooked(jvm: Any, source: str) -> Any:
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.cook(source)
    return compiler
