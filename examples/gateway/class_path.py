"""Print the class path of Kafka's Java client: the jars that `groupcoord up` has fetched.

python examples/gateway/class_path.py
"""

import os

from streaming.embedded import BROKER, fetch

if __name__ == "__main__":
    print(os.pathsep.join(map(str, fetch(BROKER))))
