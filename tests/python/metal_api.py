"""Clang's view of Objective-C declarations and uses, compared with the facts on Apple's API.

Clang is the one inside the `ziglang` package: it reads the headers of the test double as a compiler
for macOS would. What is compared is its syntax tree, never text.
"""

from __future__ import annotations

import functools
import importlib.util
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
HOST = ROOT / "tests" / "metalhost"
FACTS = HOST / "api.json"
ZIG_VERSION = "0.17.1"
MIN_MACOS = (14, 0)  # what the backend needs at least
UMBRELLA = """\
#import <Metal/Metal.h>
#import <MetalPerformanceShadersGraph/MetalPerformanceShadersGraph.h>
"""
# What zig gives its own libc++ on the command line.
LIBCXX_DEFINES = (
    "_LIBCPP_ABI_VERSION=1",
    "_LIBCPP_ABI_NAMESPACE=__1",
    "_LIBCPP_HAS_THREADS=1",
    "_LIBCPP_HAS_MONOTONIC_CLOCK",
    "_LIBCPP_HAS_TERMINAL",
    "_LIBCPP_HAS_MUSL_LIBC=0",
    "_LIBCPP_HAS_VENDOR_AVAILABILITY_ANNOTATIONS=0",
    "_LIBCPP_HAS_FILESYSTEM=1",
    "_LIBCPP_HAS_RANDOM_DEVICE",
    "_LIBCPP_HAS_LOCALIZATION",
    "_LIBCPP_HAS_UNICODE",
    "_LIBCPP_HAS_WIDE_CHARACTERS",
    "_LIBCPP_HARDENING_MODE=_LIBCPP_HARDENING_MODE_NONE",
    "_LIBCPP_ASSERTION_SEMANTIC_DEFAULT=_LIBCPP_ASSERTION_SEMANTIC_IGNORE",
)

Node = dict[str, Any]
Version = tuple[int, ...]


@functools.cache
def zig() -> list[str]:
    """The command that starts zig, which is installed into this environment where it lacks."""
    if importlib.util.find_spec("ziglang") is None:
        start = time.perf_counter()
        package = f"ziglang=={ZIG_VERSION}"
        install = [sys.executable, "-m", "pip", "install", "-q", package]
        subprocess.run(install, check=True)
        print(f"installed {package} in {time.perf_counter() - start:.0f} s")
        importlib.invalidate_caches()
    return [sys.executable, "-m", "ziglang"]


def zig_library() -> Path:
    """The folder of headers inside the package."""
    zig()
    spec = importlib.util.find_spec("ziglang")
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).parent / "lib"


def language_flags(include: Path, csrc: Path) -> list[str]:
    """Flags of Objective-C++ for macOS against the double's declarations."""
    return [
        *("-x", "objective-c++", "-std=c++20", "-fblocks", "-fno-objc-arc"),
        *(f"-I{HOST / 'darwin'}", f"-I{include}", f"-I{csrc}"),
    ]


def compile_object(source: Path, target: Path, include: Path, csrc: Path) -> str:
    """Compiles for arm64 macOS with warnings as errors; what the compiler said if it failed."""
    command = [
        *(*zig(), "c++", "-target", f"aarch64-macos.{MIN_MACOS[0]}.{MIN_MACOS[1]}"),
        *language_flags(include, csrc),
        *("-O1", "-fno-sanitize=undefined", "-Wall", "-Wextra", "-Werror"),
        *("-Wunguarded-availability", "-c", str(source), "-o", str(target)),
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    return done.stderr if done.returncode else ""


def dump_trees(source: Path, include: Path, csrc: Path, match: str) -> list[Node]:
    """Clang's trees of the declarations whose qualified name contains `match`."""
    library = zig_library()
    folders = ("libcxx/include", "include", "libc/include/any-darwin-any")
    command = [
        *(*zig(), "clang", f"--target=arm64-apple-macos{MIN_MACOS[0]}.{MIN_MACOS[1]}"),
        *language_flags(include, csrc),
        *("-w", "-nostdinc++", "-nostdlibinc", "-fsyntax-only"),
        *(f"-D{define}" for define in LIBCXX_DEFINES),
        *(f"-isystem{library / folder}" for folder in folders),
        *("-Xclang", "-ast-dump=json", "-Xclang", f"-ast-dump-filter={match}", str(source)),
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{source.name} does not compile: {done.stderr[:4000]}")
    trees: list[Node] = []
    decoder, at = json.JSONDecoder(), 0
    while (at := done.stdout.find("{", at)) >= 0:
        tree, at = decoder.raw_decode(done.stdout, at)
        trees.append(tree)
    place_files(trees)
    return trees


def place_files(trees: list[Node]) -> None:
    """Gives every location its file: clang names a file only where it changes."""
    current = ""

    def walk(value: Any) -> None:
        nonlocal current
        if isinstance(value, list):
            for each in value:
                walk(each)
        if not isinstance(value, dict):
            return
        current = value.get("file", current)
        if "offset" in value:
            value["file"] = current
        for key, each in value.items():
            if key != "includedFrom":
                walk(each)

    walk(trees)


def nodes_of(node: Node) -> Iterator[Node]:
    """The node and all below it."""
    yield node
    for child in node.get("inner", ()):
        yield from nodes_of(child)


def place_of(node: Node) -> str:
    """File and line of a node, as far as clang repeats them."""
    begin = node.get("range", {}).get("begin", {})
    begin = begin.get("expansionLoc", begin)
    path = Path(begin.get("file", "?"))
    if not path.is_file() or "offset" not in begin:
        return path.name
    line = path.read_bytes()[: begin["offset"]].count(b"\n") + 1
    return f"{path.name}:{line}"


def version_of(text: str | None) -> Version:
    """(14, 4) of "14.4"; () of nothing."""
    return tuple(int(part) for part in text.split(".")) if text else ()


# Spellings of one type.
ALIASES = {
    "MPSShape": "NSArray<NSNumber *>",
    "KeyType<NSCopying>": "id<NSCopying>",
    "NS_RETURNS_RETAINED": "",
}
NULLABILITIES = ("_Nonnull", "_Nullable")


def plain_type(text: str) -> str:
    """One spelling of a type: no blanks, aliases replaced, nullability last and of the whole."""
    for alias, meaning in ALIASES.items():
        text = text.replace(alias, meaning)
    text = "".join(text.split())
    own = next((word for word in NULLABILITIES if text.endswith(word)), "")
    own = next((word for word in NULLABILITIES if f"(^{word})" in text), own)
    for word in NULLABILITIES:
        text = text.replace(word, "")
    return text + own


def same_type(found: str, expected: str) -> bool:
    """Equal; where the facts do not know a nullability, up to it."""
    if expected.endswith(NULLABILITIES):
        return found == expected
    return found.removesuffix("_Nonnull").removesuffix("_Nullable") == expected


@dataclass
class Member:
    """A method ("-name:", "+name:") or a property ("@name") as declared."""

    types: tuple[str, ...]  # what it returns or holds, then its parameters
    since: Version  # of its API_AVAILABLE; () without
    place: str
    attributes: frozenset[str] = frozenset()
    is_deprecated: bool = False


@dataclass
class Owner:
    """A class or protocol as declared."""

    parent: str | None = None
    protocols: list[str] = field(default_factory=list)
    members: dict[str, Member] = field(default_factory=dict)


@dataclass
class Constant:
    """An enum's constant as declared."""

    value: int
    underlying: str | None  # None: the enum has no name and its typedef tells
    since: Version
    place: str


@dataclass
class Declarations:
    """All that the headers declare."""

    owners: dict[str, Owner] = field(default_factory=dict)
    constants: dict[str, Constant] = field(default_factory=dict)
    functions: dict[str, tuple[str, str]] = field(default_factory=dict)  # type, place
    typedefs: dict[str, tuple[str, str]] = field(default_factory=dict)  # type, place


def annotation_of(node: Node) -> tuple[Version, bool]:
    """The version of the node's API_AVAILABLE or API_DEPRECATED, and whether it is the latter.

    The tree tells where the annotation stands, but not what it says: its text is read there.
    """
    for child in node.get("inner", ()):
        if child["kind"] != "AvailabilityAttr":
            continue
        start = child["range"]["begin"]["expansionLoc"]
        text = Path(start["file"]).read_bytes()[start["offset"] :].decode()
        name, _, rest = text.partition("(")
        numbers = rest.partition("macos(")[2].partition(")")[0]
        return version_of(numbers.partition(",")[0]), name == "API_DEPRECATED"
    return (), False


# `assign` is left out: clang also shows it where it is not written.
PROPERTY_ATTRIBUTES = frozenset(("readonly", "copy", "retain", "nonatomic", "weak"))


def member_of(node: Node) -> tuple[str, Member] | None:
    """Name and facts of a method or property; None for what is neither or was made by clang."""
    if node.get("isImplicit"):
        return None
    since, is_deprecated = annotation_of(node)
    if node["kind"] == "ObjCPropertyDecl":
        attributes = {name for name in PROPERTY_ATTRIBUTES if node.get(name)}
        member = Member((plain_type(node["type"]["qualType"]),), since, place_of(node))
        member.attributes = frozenset(attributes)
        return "@" + node["name"], member
    if node["kind"] != "ObjCMethodDecl":
        return None
    types = [node["returnType"]["qualType"]]
    for child in node.get("inner", ()):
        if child["kind"] == "ParmVarDecl" and not child.get("isImplicit"):
            types.append(child["type"]["qualType"])
    sign = "-" if node.get("instance") else "+"
    plain = tuple(plain_type(text) for text in types)
    return sign + node["name"], Member(plain, since, place_of(node), is_deprecated=is_deprecated)


def constant_of(node: Node, underlying: str | None, otherwise: int) -> Constant:
    """An enum's constant; `otherwise` is its value where none is written."""
    values = [int(each["value"]) for each in nodes_of(node) if each.get("kind") == "ConstantExpr"]
    value = values[0] if values else otherwise
    return Constant(value, underlying, annotation_of(node)[0], place_of(node))


def constants_of(node: Node) -> Iterator[tuple[str, Constant]]:
    """The constants of an enum."""
    underlying = node.get("fixedUnderlyingType", {}).get("qualType", "int")
    following = 0
    for child in node.get("inner", ()):
        if child["kind"] == "EnumConstantDecl":
            constant = constant_of(child, underlying, following)
            following = constant.value + 1
            yield child["name"], constant


def header_trees(source: Path, include: Path) -> Iterator[Node]:
    """The trees of the headers alone, where csrc plays no part."""
    for match in ("MTL", "MPS", "NS"):
        yield from dump_trees(source, include, include, match)


def read_declarations(include: Path, scratch: Path) -> Declarations:
    """What the headers below `include`, and the double's Foundation, declare."""
    source = scratch / "declarations.mm"
    source.write_text(UMBRELLA)
    found = Declarations()
    roots = (str(include), str(HOST / "darwin"))
    for tree in header_trees(source, include):
        loc = tree.get("loc", {})
        loc = loc.get("expansionLoc", loc)
        if not loc.get("file", "").startswith(roots):
            continue
        kind = tree["kind"]
        if kind == "EnumDecl":
            found.constants.update(constants_of(tree))
        elif kind == "EnumConstantDecl":  # of an enum without a name, else inside its EnumDecl
            found.constants.setdefault(tree["name"], constant_of(tree, None, 0))
        elif kind in ("FunctionDecl", "TypedefDecl"):
            kept = found.functions if kind == "FunctionDecl" else found.typedefs
            kept[tree["name"]] = (tree["type"]["qualType"], place_of(tree))
        elif kind == "ObjCInterfaceDecl" and "name" not in tree.get("super", {}):
            continue  # @class
        elif kind in ("ObjCInterfaceDecl", "ObjCProtocolDecl", "ObjCCategoryDecl"):
            name = tree["interface"]["name"] if kind == "ObjCCategoryDecl" else tree["name"]
            owner = found.owners.setdefault(name, Owner())
            if "super" in tree:
                owner.parent = tree["super"]["name"]
            owner.protocols += [each["name"] for each in tree.get("protocols", ())]
            members = map(member_of, tree.get("inner", ()))
            owner.members.update(member for member in members if member)
    return found


class Facts:
    """What is known of Apple's API."""

    def __init__(self, path: Path = FACTS) -> None:
        content = json.loads(path.read_text())
        self.classes: dict[str, Any] = content["classes"]
        self.functions: dict[str, Any] = content["functions"]
        self.typedefs: dict[str, str] = content["typedefs"]
        self.enums: dict[str, str] = {}
        self.constants: dict[str, tuple[int, str, Version]] = {}
        for enum_name, enum in content["enums"].items():
            self.enums[enum_name] = enum["underlying"]
            for name, (value, *since) in enum["values"].items():
                version = version_of(since[0] if since else None)
                self.constants[name] = (value, enum["underlying"], version)

    def owners_of(self, name: str) -> Iterator[str]:
        """The class or protocol and all that it derives from; NSObject last."""
        pending = [name]
        while pending:
            current = pending.pop(0)
            if current not in self.classes:
                continue
            yield current
            facts = self.classes[current]
            pending += [*filter(None, [facts["super"]]), *facts["protocols"]]
        yield "NSObject"

    def find(self, owner: str, member: str) -> dict[str, Any] | None:
        """A method or property of an owner or of what it derives from."""
        for name in self.owners_of(owner):
            kind, key = ("properties", member[1:]) if member[0] == "@" else ("methods", member)
            if key in self.classes[name][kind]:
                found: dict[str, Any] = self.classes[name][kind][key]
                return found
        return None


def needed(since: Version) -> Version:
    """The annotation that a declaration of this age must carry; () for none."""
    return since if since > MIN_MACOS else ()


def fact_types(fact: dict[str, Any]) -> tuple[str, ...]:
    """Types in the order of Member.types."""
    if "type" in fact:
        return (plain_type(fact["type"]),)
    return tuple(plain_type(text) for text in (fact["returns"], *fact["params"]))


def compare_member(owner: str, name: str, member: Member, fact: dict[str, Any]) -> Iterator[str]:
    """What is wrong with one declared method or property."""
    where = f"{member.place}: {owner} {name}"
    expected = fact_types(fact)
    if len(member.types) != len(expected) or not all(map(same_type, member.types, expected)):
        yield f"{where}: types {member.types}, Apple has {expected}"
    since = version_of(fact.get("since"))
    if member.is_deprecated != ("deprecated" in fact and name[0] != "@"):
        yield f"{where}: deprecation differs, Apple has {fact.get('deprecated')}"
    elif not member.is_deprecated and member.since != needed(since):
        yield f"{where}: availability {member.since}, Apple has {since}"
    if name[0] == "@":
        attributes = PROPERTY_ATTRIBUTES.intersection(fact["attributes"])
        attributes |= {"readonly"} if fact.get("readonly") else set()
        if member.attributes != attributes:
            yield f"{where}: attributes {sorted(member.attributes)}, Apple has {sorted(attributes)}"


def compare_owners(found: Declarations, facts: Facts) -> Iterator[str]:
    """What is wrong with the declared classes and protocols."""
    for name, owner in found.owners.items():
        known = facts.classes.get(name)
        if known is None:
            yield f"{name} is no class or protocol of Apple's"
            continue
        if name != "NSObject" and owner.parent != known["super"]:
            yield f"{name} derives from {owner.parent}, Apple has {known['super']}"
        for protocol in owner.protocols:
            if protocol not in known["protocols"] and not name.startswith("NS"):
                yield f"{name} conforms to {protocol}, Apple's to {known['protocols']}"
        for member_name, member in owner.members.items():
            fact = facts.find(name, member_name)
            if fact is None:
                yield f"{member.place}: {name} has no {member_name}"
            else:
                yield from compare_member(name, member_name, member, fact)


def compare_constants(found: Declarations, facts: Facts) -> Iterator[str]:
    """What is wrong with the declared enums."""
    for name, constant in found.constants.items():
        if name not in facts.constants:
            yield f"{constant.place}: {name} is no constant of Apple's"
            continue
        value, underlying, since = facts.constants[name]
        if (constant.value, constant.underlying or underlying) != (value, underlying):
            yield (
                f"{constant.place}: {name} is {constant.value} of {constant.underlying}, "
                f"Apple has {value} of {underlying}"
            )
        if constant.since != needed(since):
            yield f"{constant.place}: {name}: availability {constant.since}, Apple has {since}"


def compare_declarations(found: Declarations, facts: Facts) -> list[str]:
    """One line for each declaration that Apple does not have, or has otherwise."""
    wrong = [*compare_owners(found, facts), *compare_constants(found, facts)]
    for name, (text, place) in found.functions.items():
        fact = facts.functions.get(name)
        if fact is None:
            wrong.append(f"{place}: {name} is no function of Apple's")
            continue
        returns, _, parameters = text.rpartition("(")
        types = (returns, *filter(None, parameters.rstrip(")").split(",")))
        if tuple(map(plain_type, types)) != fact_types(fact):
            wrong.append(f"{place}: {name} has type {text}")
    for name, (text, place) in found.typedefs.items():
        expected = facts.enums.get(name) or facts.typedefs.get(name)
        if expected and plain_type(text) not in (plain_type(expected), f"enum{name}"):
            wrong.append(f"{place}: {name} is {text}, Apple has {expected}")
    return wrong


@dataclass(frozen=True)
class Use:
    """What a source sends, names or calls."""

    owner: str  # class or protocol of a message; "" for constants and functions
    name: str  # "-selector", "+selector", a constant or a function
    place: str
    is_guarded: bool  # inside an `if (@available(...))`


def receiver_of(node: Node) -> str:
    """The class or protocol that a message goes to; "" where clang does not know."""
    if node["receiverKind"] == "class":
        return str(node["classType"]["qualType"])
    kind = node["receiverKind"]
    if kind != "instance":
        return ""
    text = plain_type(node["inner"][0]["type"].get("desugaredQualType") or type_text(node))
    for word in ("_Nonnull", "_Nullable", "const", "__strong", "*"):
        text = text.replace(word, "")
    if text.startswith("id<"):
        return text[3:].partition(">")[0]
    return text.partition("<")[0]


def type_text(message: Node) -> str:
    """The type of a message's receiver as written."""
    return str(message["inner"][0]["type"]["qualType"])


def is_availability_check(node: Node) -> bool:
    """Whether a condition is `@available`; clang honours no other form."""
    while node.get("kind") in ("ParenExpr", "ImplicitCastExpr"):
        node = node["inner"][0]
    return node.get("kind") == "ObjCAvailabilityCheckExpr"


def uses_below(node: Node, is_guarded: bool) -> Iterator[tuple[Node, bool]]:
    """Every node with whether it stands in the first branch of an availability check."""
    yield node, is_guarded
    children = node.get("inner", [])
    condition = sum(bool(node.get(key)) for key in ("hasInit", "hasVar"))
    checks = node.get("kind") == "IfStmt" and is_availability_check(children[condition])
    for position, child in enumerate(children):
        yield from uses_below(child, is_guarded or (checks and position == condition + 1))


def read_uses(source: Path, include: Path, csrc: Path, match: str = "lucid") -> list[Use]:
    """The messages, constants and functions of Apple's that a source uses."""
    uses: list[Use] = []
    for tree in dump_trees(source, include, csrc, match):
        for node, is_guarded in uses_below(tree, False):
            if node.get("kind") == "ObjCMessageExpr":
                sign = "+" if node["receiverKind"] == "class" else "-"
                selector = sign + node["selector"]
                uses.append(Use(receiver_of(node), selector, place_of(node), is_guarded))
            elif node.get("kind") == "DeclRefExpr":
                target = node.get("referencedDecl", {})
                is_apples = str(target.get("name", "")).startswith(("MTL", "MPS", "NS"))
                if is_apples and target["kind"] in ("EnumConstantDecl", "FunctionDecl"):
                    uses.append(Use("", target["name"], place_of(node), is_guarded))
    return uses


# In a template the receiver is a type parameter; these are all that may be sent to one.
OWNERSHIP = ("-retain", "-release", "-autorelease")


def compare_uses(uses: Sequence[Use], facts: Facts) -> list[str]:
    """One line for each use that Apple's API does not have, or has only since a later macOS."""
    wrong: list[str] = []
    for use in uses:
        fact: dict[str, Any] | None
        if use.name[0] in "+-":
            if use.owner not in facts.classes:
                if use.name not in OWNERSHIP:
                    wrong.append(f"{use.place}: {use.name} goes to '{use.owner}'")
                continue
            fact = facts.find(use.owner, use.name)
        elif use.name in facts.constants:
            since = facts.constants[use.name][2]
            fact = {"since": ".".join(map(str, since))} if since else {}
        else:
            fact = facts.functions.get(use.name)
        if fact is None:
            wrong.append(f"{use.place}: {use.owner} has no {use.name}")
        elif needed(version_of(fact.get("since"))) and not use.is_guarded:
            wrong.append(f"{use.place}: {use.owner} {use.name} needs macOS {fact['since']}")
    return wrong
