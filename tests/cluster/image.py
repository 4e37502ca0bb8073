#!/usr/bin/env python3
"""Makes a container image as a tar from a Dockerfile's last stage, without a container engine.

It reads the instructions of that stage, so that the image can't differ from the Dockerfile without an error here: an instruction it does not
know, a file that is not there and a library that nothing provides are all errors. Two things are not as in a real build:
  - earlier stages are not run: `COPY --from` takes the file given with --built SOURCE=FILE, else the same path on this machine;
  - a base image is not fetched: in its place come this machine's glibc, certificate authorities and an /etc/passwd (see BASES).
The output is a docker-archive: `ctr images import`, `docker load`.
"""

import argparse
import glob
import hashlib
import io
import json
import os
import platform
import re
import shlex
import subprocess
import sys
import tarfile

# What a base image brings: libraries by the start of their name, and what else the stand-in needs.
BASES = {
    "scratch": {"libraries": (), "files": ()},
    "gcr.io/distroless/cc-debian12": {
        "libraries": ("ld-linux", "libc.so", "libm.so", "libpthread.so", "libdl.so", "librt.so", "libgcc_s.so", "libstdc++.so", "libgomp.so"),
        "files": ("/etc/ssl/certs/ca-certificates.crt",),
    },
}
SEARCHED_BY_LOADER = ("/lib", "/usr/lib", "/lib64", "/usr/lib64")
ARCHITECTURE = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())


def fail(message):
    sys.exit(f"image.py: {message}")


def last_stage(text):
    """The instructions of the last stage as (name, argument), with build arguments put in."""
    text = re.sub(r"^\s*#.*\n?", "", text, flags=re.MULTILINE)
    text = re.sub(r"\\\n", " ", text)
    stage, arguments = [], {}
    for line in filter(None, map(str.strip, text.splitlines())):
        name, _, argument = line.partition(" ")
        name, argument = name.upper(), argument.strip()
        if name == "FROM":
            stage = []
        if name == "ARG":
            key, _, default = argument.partition("=")
            arguments[key] = default.strip("\"'")
            continue
        argument = re.sub(r"\$\{(\w+)\}|\$(\w+)", lambda m: arguments.get(m[1] or m[2], m[0]), argument)
        stage.append((name, argument))
    return stage


class Root:
    """The image's files: path without the leading slash -> (mode, link target or None, content)."""

    def __init__(self):
        self.files = {}

    def add(self, source, path):
        path = os.path.normpath(path).lstrip("/")
        if os.path.isdir(source) and not os.path.islink(source):
            if path not in ("", "."):
                self.files[path] = ("dir", os.stat(source).st_mode & 0o7777, None)
            for name in sorted(os.listdir(source)):
                self.add(os.path.join(source, name), os.path.join(path, name))
            return
        if os.path.islink(source):
            self.files[path] = ("link", 0o777, os.readlink(source))
            return
        with open(source, "rb") as file:
            self.files[path] = ("file", os.stat(source).st_mode & 0o7777, file.read())

    def text(self, path, content):
        self.files[path.lstrip("/")] = ("file", 0o644, content.encode())

    def has_library(self, name):
        return any(os.path.basename(p) == name and os.path.dirname("/" + p).startswith(SEARCHED_BY_LOADER) for p in self.files)

    def layer(self):
        out = io.BytesIO()
        directories = {p: m for p, (kind, m, _) in self.files.items() if kind == "dir"}
        for path in self.files:
            while path := os.path.dirname(path):
                directories.setdefault(path, 0o755)
        with tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT) as tar:
            for path, mode in sorted(directories.items()):
                entry = tarfile.TarInfo(path)
                entry.type, entry.mode = tarfile.DIRTYPE, mode
                tar.addfile(entry)
            for path, (kind, mode, content) in sorted(self.files.items()):
                entry = tarfile.TarInfo(path)
                entry.mode = mode
                if kind == "link":
                    entry.type, entry.linkname = tarfile.SYMTYPE, content
                    tar.addfile(entry)
                elif kind == "file":
                    entry.size = len(content)
                    tar.addfile(entry, io.BytesIO(content))
        return out.getvalue()


def copy(root, argument, context, built):
    """COPY [--from=STAGE] SOURCE... TARGET"""
    words = shlex.split(argument)
    from_stage = False
    while words[0].startswith("--"):
        if not words[0].startswith("--from="):
            fail(f"COPY {words[0]} is not supported")
        from_stage = True
        words.pop(0)
    *sources, target = words
    for source in sources:
        if from_stage:
            found = [built[source]] if source in built else sorted(glob.glob(source))
        else:
            found = sorted(glob.glob(os.path.join(context, source.lstrip("/"))))
        if not found:
            fail(f"COPY {argument}: there is no {source}")
        for path in found:
            into = target.endswith("/") and not os.path.isdir(path)
            name = os.path.basename(source if path == built.get(source) else path)
            # as BuildKit does: a link that is named is followed, one that a pattern matches is copied as it is
            if os.path.islink(path) and "*" not in source:
                path = os.path.realpath(path)
            root.add(path, os.path.join(target, name) if into else target)


def libraries_of(program):
    """Every library that the loader would load for PROGRAM: name -> path on this machine."""
    run = subprocess.run(["ldd", program], capture_output=True, text=True)
    if run.returncode != 0:
        return {}  # static
    missing = re.findall(r"^\s*(\S+) => not found", run.stdout, flags=re.MULTILINE)
    if missing:
        fail(f"{program} needs {', '.join(missing)}, not on this machine")
    found = re.findall(r"^\s*(?:(\S+) => )?(/\S+) \(0x", run.stdout, flags=re.MULTILINE)
    return {os.path.basename(name or path): path for name, path in found}


def add_base(root, base, programs):
    if base not in BASES:
        fail(f"base image {base} is not known; see BASES")
    if base == "scratch":
        return
    for program in programs:
        for name, path in libraries_of(program).items():
            if name.startswith(BASES[base]["libraries"]):
                root.add(os.path.realpath(path), path)
            elif not root.has_library(name):
                fail(f"{program} needs {name}, which {base} does not have: the Dockerfile must copy it into /usr/lib")
    for path in BASES[base]["files"]:
        if os.path.exists(path):
            root.add(os.path.realpath(path), path)
    root.text("/etc/passwd", "root:x:0:0:root:/root:/sbin/nologin\nnobody:x:65534:65534:nobody:/nonexistent:/sbin/nologin\n")
    root.text("/etc/group", "root:x:0:\nnobody:x:65534:\n")
    root.files["tmp"] = ("dir", 0o1777, None)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--file", required=True, help="the Dockerfile")
    parser.add_argument("--context", required=True, help="the directory that COPY without --from reads")
    parser.add_argument("--built", action="append", default=[], metavar="SOURCE=FILE", help="what an earlier stage would have made")
    parser.add_argument("--tag", required=True)
    parser.add_argument("--output", required=True)
    options = parser.parse_args()
    built = dict(pair.split("=", 1) for pair in options.built)

    root, config, base, used = Root(), {"Env": [], "Labels": {}}, None, set()
    with open(options.file, encoding="utf-8") as file:
        stage = last_stage(file.read())
    for name, argument in stage:
        if name == "FROM":
            base = argument.split()[0]
        elif name == "COPY":
            copy(root, argument, options.context, built)
            used |= {source for source in built if source in shlex.split(argument)}
        elif name in ("ENTRYPOINT", "CMD"):
            if not argument.startswith("["):
                fail(f"{name} must be a JSON list: there is no shell in the image")
            config[name.capitalize()] = json.loads(argument)
        elif name == "ENV":
            config["Env"] += shlex.split(argument)
        elif name == "LABEL":
            config["Labels"].update(word.split("=", 1) for word in shlex.split(argument))
        elif name == "USER":
            config["User"] = argument
        elif name == "WORKDIR":
            config["WorkingDir"] = argument
        elif name == "EXPOSE":
            config["ExposedPorts"] = {port if "/" in port else port + "/tcp": {} for port in argument.split()}
        else:
            fail(f"{name} in the last stage of {options.file} is not supported")
    if unused := set(built) - used:
        fail(f"{options.file} does not copy {', '.join(sorted(unused))}")
    add_base(root, base, built.values())
    if not any(word.startswith("PATH=") for word in config["Env"]):
        config["Env"].append("PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")

    layer = root.layer()
    image = json.dumps(
        {
            "architecture": ARCHITECTURE,
            "os": "linux",
            "created": "1970-01-01T00:00:00Z",
            "config": config,
            "rootfs": {"type": "layers", "diff_ids": ["sha256:" + hashlib.sha256(layer).hexdigest()]},
        }
    ).encode()
    digest = hashlib.sha256(image).hexdigest()
    manifest = json.dumps([{"Config": f"{digest}.json", "RepoTags": [options.tag], "Layers": ["layer.tar"]}]).encode()
    partial = f"{options.output}.{os.getpid()}"
    with tarfile.open(partial, "w") as tar:
        for path, content in ((f"{digest}.json", image), ("layer.tar", layer), ("manifest.json", manifest)):
            entry = tarfile.TarInfo(path)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    os.replace(partial, options.output)


main()
