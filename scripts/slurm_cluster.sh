#!/usr/bin/env bash
# Start or stop a SLURM cluster of two nodes on this machine, to try out sweeps. All its files are in one folder.
#
#   scripts/slurm_cluster.sh start FOLDER     start the cluster and print how to use it
#   scripts/slurm_cluster.sh stop FOLDER      stop its daemons by their process ids
# The Debian packages slurmctld, slurmd, slurm-client and munge (13 MB) must be installed. Any user may run it.
set -euo pipefail

usage() { sed -n '2,7s/^# \{0,1\}//p' "$0"; exit 2; }
[ $# -eq 2 ] || usage
folder=$(realpath -m "$2")
cpus=$(nproc)
user=$(id -un)

free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }

wait_for() { # wait_for WHAT COMMAND...: wait until the command succeeds, at most 20 s
  local what=$1; shift
  for _ in $(seq 100); do "$@" >/dev/null 2>&1 && return; sleep 0.2; done
  echo "slurm_cluster: $what did not start; see the logs in $folder" >&2
  exit 1
}

start() {
  for program in munged slurmctld slurmd sbatch scontrol; do
    PATH="$PATH:/usr/sbin" command -v "$program" >/dev/null ||
      { echo "slurm_cluster: $program is not installed; install slurmctld, slurmd, slurm-client and munge" >&2; exit 2; }
  done
  [ ! -e "$folder/pids" ] || { echo "slurm_cluster: a cluster was already started in $folder; run \`$0 stop $folder\` first" >&2; exit 2; }
  export PATH="$PATH:/usr/sbin"
  mkdir -p "$folder"/{state,spool-n1,spool-n2}
  chmod 755 "$folder"
  # munged accepts its key and socket only in folders that no other user can write to.
  mkdir -p "$folder/munge" && chmod 755 "$folder/munge"
  head -c 1024 /dev/urandom >"$folder/munge/key"
  chmod 400 "$folder/munge/key"
  : >"$folder/pids"
  munged --foreground --force --key-file="$folder/munge/key" --socket="$folder/munge/socket" \
    --pid-file="$folder/munge/pid" --seed-file="$folder/munge/seed" >"$folder/munged.log" 2>&1 &
  echo $! >>"$folder/pids"
  wait_for munged test -S "$folder/munge/socket"
  local controller n1 n2
  controller=$(free_port) n1=$(free_port) n2=$(free_port)
  cat >"$folder/slurm.conf" <<EOF
ClusterName=proxlearn
SlurmctldHost=$(hostname -s)(127.0.0.1)
SlurmctldPort=$controller
SlurmUser=$user
SlurmdUser=$user
AuthType=auth/munge
AuthInfo=socket=$folder/munge/socket
CryptoType=crypto/munge
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool-%n
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd-%n.pid
SlurmctldLogFile=$folder/slurmctld.log
SlurmdLogFile=$folder/slurmd-%n.log
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
ReturnToService=2
SlurmctldParameters=enable_configless
NodeName=n1 NodeHostname=$(hostname -s) NodeAddr=127.0.0.1 Port=$n1 CPUs=$cpus State=UNKNOWN
NodeName=n2 NodeHostname=$(hostname -s) NodeAddr=127.0.0.1 Port=$n2 CPUs=$cpus State=UNKNOWN
PartitionName=debug Nodes=n1,n2 Default=YES MaxTime=INFINITE State=UP
EOF
  export SLURM_CONF="$folder/slurm.conf"
  slurmctld -D >"$folder/slurmctld.out" 2>&1 &
  echo $! >>"$folder/pids"
  wait_for slurmctld scontrol ping
  for node in n1 n2; do
    slurmd -D -N "$node" >"$folder/slurmd-$node.out" 2>&1 &
    echo $! >>"$folder/pids"
  done
  wait_for "the nodes" sh -c 'test "$(sinfo -h -t idle -o %D)" = 2'
  sinfo -N
  echo "export SLURM_CONF=$folder/slurm.conf"
}

stop() {
  [ -e "$folder/pids" ] || { echo "slurm_cluster: no cluster was started in $folder; give the FOLDER of the \`start\` command" >&2; exit 2; }
  # Stop in reverse order of the start: the nodes, the controller, munge.
  tac "$folder/pids" | while read -r pid; do
    kill "$pid" 2>/dev/null || continue
    for _ in $(seq 50); do kill -0 "$pid" 2>/dev/null || break; sleep 0.2; done
    kill -0 "$pid" 2>/dev/null && kill -9 "$pid"
  done || true
  rm "$folder/pids"
}

case $1 in start) start ;; stop) stop ;; *) usage ;; esac
