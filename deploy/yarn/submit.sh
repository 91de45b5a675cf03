#!/bin/sh
# Submit the coordinator to YARN, in a copy of the project. Once, for its code:
#   python3 -m pip wheel . --no-deps -w dist && cp dist/groupcoord-*.whl dist/coordinator.zip
# Each argument is an option of spark-submit, and overrides coordinator.properties and the site's spark-defaults.conf:
#   deploy/yarn/submit.sh --conf spark.yarn.appMasterEnv.COORDINATOR_BOOTSTRAP_SERVERS=kafka-1:9092
#   deploy/yarn/submit.sh --deploy-mode client    the driver is here, and has the COORDINATOR_... of this environment
set -eu
folder=$(cd "$(dirname "$0")" && pwd)
project=${folder%/deploy/yarn}

exec "${SPARK_HOME:+$SPARK_HOME/bin/}spark-submit" --master yarn --deploy-mode cluster \
    --load-spark-defaults --properties-file "$folder/coordinator.properties" \
    --py-files "$project/dist/coordinator.zip" "$@" \
    "$project/groupcoord.py" run
