"""The commands behind the Makefile's targets."""

from __future__ import annotations

import argparse
import os
import sys

from . import chart, cluster, demo, install, packages, parts
from .messages import Problem, say
from .paths import KUBECONFIG


def main() -> int:
    # Programs such as ip and mkfs live in folders that a user's PATH often lacks.
    os.environ["PATH"] = os.environ.get("PATH", "") + ":/usr/local/sbin:/usr/sbin:/sbin"
    try:
        return _run(_parser().parse_args())
    except Problem as problem:
        say(f"\n{problem}")
        return 1
    except KeyboardInterrupt:
        say("\ninterrupted; `make down` removes what is there")
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python3 -m e2e.cluster", description="The test cluster.")
    commands = parser.add_subparsers(dest="command", required=True)
    up = commands.add_parser("up", help="start the cluster, or say that it is up")
    up.add_argument("--nodes", type=_optional_number, default=None)
    commands.add_parser("down", help="remove the cluster")
    commands.add_parser("install", help="build the image and install the chart").add_argument("helm", nargs="*")
    commands.add_parser("image", help="build the image and print the path of its archive")
    demo = commands.add_parser("demo", help="start a cluster, install moor, and show what it does")
    demo.add_argument("--nodes", type=_optional_number, default=None)
    demo.add_argument("helm", nargs="*")
    commands.add_parser("check-chart", help="lint the chart and try each of its values")
    commands.add_parser("print-bin", help="print the folder of the built programs")
    commands.add_parser("parts", help="build the programs, all or those named").add_argument("names", nargs="*")
    return parser


def _optional_number(text: str) -> int | None:
    if text and not text.isdigit():
        raise Problem(f"NODES={text} is not a number")
    return int(text) if text else None


def _run(arguments: argparse.Namespace) -> int:
    match arguments.command:
        case "up":
            cluster.up(arguments.nodes)
            print(KUBECONFIG)
        case "down":
            say("the cluster is gone" if cluster.down() else "there is no cluster")
        case "print-bin":
            print(parts.folder())
        case "parts":
            # What is built is for tests that need them too: file system tools, and ip for a namespace of their own.
            packages.require_root()
            packages.ensure()
            parts.ensure(arguments.names or None)
        case "install":
            install.install(arguments.helm)
        case "check-chart":
            chart.check()
        case "image":
            print(install.build_image().archive)
        case "demo":
            if install.foreign_kubeconfig() is None:
                cluster.up(arguments.nodes)
            install.install(arguments.helm)
            demo.main()
        case _:
            sys.exit(f"unknown command {arguments.command}")
    return 0
