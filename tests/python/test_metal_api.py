"""The double's headers and the Metal backend against the facts on Apple's API."""

import shutil
from pathlib import Path

import metal_api
import pytest
from metal_api import HOST, ROOT, Facts

BACKEND = ROOT / "csrc" / "backends" / "metal"
SOURCES = sorted(BACKEND.rglob("*.mm"))
INCLUDE = HOST / "include"
GRAPH = "MetalPerformanceShadersGraph"

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def facts() -> Facts:
    return Facts()


def test_headers_are_as_apples(facts: Facts, tmp_path: Path) -> None:
    found = metal_api.read_declarations(INCLUDE, tmp_path)
    assert len(found.owners["MPSGraph"].members) > 150
    assert found.constants["MPSDataTypeBFloat16"].value == 0x90000010
    assert "MTLCreateSystemDefaultDevice" in found.functions
    assert metal_api.compare_declarations(found, facts) == []


PLANTED_DECLARATIONS = {
    "selector": (
        f"{GRAPH}/MPSGraphArithmeticOps.h",
        "squareRootWithTensor:",
        "rootWithTensor:",
        "MPSGraph has no -rootWithTensor:name:",
    ),
    "parameter": (
        f"{GRAPH}/MPSGraphReductionOps.h",
        "axis:(NSInteger)axis",
        "axis:(NSUInteger)axis",
        "types ('MPSGraphTensor*_Nonnull', 'MPSGraphTensor*_Nonnull', 'NSUInteger'",
    ),
    "nullability": (
        f"{GRAPH}/MPSGraphTensorShapeOps.h",
        "withShape:(MPSShape*)shape",
        "withShape:(MPSShape* _Nullable)shape",
        "'NSArray<NSNumber*>*_Nullable'",
    ),
    "result": (
        "Metal/Metal.h",
        "- (BOOL)supportsFamily:",
        "- (NSUInteger)supportsFamily:",
        "MTLDevice -supportsFamily:: types ('NSUInteger', 'MTLGPUFamily')",
    ),
    "property": (
        "Metal/Metal.h",
        "@property(readonly) NSUInteger length;",
        "@property NSUInteger length;",
        "MTLBuffer @length: attributes [], Apple has ['readonly']",
    ),
    "value": (
        f"{GRAPH}/MPSGraphGatherScatterOps.h",
        "MPSGraphScatterModeSet = 6",
        "MPSGraphScatterModeSet = 5",
        "MPSGraphScatterModeSet is 5 of NSInteger, Apple has 6 of NSInteger",
    ),
    "underlying type": (
        "MetalPerformanceShaders/MetalPerformanceShaders.h",
        "NS_ENUM(uint32_t, MPSDataType)",
        "NS_ENUM(int64_t, MPSDataType)",
        "of int64_t, Apple has",
    ),
    "availability": (
        f"{GRAPH}/MPSGraphArithmeticOps.h",
        "API_AVAILABLE(macos(15.0))",
        "API_AVAILABLE(macos(14.4))",
        "availability (14, 4), Apple has (15, 0)",
    ),
    "missing availability": (
        f"{GRAPH}/MPSGraphTensorShapeOps.h",
        "API_AVAILABLE(macos(14.4))",
        "",
        "availability (), Apple has (14, 4)",
    ),
    "superclass": (
        f"{GRAPH}/MPSGraphCore.h",
        "@interface MPSGraphShapedType : MPSGraphType",
        "@interface MPSGraphShapedType : MPSGraphObject",
        "MPSGraphShapedType derives from MPSGraphObject, Apple has MPSGraphType",
    ),
}


@pytest.mark.parametrize("name", PLANTED_DECLARATIONS)
def test_a_wrong_declaration_is_seen(name: str, facts: Facts, tmp_path: Path) -> None:
    header, old, new, expected = PLANTED_DECLARATIONS[name]
    include = tmp_path / "include"
    shutil.copytree(INCLUDE, include)
    text = (include / header).read_text()
    assert old in text
    (include / header).write_text(text.replace(old, new))
    found = metal_api.read_declarations(include, tmp_path)
    wrong = metal_api.compare_declarations(found, facts)
    assert any(expected in line for line in wrong), wrong


def test_the_backend_has_sources() -> None:
    assert SOURCES or not BACKEND.exists()


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: str(path.relative_to(BACKEND)))
def test_backend_uses_what_apple_has(source: Path, facts: Facts) -> None:
    uses = metal_api.read_uses(source, INCLUDE, ROOT / "csrc")
    assert metal_api.compare_uses(uses, facts) == []


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: str(path.relative_to(BACKEND)))
def test_backend_compiles_for_macos(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "backend.o"
    assert metal_api.compile_object(source, target, INCLUDE, ROOT / "csrc") == ""
    assert target.read_bytes()[:8] == b"\xcf\xfa\xed\xfe\x0c\x00\x00\x01"  # Mach-O, 64 bit, arm64


PLANTED_SOURCE = """\
@protocol Unknown
- (MPSGraphTensor*)inventedWithTensor:(MPSGraphTensor*)x;
@end
@interface MPSGraph (Unknown) <Unknown>
@end
namespace lucid {
MPSGraphTensor* planted(MPSGraph* graph, MPSGraphTensor* x);
MPSGraphTensor* planted(MPSGraph* graph, MPSGraphTensor* x) {
  (void)graph;
  BODY
}
}  // namespace lucid
"""
PLANTED_USES = {
    "wrong selector": (
        "return [graph squareRooteWithTensor:x name:nil];",
        None,
        "instance method '-squareRooteWithTensor:name:' not found",
    ),
    "unknown to Apple": (
        "return [graph inventedWithTensor:x];",
        ["MPSGraph has no -inventedWithTensor:"],
        "",
    ),
    "too new": (
        "return [graph reciprocalSquareRootWithTensor:x name:nil];",
        ["MPSGraph -reciprocalSquareRootWithTensor:name: needs macOS 15.0"],
        "only available on macOS 15.0 or newer",
    ),
    "guarded": (
        "if (@available(macOS 15.0, *)) return [graph reciprocalSquareRootWithTensor:x name:nil];\n"
        "  return [graph squareRootWithTensor:x name:nil];",
        [],
        "",
    ),
    "guarded too low": (
        "if (@available(macOS 14.4, *)) return [graph reciprocalSquareRootWithTensor:x name:nil];\n"
        "  return [graph squareRootWithTensor:x name:nil];",
        [],
        "only available on macOS 15.0 or newer",
    ),
    "wrong type": (
        "return [graph softMaxWithTensor:x axis:@1 name:nil];",
        None,
        "cannot initialize a parameter of type 'NSInteger'",
    ),
    "unknown protocol": (
        "return [(id<Unknown>)graph inventedWithTensor:x];",
        ["-inventedWithTensor: goes to 'Unknown'"],
        "",
    ),
    "untyped": (
        "id object = graph; return [object squareWithTensor:x name:nil];",
        ["-squareWithTensor:name: goes to 'id'"],
        "",
    ),
    "constant": (
        "return MPSGraphScatterModeSet == 6 ? x : nil;",
        [],
        "",
    ),
}


@pytest.mark.parametrize("name", PLANTED_USES)
def test_a_wrong_use_is_seen(name: str, facts: Facts, tmp_path: Path) -> None:
    body, expected, compiler_text = PLANTED_USES[name]
    source = tmp_path / "planted.mm"
    source.write_text(metal_api.UMBRELLA + PLANTED_SOURCE.replace("BODY", body))
    if expected is not None:
        uses = metal_api.read_uses(source, INCLUDE, ROOT / "csrc")
        assert uses
        found = [line.partition(": ")[2] for line in metal_api.compare_uses(uses, facts)]
        assert found == expected
    said = metal_api.compile_object(source, tmp_path / "planted.o", INCLUDE, ROOT / "csrc")
    assert compiler_text in said
    assert bool(said) == bool(compiler_text), said
