#!/usr/bin/env python3
"""A wheel of what is built: make wheel, make wheel-cuda.

    python/make_wheel.py --version VERSION --stage FOLDER --lib FOLDER [--archive LIBRARY] DIST
    python/make_wheel.py --version VERSION --cuda LIBRARY [--licence FILE] --cublas REQUIREMENT
        DIST

--stage has bin/, share/ and so on, as `make install` has put it there, with the programs from
`make wheel`; --lib has their libraries, and --archive names those that a program is linked with.
What these load is copied beside them, but for the C library, libgcc_s and libstdc++, which every
system has that can run the wheel, and so are the licences of the packages that it is of. The tag
names the oldest C library that has all symbols. The same files give the same bytes. Needs binutils,
ldd and, for the licences, dpkg.
"""

import argparse
import base64
import csv
import hashlib
import io
import os
import re
import subprocess
import zipfile

TREE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LIB = 'libexec/kvpipe'
OF_SYSTEM = re.compile(r'(linux-vdso|ld-linux.*|lib(c|m|dl|rt|pthread|gcc_s|stdc\+\+))\.so.*')
SUMMARY = 'The KV cache of a language model as a file: programs that score, shrink and search it'
METADATA = '''\
Metadata-Version: 2.1
Name: {name}
Version: {version}
Summary: {summary}
License: MIT
Requires-Python: >=3.9
{more}Classifier: Environment :: Console
Classifier: Intended Audience :: Science/Research
Classifier: License :: OSI Approved :: MIT License
Classifier: Operating System :: POSIX :: Linux
Classifier: Programming Language :: C
Classifier: Typing :: Typed
Description-Content-Type: text/markdown

{text}
'''
TEXT = '''\
# kvpipe

{summary}: `kv-prefill`, `kv-score`, `kv-evict`, `kv-decode` and others, with manual pages and
completions, and the Python package `kvsnapshot`, which reads snapshots into NumPy arrays.

`python -m kvpipe.demo` runs a prompt and answers from a tenth of its cache; `kvpipe` lists the
programs; `man 7 kvpipe` is the tutorial. Needs Linux on {machine} with the C library {libc} or
later. An NVIDIA GPU: `pip install 'kvpipe[cuda]'`.
'''
CUDA_TEXT = '''\
# kvpipe-cuda

The CUDA backend of kvpipe, a library that its programs load: `pip install 'kvpipe[cuda]'`.
'''


def output(*command):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True,
                          env={**os.environ, 'LC_ALL': 'C'}).stdout


def read(path):
    with open(path, 'rb') as file:
        return file.read()


def is_elf(path):
    with open(path, 'rb') as file:
        return file.read(4) == b'\x7fELF'


# ---- libraries ----

def loaded(files, folder):
    """{name: path} of the libraries that files load, their own in folder and the system's aside"""
    found = {}
    for file in files:
        listed = subprocess.run(['ldd', file], check=True, stdout=subprocess.PIPE, text=True, env={
            **os.environ, 'LC_ALL': 'C', 'LD_LIBRARY_PATH': os.path.abspath(folder)}).stdout
        for name, path in re.findall(r'^\s*(\S+) => (.+?)(?: \(0x|$)', listed, re.M):
            if path == 'not found':
                raise SystemExit(f'{file} loads {name}, which is not found')
            if not OF_SYSTEM.fullmatch(name) and os.path.dirname(path) != os.path.abspath(folder):
                found[name] = path
    return found


def newest_libc(files):
    """'2.34' for symbols that the C library has since then"""
    versions = re.findall(r'\bGLIBC_2\.(\d+)', ''.join(output('objdump', '-T', f) for f in files))
    return f'2.{max(map(int, versions), default=17)}'        # of which no tag is older


def package_of(path):
    """The package that has installed the file"""
    real = os.path.realpath(path)
    for name in (real, real.replace('/usr/lib/', '/lib/', 1), '/usr' + real):
        listed = subprocess.run(['dpkg', '-S', name], stdout=subprocess.PIPE,
                                stderr=subprocess.DEVNULL, text=True)
        if listed.returncode == 0:
            return listed.stdout.split(':')[0]
    raise SystemExit(f'{real}: dpkg knows no package of it, whose licence would be in the wheel')


def licences(paths):
    """{name: path} of the licences of files, and of those that they name where Debian keeps the
    texts"""
    found = {}
    for package in sorted(set(map(package_of, paths))):
        path = os.path.realpath(f'/usr/share/doc/{package}/copyright')
        found[f'{path.split("/")[-2]}.txt'] = path
        for name in re.findall(rb'/usr/share/common-licenses/([\w.-]*\w)', read(path)):
            common = f'/usr/share/common-licenses/{name.decode()}'
            found[f'{name.decode()}.txt'] = common
    return found


# ---- the wheel ----

class Wheel:
    """Files in memory: {path: (content, is it a program?)}"""

    def __init__(self, name, version, tag):
        self.front = f'{name}-{version}'.replace('-', '_', name.count('-'))
        self.name, self.version, self.tag, self.files = name, version, tag, {}

    def add(self, path, content, runs=False):
        self.files[path] = content, runs

    def tree(self, folder, to):
        """All files below folder; links become files, but for those between documents"""
        for at, folders, names in os.walk(folder):
            folders[:] = sorted(set(folders) - {'__pycache__'})
            for name in names:
                path = os.path.join(at, name)
                if os.path.islink(path) and re.search('/share/(doc|kvpipe)/', path):
                    continue
                self.add(os.path.join(to, os.path.relpath(path, folder)), read(path),
                         is_elf(path) and '.so' not in name)

    def licences(self, paths):
        self.info('licenses/LICENSE', read(os.path.join(TREE, 'LICENSE')))
        for name, path in sorted(licences(paths).items()):
            self.info(f'licenses/{name}', read(path))

    def info(self, name, content):
        self.add(f'{self.front}.dist-info/{name}', content)

    def metadata(self, lines, text):
        self.info('METADATA', METADATA.format(
            name=self.name, version=self.version, summary=SUMMARY, text=text,
            more=''.join(f'{line}\n' for line in lines)).encode())
        self.info('WHEEL', ('Wheel-Version: 1.0\nGenerator: kvpipe\nRoot-Is-Purelib: false\n'
                            f'Tag: {self.tag}\n').encode())

    def write(self, folder):
        """-> path"""
        record = f'{self.front}.dist-info/RECORD'
        rows = io.StringIO()
        lines = csv.writer(rows, lineterminator='\n')
        for path, (content, _) in sorted(self.files.items()):
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b'=')
            lines.writerow((path, f'sha256={digest.decode()}', len(content)))
        lines.writerow((record, '', ''))
        os.makedirs(folder, exist_ok=True)
        target = os.path.join(folder, f'{self.front}-{self.tag}.whl')
        with zipfile.ZipFile(target, 'w', zipfile.ZIP_DEFLATED) as archive:
            for path, (content, runs) in [*sorted(self.files.items()),
                                          (record, (rows.getvalue().encode(), False))]:
                entry = zipfile.ZipInfo(path, (1980, 1, 1, 0, 0, 0))
                entry.external_attr = (0o100755 if runs else 0o100644) << 16
                entry.compress_type = zipfile.ZIP_DEFLATED
                archive.writestr(entry, content)
        return target


def tag_of(files):
    """The platform, and the oldest C library"""
    libc, machine = newest_libc(files), os.uname().machine
    return f'py3-none-manylinux_{libc.replace(".", "_")}_{machine}', libc, machine


def programs(stage, lib, archives, version):
    """The wheel kvpipe"""
    own = [os.path.join(lib, name) for name in sorted(os.listdir(lib))]
    own = [path for path in own if os.path.isfile(path)]
    bin_ = [os.path.join(stage, 'bin', name) for name in sorted(os.listdir(f'{stage}/bin'))]
    others = loaded(bin_ + own, lib)
    tag, libc, machine = tag_of([*bin_, *own, *others.values()])
    wheel = Wheel('kvpipe', version, tag)
    data = f'{wheel.front}.data/data'
    for path in bin_:
        wheel.add(f'{wheel.front}.data/scripts/{os.path.basename(path)}', read(path), True)
    for name, path in [*((os.path.basename(path), path) for path in own), *others.items()]:
        wheel.add(f'{data}/{LIB}/{name}', read(path))
    wheel.tree(f'{stage}/share', f'{data}/share')
    # the package is where Python looks for packages
    for path in [path for path in wheel.files if '/share/kvpipe/python/kvsnapshot/' in path]:
        del wheel.files[path]
    for package in ('kvpipe', 'kvsnapshot'):
        wheel.tree(os.path.join(TREE, 'python', package), package)
    wheel.licences([*others.values(), *archives])
    wheel.metadata(('Requires-Dist: numpy', 'Provides-Extra: cuda',
                    f'Requires-Dist: kvpipe-cuda=={version}; extra == "cuda"'),
                   TEXT.format(summary=SUMMARY, libc=libc, machine=machine))
    return wheel


def backend(library, licences_of_cuda, cublas, version):
    """The wheel kvpipe-cuda"""
    wheel = Wheel('kvpipe-cuda', version, tag_of([library])[0])
    wheel.add(f'{wheel.front}.data/data/{LIB}/cuda/{os.path.basename(library)}', read(library))
    wheel.licences(())
    for path in licences_of_cuda:
        wheel.info(f'licenses/CUDA-{os.path.basename(path)}', read(path))
    wheel.metadata((f'Requires-Dist: kvpipe=={version}', f'Requires-Dist: {cublas}'), CUDA_TEXT)
    return wheel


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('--version', required=True)
    parser.add_argument('--stage')
    parser.add_argument('--lib')
    parser.add_argument('--archive', action='append', default=[])
    parser.add_argument('--cuda')
    parser.add_argument('--licence', action='append', default=[])
    parser.add_argument('--cublas')
    parser.add_argument('dist')
    args = parser.parse_args()
    if args.cuda:
        wheel = backend(args.cuda, args.licence, args.cublas, args.version)
    else:
        wheel = programs(args.stage, args.lib, args.archive, args.version)
    print(wheel.write(args.dist))


if __name__ == '__main__':
    main()
