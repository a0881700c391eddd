// Packages: an executable written to a folder and loaded again.
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

#include "running.h"

using selftest::aborts_with;
using selftest::Pool;

namespace {

NSURL* url_of(const std::filesystem::path& folder) {
  return [NSURL fileURLWithPath:[NSString stringWithUTF8String:folder.c_str()] isDirectory:YES];
}

/// A folder that goes with the object.
struct Folder {
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "packageXXXXXX").string();
    path = mkdtemp(name.data());
  }
  ~Folder() { std::filesystem::remove_all(path); }
  std::filesystem::path path;
};

/// y = x * w - x of two feeds of one type, and s, the sum of y; written as a package.
void write(const std::filesystem::path& folder) {
  const Pool pool;
  MPSGraph* const graph = [[[MPSGraph alloc] init] autorelease];
  const auto placeholder = [&] {
    return [graph placeholderWithShape:@[ @2 ] dataType:MPSDataTypeFloat32 name:nil];
  };
  MPSGraphTensor* const x = placeholder();
  MPSGraphTensor* const w = placeholder();
  MPSGraphTensor* const product = [graph multiplicationWithPrimaryTensor:x
                                                         secondaryTensor:w
                                                                    name:nil];
  MPSGraphTensor* const y = [graph subtractionWithPrimaryTensor:product secondaryTensor:x name:nil];
  MPSGraphTensor* const sum = [graph reductionSumWithTensor:y axes:@[ @0 ] name:nil];
  MPSGraphShapedType* const two =
      [[[MPSGraphShapedType alloc] initWithShape:@[ @2 ] dataType:MPSDataTypeFloat32] autorelease];
  MPSGraphExecutable* const executable =
      [graph compileWithDevice:[MPSGraphDevice deviceWithMTLDevice:selftest::device()]
                          feeds:@{x : two, w : two}
                  targetTensors:@[ y, sum ]
               targetOperations:nil
          compilationDescriptor:nil];
  // The order that the double gives: the reverse of creation.
  CHECK([[executable feedTensors] objectAtIndex:0] == w);
  CHECK([[executable targetTensors] objectAtIndex:0] == sum);
  [executable serializeToMPSGraphPackageAtURL:url_of(folder) descriptor:nil];
}

MPSGraphExecutable* load(const std::filesystem::path& folder) {
  return [[[MPSGraphExecutable alloc] initWithMPSGraphPackageAtURL:url_of(folder)
                                             compilationDescriptor:nil] autorelease];
}

/// The two results as floats, feeds and results given in that order.
std::vector<float> results_of(MPSGraphExecutable* executable, std::vector<float> first,
                              std::vector<float> second, bool sum_first) {
  const auto data = [](const std::vector<float>& values) {
    id<MTLBuffer> const buffer =
        [[selftest::device() newBufferWithBytes:values.data()
                                         length:values.size() * sizeof(float)
                                        options:MTLResourceStorageModeShared] autorelease];
    NSArray* const shape = @[ [NSNumber numberWithUnsignedLong:values.size()] ];
    MPSGraphTensorData* const made =
        [[[MPSGraphTensorData alloc] initWithMTLBuffer:buffer
                                                 shape:shape
                                              dataType:MPSDataTypeFloat32] autorelease];
    return std::pair(made, buffer);
  };
  const auto [sum, sum_buffer] = data({0});
  const auto [y, y_buffer] = data({0, 0});
  id<MTLCommandQueue> const queue = [[selftest::device() newCommandQueue] autorelease];
  [executable runWithMTLCommandQueue:queue
                         inputsArray:@[ data(first).first, data(second).first ]
                        resultsArray:sum_first ? @[ sum, y ] : @[ y, sum ]
                 executionDescriptor:nil];
  const auto* values = static_cast<const float*>([y_buffer contents]);
  return {values[0], values[1], *static_cast<const float*>([sum_buffer contents])};
}

void test_round_trip() {
  const Pool pool;
  const Folder folder;
  const long compilations = metalhost_num_compilations();
  const long loads = metalhost_num_package_loads();
  write(folder.path / "it.mpsgraphpackage");
  CHECK(metalhost_num_compilations() == compilations + 1);
  MPSGraphExecutable* const executable = load(folder.path / "it.mpsgraphpackage");
  CHECK(metalhost_num_compilations() == compilations + 1);
  CHECK(metalhost_num_package_loads() == loads + 1);
  CHECK([executable feedTensors] == nil);
  CHECK([executable targetTensors] == nil);
  // w = (10, 20) first, then x = (1, 2): y = (9, 38).
  CHECK((results_of(executable, {10, 20}, {1, 2}, true) == std::vector<float>{9, 38, 47}));
}

void test_another_order() {
  const Pool pool;
  const Folder folder;
  write(folder.path / "it.mpsgraphpackage");
  metalhost_rearrange_packages(1);
  MPSGraphExecutable* const executable = load(folder.path / "it.mpsgraphpackage");
  metalhost_rearrange_packages(0);
  CHECK((results_of(executable, {1, 2}, {10, 20}, false) == std::vector<float>{9, 38, 47}));
  CHECK(aborts_with("Invalid shape for resultsArray at index 0", ^{
    results_of(executable, {1, 2}, {10, 20}, true);
  }));
}

void truncate(const std::filesystem::path& file, int by) {
  std::filesystem::resize_file(file, std::filesystem::file_size(file) - by);
}

void test_damage_ends_the_process() {
  const Folder folder;
  const std::filesystem::path package = folder.path / "it.mpsgraphpackage";
  write(package);
  truncate(package / "model_0.mpsgraph", 3);
  CHECK(aborts_with("MPSGraphPackage.mm", ^{
    load(package);
  }));
  std::filesystem::remove(package / "model_0.mpsgraph");
  CHECK(aborts_with("cannot open model_0.mpsgraph", ^{
    load(package);
  }));
  CHECK(aborts_with("cannot open manifest.plist", ^{
    load(folder.path / "none.mpsgraphpackage");
  }));
}

void test_a_folder_that_cannot_be_written_says_nothing() {
  const Folder folder;
  std::ofstream(folder.path / "file") << "x";
  write(folder.path / "file" / "it.mpsgraphpackage");
  CHECK(!std::filesystem::exists(folder.path / "file" / "it.mpsgraphpackage"));
}

}  // namespace

int main() {
  test_round_trip();
  test_another_order();
  test_damage_ends_the_process();
  test_a_folder_that_cannot_be_written_says_nothing();
  return selftest::failures() == 0 ? 0 : 1;
}
