#!/bin/sh
# fresh_debian.sh - the README's two commands in a minimal Debian
#
# usage: tests/fresh_debian.sh [-s SUITE] [-l LOCALE] FOLDER [ARGUMENT ...]
#
# FOLDER becomes the root of the Debian SUITE (bookworm) that debootstrap makes, with the packages
# of its variant minbase; a folder that is complete is used again. The last commit of this tree goes
# to "/home/a clone" in it, a path with a space, where the two commands run as root: sh
# quickstart.sh, and sh tests/run.sh ARGUMENT ... The exit status is that of the first that fails,
# and the last line is the total of the tests. -l de_DE: under that locale, tests included.
# DEBIAN_MIRROR names another mirror. The script needs root, for chroot and for mounts, which end
# with it.
set -eu
export LC_ALL=C CDPATH=

usage() {
	sed -n 's/^# usage: /usage: /p' "$0" >&2
	exit 2
}

suite=bookworm
locale=
while getopts s:l: option; do
	case $option in
	s) suite=$OPTARG ;;
	l) locale=$OPTARG ;;
	*) usage ;;
	esac
done
shift $((OPTIND - 1))
[ $# -gt 0 ] || usage
folder=$1
shift
case $(realpath -m "$folder") in
*' '*)
	echo "fresh_debian.sh: debootstrap wants a folder without spaces in its name" >&2
	exit 2
	;;
esac
[ "$(id -u)" -eq 0 ] || {
	echo "fresh_debian.sh: chroot is for root" >&2
	exit 1
}

# A folder that was begun and not finished has no mark, and is made again.
made=$folder/.minimal-$suite
if [ ! -e "$made" ]; then
	echo "Making a minimal Debian ($suite) in $folder."
	rm -rf "$folder"
	mkdir -p "$folder"
	mirror=${DEBIAN_MIRROR:-http://deb.debian.org/debian}
	debootstrap --variant=minbase "$suite" "$folder" "$mirror" >"$folder.log" 2>&1 || {
		tail -n 20 "$folder.log" >&2
		exit 1
	}
	: >"$made"
fi

clone="$folder/home/a clone"
rm -rf "$clone"
mkdir -p "$clone"
git -C "$(dirname "$0")/.." archive HEAD | tar -x -C "$clone"
cat /etc/resolv.conf >"$folder/etc/resolv.conf"
if [ -n "$locale" ]; then
	chroot "$folder" apt-get -q -y --no-install-recommends install locales >"$folder.log" 2>&1
	chroot "$folder" localedef -i "$locale" -f UTF-8 "$locale.UTF-8"
	set -- "$@" "TEST_LOCALE=$locale.UTF-8"
fi

# A mount and a process namespace of its own: what is mounted and what runs goes when it ends.
# Nothing of this machine's environment is inside.
export folder LANG="${locale:-C}.UTF-8"
# shellcheck disable=SC2016 # for the inner shells
exec unshare --mount --pid --fork sh -euc '
	mount -t proc proc "$folder/proc"
	mount --rbind /dev "$folder/dev"
	exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root TERM=dumb LANG="$LANG" \
	    chroot "$folder" sh -euc "
		cd \"/home/a clone\"
		sh quickstart.sh
		exec sh tests/run.sh \"\$@\"
	" sh "$@"
' sh "$@"
