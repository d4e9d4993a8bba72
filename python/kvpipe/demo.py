"""python -m kvpipe.demo: a prompt of 982 tokens, and its answer from a tenth of the cache

Prints each command before it is run. The exit status is that of the program that failed."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import tempfile

from . import program, share

MODEL, PROMPT = 'demo-model', 'prompts/harbour.txt'
PIPELINES = (
    ('With the whole cache:', (
        f'kv-prefill -m {MODEL} {PROMPT}',
        f'kv-decode -m {MODEL} --stop .')),
    ('With a tenth of it, chosen by SnapKV:', (
        f'kv-prefill -m {MODEL} --observe 16 {PROMPT}',
        'kv-score --method snapkv --kernel 7',
        'kv-evict --rate 0.1',
        f'kv-decode -m {MODEL} --stop .')))


def status_of(codes: list[int]) -> int:
    """Of the programs of a pipe, that of the one which failed: a program whose reader ends first is
    ended by SIGPIPE, and a program behind one that failed misses the end of its input."""
    failed = [code for code in codes if code and code != -signal.SIGPIPE] or [*filter(None, codes)]
    return 0 if not failed else failed[0] if failed[0] > 0 else 128 - failed[0]


def run(commands: tuple[str, ...], folder: str) -> int:
    """Prints and runs a pipe; its status."""
    print('$', ' |\n    '.join(commands), flush=True)
    argv = [shlex.split(command) for command in commands]
    paths = [program(words[0]) for words in argv]
    running: list[subprocess.Popen[bytes]] = []
    for i, (words, path) in enumerate(zip(argv, paths)):
        running.append(subprocess.Popen(
            words, executable=path, cwd=folder,
            env={**os.environ, 'XDG_CACHE_HOME': folder},
            stdin=running[-1].stdout if running else subprocess.DEVNULL,
            stdout=subprocess.PIPE if i + 1 < len(commands) else None))
    for one in running:
        if one.stdout:
            one.stdout.close()          # its reader has it
    return status_of([one.wait() for one in running])


def main() -> int:
    if len(sys.argv) > 1:
        print('usage: python -m kvpipe.demo', file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix='kvpipe-demo.') as folder:
        for name in ('demo-model', 'prompts'):
            os.symlink(share() / 'examples' / name, os.path.join(folder, name))
        print(f'In a folder with {share()}/examples/{{demo-model,prompts}}:')
        for title, commands in PIPELINES:
            print(f'\n{title}')
            status = run(commands, folder)
            if status:
                return status
            print()
    return 0


if __name__ == '__main__':
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
