#!/bin/sh
# Runs the edge, and lets it take a renewed certificate: connections that are open keep the old one and finish.
set -eu

current=/etc/aegis-edge/server/current
if [ "${1:-}" = check ]; then
    # Whether the process that listens also answers, whatever stands behind it.
    exec python -c "import socket, sys
sys.exit(socket.create_connection(('127.0.0.1', ${AEGIS_EDGE_PORT}), 3).close())"
fi

# shellcheck disable=SC2016 # names, for envsubst
envsubst '$AEGIS_SUPERLINK $AEGIS_SUPERLINK_NAME $AEGIS_RESOLVER $AEGIS_EDGE_PORT' \
    < /etc/aegis-edge/edge.conf.template > /tmp/nginx.conf
nginx -c /tmp/nginx.conf -g 'daemon off;' &
nginx=$!
trap 'kill -QUIT $nginx; wait $nginx; exit 0' TERM INT QUIT

known=$(readlink -f "$current" || true)
while kill -0 $nginx 2> /dev/null; do
    sleep 5 &
    wait $! || true
    now=$(readlink -f "$current" || true)
    if [ "$now" != "$known" ]; then
        nginx -c /tmp/nginx.conf -s reload && known=$now && echo "{\"event\":\"certificate\",\"serial\":\"${now##*/}\"}"
    fi
done
wait $nginx
