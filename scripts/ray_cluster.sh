#!/usr/bin/env bash
# Start or stop a Ray cluster of two nodes on this machine, to try out sweeps. All its files are in one folder.
#
#   scripts/ray_cluster.sh start FOLDER     start the cluster and print how to use it
#   scripts/ray_cluster.sh stop FOLDER      stop its processes by their process ids
# An environment with proxlearn[ray] must be on PATH. FOLDER must be short, because Ray creates sockets in it.
set -euo pipefail

usage() { sed -n '2,7s/^# \{0,1\}//p' "$0"; exit 2; }
[ $# -eq 2 ] || usage
folder=$(realpath -m "$2")
# Ray requires a token for the connections between its nodes; it is stored in the folder of the cluster.
export RAY_AUTH_MODE=token RAY_AUTH_TOKEN_PATH="$folder/token" RAY_USAGE_STATS_ENABLED=0

start() {
  command -v ray >/dev/null || { echo "ray_cluster: ray is not installed; run \`pip install 'proxlearn[ray]'\`" >&2; exit 2; }
  [ ! -e "$folder/pids" ] || { echo "ray_cluster: a cluster was already started in $folder; run \`$0 stop $folder\` first" >&2; exit 2; }
  mkdir -p "$folder"
  : >"$folder/pids"
  (umask 077 && head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n' >"$folder/token")
  local port
  port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
  local options=(--num-cpus 2 --object-store-memory 100000000 --disable-usage-stats --block)
  setsid ray start --head --node-ip-address 127.0.0.1 --port "$port" --temp-dir "$folder/ray" \
    --include-dashboard false "${options[@]}" >"$folder/head.log" 2>&1 &
  echo $! >>"$folder/pids"
  nodes_are 1
  setsid ray start --address "127.0.0.1:$port" --node-ip-address 127.0.0.1 "${options[@]}" >"$folder/node.log" 2>&1 &
  echo $! >>"$folder/pids"
  nodes_are 2
  echo "export RAY_AUTH_MODE=token RAY_AUTH_TOKEN_PATH=$folder/token"
  echo "proxlearn train -m ... hydra/launcher=ray hydra.launcher.ray.init.address=127.0.0.1:$port"
}

nodes_are() { # wait until the cluster has this many nodes, at most 60 s
  for _ in $(seq 30); do
    [ "$(ray status --address "127.0.0.1:$port" 2>/dev/null | grep -c ' node_')" = "$1" ] && return
    sleep 2
  done
  echo "ray_cluster: the number of nodes did not reach $1 within 60 s; see the logs in $folder" >&2
  exit 1
}

stop() {
  [ -e "$folder/pids" ] || { echo "ray_cluster: no cluster was started in $folder; give the FOLDER of the \`start\` command" >&2; exit 2; }
  # `ray start --block` stops its processes when it receives a signal. The second node is stopped before the head.
  tac "$folder/pids" | while read -r pid; do
    kill "$pid" 2>/dev/null || continue
    for _ in $(seq 300); do kill -0 "$pid" 2>/dev/null || break; sleep 0.2; done
  done
  rm "$folder/pids"
}

case $1 in start) start ;; stop) stop ;; *) usage ;; esac
