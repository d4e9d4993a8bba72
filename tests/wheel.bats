#!/usr/bin/env bats
# bats file_tags=nosan
# make wheel: what is in it, and that it works where pip has put it, without the tree and without what the system has of its libraries

load helper

# The wheel of what was built, with whatever flags; and a venv with it, whose numpy is that of the tests
setup_file() {
	export V=$BATS_FILE_TMPDIR/venv WHY_NOT=
	rm -rf "$O/dist"
	mk || return
	WHEEL=$(echo "$O"/dist/kvpipe-*.whl)
	export WHEEL
	if ! "$PYTHON" -m venv --system-site-packages "$V" >/dev/null 2>&1; then
		WHY_NOT="$PYTHON makes no venv (Debian: python3-venv)"
		return
	fi
	# pip has been compiled already
	(cd "$V" && find . -type f | sort) >"$BATS_FILE_TMPDIR/before"
	"$V/bin/python" -m pip -q --disable-pip-version-check install --no-index --no-deps --no-compile "$WHEEL"
}

mk() {
	local built=${O#"$ROOT"/} file
	local -a as_they_are=(-o all)
	# a build with the CUDA backend has none
	[ -e "$O/gpu/nogpu.o" ] || cc -std=c11 -D_GNU_SOURCE -O2 -fPIC "-I$ROOT" "-I$ROOT/src" -c -o "$O/gpu/nogpu.o" "$ROOT/gpu/nogpu.c"
	for file in "$O"/lib*.a "$O"/tools/*.o "$O"/gpu/nogpu.o; do
		as_they_are+=(-o "$built${file#"$O"}")
	done
	make -s "${as_they_are[@]}" -C "$ROOT" O="$O" wheel
}

setup() {
	cd "$BATS_TEST_TMPDIR" || exit 1
	unset PYTHONPATH PYTHONHOME LD_LIBRARY_PATH
}

# The user's environment: the venv is first in PATH, and the folder that was built is not in it.
installed() {
	[ -z "$WHY_NOT" ] || skip "$WHY_NOT"
	PATH=$V/bin:${PATH//"$O":/}
	PATH=${PATH//"$O/tests/bin":/}
	unset -f command_not_found_handle
}

@test "the record has every file of the wheel, with its digest and length" {
	run -0 "$PYTHON" - "$WHEEL" <<-'END'
		import base64, csv, hashlib, io, sys, zipfile
		archive = zipfile.ZipFile(sys.argv[1])
		names = archive.namelist()
		assert len(names) == len(set(names))
		[record] = [n for n in names if n.endswith('.dist-info/RECORD')]
		rows = list(csv.reader(io.StringIO(archive.read(record).decode())))
		assert sorted(r[0] for r in rows) == sorted(names), set(names) ^ {r[0] for r in rows}
		for name, digest, size in rows:
		    if name != record:
		        data = archive.read(name)
		        want = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip('=')
		        assert (digest, int(size)) == ('sha256=' + want, len(data)), name
		        mode = archive.getinfo(name).external_attr >> 16
		        assert mode == (0o100755 if '/scripts/' in name else 0o100644), (name, oct(mode))
	END
}

@test "make wheel makes the same bytes again" {
	cp "$WHEEL" first.whl
	mk
	cmp first.whl "$WHEEL"
}

@test "the tag names the oldest C library that has all symbols, and the metadata the version of the programs" {
	mkdir unpacked
	"$PYTHON" -m zipfile -e "$WHEEL" unpacked
	local newest
	newest=$(find unpacked/*.data/scripts unpacked/*.data/data/libexec -type f -exec readelf --dyn-syms -W {} + |
	    sed -n 's/.*@GLIBC_2\.\([0-9]*\).*/\1/p' | sort -n | tail -n 1)
	[[ $WHEEL == *-py3-none-manylinux_2_"$newest"_"$(uname -m)".whl ]]
	run cat unpacked/*.dist-info/METADATA
	assert_line "Version: $(kvpipe --version | sed -n '1s/kvpipe //p')"
	assert_line 'Requires-Dist: numpy'
	# a licence for each library that is not ours
	for library in dnnl gomp lz4 xxhash jansson pcre2 utf8proc; do
		assert [ -n "$(find unpacked/*.data/data/libexec/kvpipe -name "lib$library*")" ]
		[ "$library" = gomp ] || assert [ -n "$(find unpacked/*.dist-info/licenses -name "lib$library*")" ]
	done
	assert [ -n "$(find unpacked/*.dist-info/licenses -name 'gcc-*')" ]
}

@test "what make install puts below share is in the wheel" {
	installed
	make -s -o all -o "${O#"$ROOT"/}/libkvfile.a" -C "$ROOT" O="$O" DESTDIR="$PWD/stage" PREFIX=/x install
	(cd stage/x && find share bin \( -type f -o -type l ! -path "share/doc/*" ! -path "share/kvpipe/*" \) ! -path '*/kvsnapshot/*' | sort) >want
	(cd "$V" && xargs -d '\n' ls <"$BATS_TEST_TMPDIR/want") >/dev/null
	for page in "$ROOT"/man/*.[1-9]; do
		cmp "$page" "$V/share/man/man${page##*.}/${page##*/}"
	done
	if command -v manpath >/dev/null; then
		assert_equal "$(man -w kv-score)" "$V/share/man/man1/kv-score.1"
	fi
}

@test "programs load what the wheel has brought, and of the system the C library and that of the compiler alone" {
	installed
	for file in "$V"/bin/kv* "$V"/libexec/kvpipe/*.so*; do
		case $file in
		*/libexec/kvpipe/*) run -0 env LD_LIBRARY_PATH="$V/libexec/kvpipe" ldd "$file" ;;
		*) run -0 ldd "$file" ;;
		esac
		refute_output --partial 'not found'
		refute [ -n "$(sed -nE 's/ \(0x.*//; /linux-vdso|ld-linux|statically linked|lib(c|m|gcc_s|stdc\+\+)\.so/d; / => .*\/venv\//!p' <<<"$output")" ]
	done
}

@test "the README's pipeline runs from a venv that stands elsewhere, and through a link to a program" {
	installed
	local share=$V/share/kvpipe kv
	answer() {
		kv-prefill -m "$share/examples/demo-model" --observe 16 "$share/examples/prompts/harbour.txt" | kv-score --method snapkv --kernel 7 |
		    kv-evict --rate 0.1 | kv-decode -m "$share/examples/demo-model" --stop .
	}
	assert_equal "$(answer)" ' L047'
	assert_equal "$(kvpipe info --version | head -n 1)" "$("$O/kv-info" --version | head -n 1)"
	# pipx and uv link programs into a folder
	mkdir links
	for kv in "$V"/bin/kv*; do ln -s "$kv" links; done
	PATH=$PWD/links:${PATH#"$V/bin:"}
	assert_equal "$(answer)" ' L047'
	assert_equal "$(kvpipe info --version | head -n 1)" "$("$O/kv-info" --version | head -n 1)"
}

@test "programs of the wheel write the bytes of those that were built" {
	installed
	local program
	for program in kv-prefill kv-index; do
		case $program in
		kv-prefill) set -- -m "$DEMO" --observe 16 "$ROOT/examples/prompts/harbour.txt" ;;
		kv-index) set -- --low-rank --rank 8 kv-prefill.built ;;
		esac
		"$O/$program" -o $program.built "$@"
		"$V/bin/$program" -o $program.wheel "$@"
		cmp $program.built $program.wheel
	done
}

@test "python -m kvpipe is the program kvpipe" {
	installed
	assert_equal "$(python -m kvpipe --version)" "$("$O/kvpipe" --version)"
	run -2 --separate-stderr python -m kvpipe scroe
	assert_equal "$stderr" "$("$O/kvpipe" scroe 2>&1)"
}

@test "python -m kvpipe.demo prints its commands before their output, and leaves nothing" {
	installed
	mkdir tmp home
	TMPDIR=$PWD/tmp HOME=$PWD/home run -0 env -u KV_FINGERPRINTS python -m kvpipe.demo
	assert_output - <<-END
		In a folder with $V/share/kvpipe/examples/{demo-model,prompts}:

		With the whole cache:
		\$ kv-prefill -m demo-model prompts/harbour.txt |
		    kv-decode -m demo-model --stop .
		 L047

		With a tenth of it, chosen by SnapKV:
		\$ kv-prefill -m demo-model --observe 16 prompts/harbour.txt |
		    kv-score --method snapkv --kernel 7 |
		    kv-evict --rate 0.1 |
		    kv-decode -m demo-model --stop .
		 L047
	END
	assert_equal "$(find tmp home -mindepth 1)" ''
}

@test "python -m kvpipe.demo exits with the status of the program that failed" {
	installed
	local program=$V/bin/kv-score
	mv "$program" kept
	demo() { rm -f "$program"; printf '#!/bin/sh\n%s\n' "$1" >"$program"; chmod +x "$program"; run python -m kvpipe.demo; }
	for want in 4 1; do
		demo "exit $want"
		assert_equal "$status" "$want"
	done
	demo 'kill -KILL $$'
	mv kept "$program"
	assert_equal "$status" 137
}

@test "kvsnapshot reads and scores, also where no xxhash and lz4 are but those of the wheel" {
	installed
	kv-prefill -m "$DEMO" -o x.kv "$ROOT/examples/prompts/harbour.txt"
	cat >look.py <<-'END'
		import ctypes, sys
		if sys.argv[1:]:
		    sys.modules['xxhash'] = sys.modules['lz4'] = None
		    usual = ctypes.CDLL
		    def absolute(name):
		        if not name.startswith('/'):
		            raise OSError(name)
		        print(name.rsplit('/', 3)[1:], file=sys.stderr)
		        return usual(name)
		    ctypes.CDLL = absolute
		import kvsnapshot, kvpipe, os
		s = kvsnapshot.read('x.kv')
		print(kvsnapshot.__file__.startswith(sys.prefix), len(s.layers), s.layers[0].keys[0].shape, kvsnapshot.__version__)
		for package in kvsnapshot, kvpipe:
		    assert os.path.exists(os.path.join(os.path.dirname(package.__file__), 'py.typed'))
	END
	run -0 python look.py
	assert_output "True 4 (982, 32) $(sed -n 's/^VERSION = //p' "$ROOT/Makefile")"
	local usual=$output
	run -0 --separate-stderr python look.py without
	assert_output "$usual"
	assert_equal "${stderr_lines[0]}" "['libexec', 'kvpipe', 'libxxhash.so.0']"
	ln -s "$V/share/kvpipe/python/value_aware.py" .
	kv-prefill -m "$DEMO" --observe 16 "$ROOT/examples/prompts/harbour.txt" | python value_aware.py | kv-evict --rate 0.1 |
	    kv-decode -m "$DEMO" --stop .
}

@test "pip install --target, which has another layout, works too" {
	installed
	python -m pip -q --disable-pip-version-check install --no-index --no-deps --no-compile --target t "$WHEEL"
	run -0 env PYTHONPATH="$PWD/t" "$PYTHON" -m kvpipe.demo
	assert_line --index 0 "In a folder with $PWD/t/share/kvpipe/examples/{demo-model,prompts}:"
	assert_equal "${lines[-1]}" ' L047'
}

# The library of the backend that is not there, as if it were another
@test "kvpipe-cuda wants the same kvpipe, its backend is found before that of kvpipe, and it goes without harm" {
	installed
	backend() { ldd "$V/bin/kv-decode" | sed -n "s,.*libkvcuda.so => .*/libexec/,,p" | cut -d ' ' -f 1; }
	local version
	version=$(sed -n 's/^VERSION = //p' "$ROOT/Makefile")
	assert_equal "$(backend)" kvpipe/libkvcuda.so
	run -0 "$PYTHON" "$ROOT/python/make_wheel.py" --version "$version" --cuda "$O/wheel/lib/libkvcuda.so" --cublas 'nvidia-cublas==13.*' dist
	python -m pip -q --disable-pip-version-check install --no-index --no-deps "$output"
	assert_equal "$(backend)" kvpipe/cuda/libkvcuda.so
	run -0 python -c 'import importlib.metadata as m; print(*m.requires("kvpipe-cuda")); print(*m.requires("kvpipe"))'
	assert_line --index 0 "kvpipe==$version nvidia-cublas==13.*"
	assert_line --index 1 --regexp "^numpy kvpipe-cuda==$version; extra == .cuda.$"
	run -1 kv-prefill --device cuda -m "$DEMO" -o x.kv "$ROOT/examples/prompts/harbour.txt"
	assert_output --partial "no CUDA device: this build has none"
	python -m pip -q --disable-pip-version-check uninstall -y kvpipe-cuda
	assert_equal "$(backend)" kvpipe/libkvcuda.so
	run -2 make -s -C "$ROOT" O="$PWD/out" GPU=0 wheel-cuda
	assert_output --partial 'wheel-cuda wants GPU=1'
}

# the last: it takes all away
@test "pip uninstall leaves no file" {
	installed
	python -m pip -q --disable-pip-version-check uninstall -y kvpipe
	(cd "$V" && find . -type f -o -type l | grep -v '/__pycache__/' | sort) >after
	(cd "$V" && find . -type l | sort) | sort - "$BATS_FILE_TMPDIR/before" | grep -v '/__pycache__/' | diff - after
}
