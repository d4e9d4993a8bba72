#!/bin/sh
# slurm.sh - a Slurm of one node on this machine for the time of a command
#
# usage: tests/slurm.sh COMMAND [WORD ...]
#
# Starts munged, slurmctld and slurmd (Debian: slurm-wlm, munge) with everything they write in a
# folder of their own, waits until the node is idle, runs COMMAND with the client programs that know
# them on the PATH, and stops them. Needs root. Ends with COMMAND's status, or with 69 where Slurm
# cannot be started.
set -eu
export LC_ALL=C CDPATH=

cannot() {
	echo "slurm.sh: $*" >&2
	exit 69
}

[ $# -gt 0 ] || { sed -n 's/^# usage: /usage: /p' "$0" >&2; exit 2; }
PATH=$PATH:/usr/sbin
[ "$(id -u)" = 0 ] || cannot 'only root can start it'
for program in munged slurmctld slurmd sbatch sinfo; do
	command -v "$program" >/dev/null || cannot "there is no $program"
done
work=$(mktemp -d)
daemons=
stop() {
	# shellcheck disable=SC2086 # process ids
	[ -z "$daemons" ] || kill $daemons 2>/dev/null || true
	wait
	rm -rf "$work"
}
trap stop EXIT
trap 'exit 130' INT TERM
chmod 755 "$work"
mkdir "$work/state" "$work/spool"
(umask 077; head -c 128 /dev/urandom >"$work/munge.key")
munged --force --foreground --key-file="$work/munge.key" --socket="$work/munge.socket" \
	--pid-file="$work/munge.pid" --log-file="$work/munge.log" \
	--seed-file="$work/munge.seed" 2>"$work/munge.err" &
daemons=$!
host=$(hostname)
port=$((20000 + $$ % 20000))
processors=$(getconf _NPROCESSORS_ONLN)
megabytes=$(awk '/MemTotal/ { print int($2 / 1024) - 100 }' /proc/meminfo)
cat >"$work/slurm.conf" <<END
ClusterName=kvpipe
SlurmctldHost=$host(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$work/munge.socket
CredType=cred/munge
SlurmctldPort=$port
SlurmdPort=$((port + 1))
StateSaveLocation=$work/state
SlurmdSpoolDir=$work/spool
SlurmctldPidFile=$work/slurmctld.pid
SlurmdPidFile=$work/slurmd.pid
SlurmctldLogFile=$work/slurmctld.log
SlurmdLogFile=$work/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
MailProg=/bin/true
ReturnToService=2
SchedulerParameters=sched_interval=1,batch_sched_delay=0
NodeName=$host NodeAddr=127.0.0.1 CPUs=$processors RealMemory=$megabytes State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
END
export SLURM_CONF="$work/slurm.conf"
# Snakemake takes all variables of Slurm's from a job, that one too.
mkdir "$work/bin"
for program in sbatch scancel scontrol sinfo squeue srun; do
	printf '#!/bin/sh\nSLURM_CONF=%s exec %s "$@"\n' \
		"$work/slurm.conf" "$(command -v $program)" >"$work/bin/$program"
done
chmod 755 "$work"/bin/*
PATH=$work/bin:$PATH
export PATH
slurmctld -D 2>"$work/slurmctld.err" &
daemons="$daemons $!"
slurmd -D 2>"$work/slurmd.err" &
daemons="$daemons $!"
tries=0
until sinfo -h -o %t 2>/dev/null | grep -q idle; do
	tries=$((tries + 1))
	if [ $tries -gt 60 ]; then
		tail -n 3 "$work"/*.err "$work"/*.log >&2 || true
		cannot 'the node does not come up'
	fi
	sleep 0.5
done
"$@"
