#include "backends/metal/metal_executable.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "backends/chain.h"
#include "backends/metal/gpu.h"
#include "backends/metal/philox_keys.h"
#include "backends/notices.h"

namespace lucid::metal {
namespace {

using backends::BufferRef;

/// Index `place` of an int32 or int64 buffer.
int64_t index_at(const void* data, DType dtype, int64_t place) {
  if (dtype == DType::kInt64) return static_cast<const int64_t*>(data)[place];
  return static_cast<const int32_t*>(data)[place];
}

Error out_of_range(const std::string& op, const std::string& what, int64_t size,
                   const ir::LocationRef& location) {
  return Error(ErrorKind::kIndex, with_location(op + ": index out of range: " + what +
                                                    " for size " + std::to_string(size),
                                                location));
}

/// What a compilation's handler, on any thread, has to say.
class CompilationFailure {
 public:
  void set(std::string text) {
    const std::scoped_lock lock(mutex_);
    text_ = std::move(text);
  }
  void rethrow() {
    const std::scoped_lock lock(mutex_);
    if (text_.empty()) return;
    throw Error(ErrorKind::kInternal, "metal: the graph did not compile: " + text_);
  }

 private:
  std::mutex mutex_;
  std::string text_;
};

Retained<MPSGraphCompilationDescriptor*> new_descriptor() {
  auto descriptor =
      Retained<MPSGraphCompilationDescriptor*>::adopt([MPSGraphCompilationDescriptor new]);
  // Level 1 may place work on the Neural Engine (PyTorch issue 104661).
  [descriptor.get() setOptimizationLevel:MPSGraphOptimizationLevel0];
  [descriptor.get() setWaitForCompilationCompletion:YES];
  return descriptor;
}

}  // namespace

struct MetalExecutable::Run {
  Submission submission;
  NSMutableArray<MPSGraphTensorData*>* inputs = [NSMutableArray array];
  NSMutableArray<MPSGraphTensorData*>* results = [NSMutableArray array];
  std::vector<MetalBufferRef> outputs;                  // by target; null for flags
  std::vector<std::pair<id<MTLBuffer>, size_t>> flags;  // what counts, and place among the flags

  void bind(NSMutableArray<MPSGraphTensorData*>* list, id<MTLBuffer> buffer, const ValueType& type,
            MPSDataType data_type) {
    auto data = Retained<MPSGraphTensorData*>::adopt([[MPSGraphTensorData alloc]
        initWithMTLBuffer:buffer
                    shape:mps_shape(type.shape)
                 dataType:data_type]);
    if (!data) throw Error(ErrorKind::kInternal, "metal: a buffer could not be bound");
    [list addObject:data.get()];
  }

  /// A block of the run's own with these bytes.
  id<MTLBuffer> staged(const void* bytes, int64_t size) {
    submission.lent.push_back(lend(size));
    id<MTLBuffer> block = submission.lent.back().get();
    if (size > 0) std::memcpy([block contents], bytes, static_cast<size_t>(size));
    return block;
  }
};

MetalExecutable::MetalExecutable(const ir::Graph& graph, const LoweringOptions& options,
                                 const backends::DiskCache* disk) {
  for (const ir::Input& input : graph.inputs()) {
    memory_.inputs += graph.type(input.value).size_bytes();
  }
  for (const ir::ValueId output : graph.outputs()) {
    memory_.outputs += graph.type(output).size_bytes();
  }
  memory_.arena_peak = backends::least_chain_bytes(graph);
  if (graph.nodes().size() == 1 && graph.nodes()[0].op->is(ir::kRandom)) {
    offset_attr_ = graph.nodes()[0].op->attr_index("offset");
  }
  Lowered lowered;
  {
    const std::scoped_lock building(Gpu::get().mutex());
    lowered = guarded("metal: compile", [&] { return build(graph, options); });
  }
  if (lowered.targets.empty()) return;
  std::optional<backends::DiskCache::Key> key;
  if (disk != nullptr) {
    key = disk_key(graph, options);
    if (load(*disk, *key)) return;
  }
  ArgumentOrder order;
  {
    const std::scoped_lock building(Gpu::get().mutex());
    order = guarded("metal: compile", [&] { return compile(lowered); });
  }
  arrange(order);
  if (disk != nullptr) store(*disk, *key, order);
}

MetalExecutable::Lowered MetalExecutable::build(const ir::Graph& graph,
                                                const LoweringOptions& options) {
  graph_ = Retained<MPSGraph*>::adopt([MPSGraph new]);
  if (!graph_) throw Error(ErrorKind::kInternal, "metal: no graph was made");
  Lowering lowering(graph_.get(), graph, options);
  lowering.run();
  Lowered lowered;
  add_targets(graph, lowering, lowered);
  checks_ = lowering.checks();
  host_feeds_ = lowering.host_feeds();
  add_feeds(graph, lowering, lowered);
  return lowered;
}

void MetalExecutable::add_targets(const ir::Graph& graph, const Lowering& lowering,
                                  Lowered& lowered) {
  std::unordered_map<const void*, int> target_of;
  for (const ir::ValueId output : graph.outputs()) {
    Tensor tensor = lowering.tensor(output);
    if (graph.type(output).num_elements() == 0) {
      output_target_.push_back(-1);
      continue;
    }
    const bool is_input =
        std::ranges::find(lowering.placeholders(), tensor) != lowering.placeholders().end();
    if (is_input) tensor = [graph_.get() identityWithTensor:tensor name:nil];
    const auto [it, is_new] = target_of.emplace(tensor, static_cast<int>(lowered.targets.size()));
    output_target_.push_back(it->second);
    if (!is_new) continue;
    lowered.targets.push_back(tensor);
    targets_.push_back({graph.type(output), -1});
  }
  for (const IndexFlag& flag : lowering.flags()) {
    lowered.targets.push_back(flag.count);
    targets_.push_back({{DType::kInt32, Shape{1}}, static_cast<int>(flags_.size())});
    flags_.push_back({flag.op, flag.size, flag.location});
  }
}

void MetalExecutable::add_feeds(const ir::Graph& graph, const Lowering& lowering,
                                Lowered& lowered) {
  const auto add = [&](Feed feed, Tensor placeholder) {
    feed.data_type = [placeholder dataType];
    feeds_.push_back(std::move(feed));
    lowered.feeds.push_back(placeholder);
  };
  for (size_t i = 0; i < lowering.placeholders().size(); ++i) {
    Tensor placeholder = lowering.placeholders()[i];
    if (placeholder == nil) continue;
    add({false, i, graph.type(graph.inputs()[i].value), {}}, placeholder);
  }
  for (size_t i = 0; i < host_feeds_.size(); ++i) {
    const bool is_keys = host_feeds_[i].kind == HostFeed::Kind::kPhiloxKeys;
    const ValueType keys{DType::kInt32, Shape{22}};
    add({true, i, is_keys ? keys : host_feeds_[i].type, {}}, host_feeds_[i].placeholder);
  }
}

// The executable lists its feeds and targets in an order of its own: they are found by identity.
ArgumentOrder MetalExecutable::compile(const Lowered& lowered) {
  NSMutableDictionary* types = [NSMutableDictionary dictionary];
  for (size_t i = 0; i < feeds_.size(); ++i) {
    auto type = Retained<MPSGraphShapedType*>::adopt([[MPSGraphShapedType alloc]
        initWithShape:mps_shape(feeds_[i].type.shape)
             dataType:feeds_[i].data_type]);
    [types setObject:type.get() forKey:lowered.feeds[i]];
  }
  NSMutableArray<MPSGraphTensor*>* list = [NSMutableArray arrayWithCapacity:lowered.targets.size()];
  for (Tensor target : lowered.targets) [list addObject:target];
  auto descriptor = new_descriptor();
  // The handler's error is the only report of a compilation that failed.
  auto failure = std::make_shared<CompilationFailure>();
  [descriptor.get() setCompilationCompletionHandler:^(MPSGraphExecutable*, NSError* error) {
    if (error != nil) failure->set(text_of([error localizedDescription]));
  }];
  executable_ =
      Retained<MPSGraphExecutable*>::share([graph_.get() compileWithDevice:Gpu::get().graph_device()
                                                                     feeds:types
                                                             targetTensors:list
                                                          targetOperations:nil
                                                     compilationDescriptor:descriptor.get()]);
  failure->rethrow();
  if (!executable_) throw Error(ErrorKind::kInternal, "metal: the graph did not compile");
  [executable_.get() setOptions:MPSGraphOptionsNone];
  const auto places = [](NSArray<MPSGraphTensor*>* tensors, const std::vector<Tensor>& known) {
    std::vector<size_t> result;
    for (MPSGraphTensor* tensor in tensors) {
      const auto place = std::ranges::find(known, tensor) - known.begin();
      result.push_back(static_cast<size_t>(place));
    }
    return result;
  };
  return {places([executable_.get() feedTensors], lowered.feeds),
          places([executable_.get() targetTensors], lowered.targets)};
}

void MetalExecutable::arrange(const ArgumentOrder& order) {
  std::vector<Feed> feeds;
  for (const size_t place : order.feeds) feeds.push_back(feeds_.at(place));
  std::vector<Target> targets;
  std::vector<int> moved(targets_.size(), -1);
  for (const size_t place : order.targets) {
    moved.at(place) = static_cast<int>(targets.size());
    targets.push_back(targets_[place]);
  }
  feeds_ = std::move(feeds);
  targets_ = std::move(targets);
  for (int& target : output_target_) {
    if (target >= 0) target = moved[static_cast<size_t>(target)];
  }
}

bool MetalExecutable::load(const backends::DiskCache& disk, const backends::DiskCache::Key& key) {
  const auto candidate = disk.find(key);
  if (candidate == nullptr) return false;
  const auto notes = parse_notes(candidate->notes(), feeds_.size(), targets_.size());
  if (!notes) {
    candidate->reject("its notes are of another graph");
    return false;
  }
  const auto before = std::tuple(feeds_, targets_, output_target_);
  std::string reason = "it gives other results than when it was stored";
  try {
    const std::scoped_lock building(Gpu::get().mutex());
    executable_ = guarded("metal: load",
                          [&] { return read_package(candidate->files(), new_descriptor().get()); });
    [executable_.get() setOptions:MPSGraphOptionsNone];
    arrange(notes->order);
    is_loaded_ = bool(executable_);
  } catch (const Error& error) {
    reason = error.what();
  }
  try {
    is_loaded_ = is_loaded_ && agree(try_out(notes->order), notes->samples);
  } catch (const Error& error) {
    is_loaded_ = false;
    reason = error.what();
  }
  if (is_loaded_) {
    graph_ = {};
    candidate->accept();
    return true;
  }
  std::tie(feeds_, targets_, output_target_) = before;
  candidate->reject(reason);
  return false;
}

void MetalExecutable::store(const backends::DiskCache& disk, const backends::DiskCache::Key& key,
                            const ArgumentOrder& order) const {
  try {
    const PackageNotes notes{order, try_out(order)};
    if (!tell_something(notes.samples)) return;  // nothing could prove a loaded one
    disk.store(key, [&](const std::filesystem::path& files) {
      const std::scoped_lock building(Gpu::get().mutex());
      guarded("metal: store", [&] { write_package(executable_.get(), files); });
      return to_text(notes);
    });
  } catch (const Error& error) {
    backends::notify(std::string("compile cache: an executable is not stored: ") + error.what());
  }
}

Samples MetalExecutable::try_out(const ArgumentOrder& order) const {
  return guarded("metal: trial", [&] {
    Run run;
    for (size_t i = 0; i < feeds_.size(); ++i) {
      const std::string bytes = made_up(feeds_[i].type, order.feeds[i]);
      id<MTLBuffer> block = run.staged(bytes.data(), static_cast<int64_t>(bytes.size()));
      run.bind(run.inputs, block, feeds_[i].type, feeds_[i].data_type);
    }
    Samples samples(targets_.size());
    std::vector<id<MTLBuffer>> results;
    for (const Target& target : targets_) {
      run.submission.lent.push_back(lend(target.type.size_bytes()));
      results.push_back(run.submission.lent.back().get());
      run.bind(run.results, results.back(), target.type, mps_type(target.type.dtype));
    }
    // Before the blocks go back to their pool.
    run.submission.check = [&]() -> std::optional<Error> {
      for (size_t i = 0; i < results.size(); ++i) {
        samples[order.targets[i]] = sampled([results[i] contents], targets_[i].type);
      }
      return std::nullopt;
    };
    run.outputs.push_back(allocate(0));  // what is waited for
    const MetalBufferRef done = run.outputs.back();
    submit(run);
    Stream::get().wait(*done);
    return samples;
  });
}

void MetalExecutable::check_indices(std::span<const BufferRef> inputs) const {
  for (const IndexCheck& check : checks_) {
    const void* data = inputs[check.input]->data();
    const int64_t count = inputs[check.input]->size_bytes() / size_bytes(check.dtype);
    for (int64_t i = 0; i < count; ++i) {
      const int64_t index = index_at(data, check.dtype, i);
      const int64_t low = check.wraps ? -check.size : 0;
      if ((index >= low && index < check.size) || index == check.allowed) continue;
      throw out_of_range(check.op, std::to_string(index), check.size, check.location);
    }
  }
}

void MetalExecutable::bind_input(Run& run, const Feed& feed, const BufferRef& buffer) const {
  const MPSDataType type = feed.data_type;
  if (buffer->device() != Device::kMetal) {
    run.bind(run.inputs, run.staged(buffer->data(), buffer->size_bytes()), feed.type, type);
    return;
  }
  auto metal_buffer = std::static_pointer_cast<MetalBuffer>(buffer);
  run.bind(run.inputs, metal_buffer->handle(), feed.type, type);
  run.submission.inputs.push_back(std::move(metal_buffer));
}

void MetalExecutable::bind_host_feed(Run& run, const Feed& feed, std::span<const BufferRef> inputs,
                                     const ir::Attrs* run_time_attrs) const {
  const HostFeed& host = host_feeds_[feed.place];
  const BufferRef& state = inputs[host.state_input];
  if (host.kind == HostFeed::Kind::kNumbers) {
    const auto made = host.executable->run({&state, 1}, run_time_attrs);
    run.bind(run.inputs, run.staged(made[0]->data(), made[0]->size_bytes()), feed.type,
             mps_type(feed.type.dtype));
    return;
  }
  const bool is_given = run_time_attrs != nullptr && offset_attr_ >= 0;
  const int64_t offset =
      is_given ? std::get<int64_t>((*run_time_attrs)[static_cast<size_t>(offset_attr_)])
               : host.offset;
  const auto* words = static_cast<const int64_t*>(state->data());
  const auto keys = philox_keys(static_cast<uint64_t>(words[0]),
                                static_cast<uint64_t>(words[1]) + static_cast<uint64_t>(offset));
  run.bind(run.inputs, run.staged(keys.data(), sizeof(keys)), feed.type, MPSDataTypeUInt32);
}

void MetalExecutable::bind_target(Run& run, const Target& target) const {
  if (target.flag >= 0) {
    const int32_t zero = 0;
    id<MTLBuffer> block = run.staged(&zero, sizeof(zero));
    run.bind(run.results, block, target.type, MPSDataTypeInt32);
    run.flags.emplace_back(block, static_cast<size_t>(target.flag));
    run.outputs.push_back(nullptr);
    return;
  }
  run.outputs.push_back(allocate(target.type.size_bytes()));
  run.bind(run.results, run.outputs.back()->handle(), target.type, mps_type(target.type.dtype));
}

// The blocks belong to the submission, which asks before it gives them back.
std::function<std::optional<Error>()> MetalExecutable::flag_check(const Run& run) const {
  auto counters = run.flags;
  std::ranges::sort(counters, {}, &std::pair<id<MTLBuffer>, size_t>::second);  // first node first
  return [counters, flags = flags_]() -> std::optional<Error> {
    for (const auto& [block, place] : counters) {
      int32_t count = 0;
      std::memcpy(&count, [block contents], sizeof(count));
      if (count == 0) continue;
      const Flag& flag = flags[place];
      return out_of_range(flag.op, std::to_string(count) + " indices", flag.size, flag.location);
    }
    return std::nullopt;
  };
}

void MetalExecutable::submit(Run& run) const {
  for (const auto& output : run.outputs) {
    if (output != nullptr) run.submission.outputs.push_back(output);
  }
  run.submission.objects.push_back(Retained<NSObject*>::share(graph_.get()));
  run.submission.objects.push_back(Retained<NSObject*>::share(executable_.get()));
  run.submission.objects.push_back(Retained<NSObject*>::share(run.inputs));
  run.submission.objects.push_back(Retained<NSObject*>::share(run.results));
  Stream::get().submit(std::move(run.submission), [&](MPSCommandBuffer* commands) {
    [executable_.get() encodeToCommandBuffer:commands
                                 inputsArray:run.inputs
                                resultsArray:run.results
                         executionDescriptor:nil];
  });
}

std::vector<BufferRef> MetalExecutable::run(std::span<const BufferRef> inputs,
                                            const ir::Attrs* run_time_attrs) const {
  check_indices(inputs);
  return guarded("metal: run", [&] {
    Run run;
    for (const Feed& feed : feeds_) {
      if (feed.is_host) {
        bind_host_feed(run, feed, inputs, run_time_attrs);
      } else {
        bind_input(run, feed, inputs[feed.place]);
      }
    }
    for (const Target& target : targets_) bind_target(run, target);
    std::vector<BufferRef> outputs;
    for (const int target : output_target_) {
      outputs.push_back(target < 0 ? allocate(0) : run.outputs[static_cast<size_t>(target)]);
    }
    if (targets_.empty()) return outputs;
    if (!run.flags.empty()) run.submission.check = flag_check(run);
    submit(run);
    for (const auto& output : run.outputs) {
      if (output != nullptr && !run.flags.empty()) Stream::get().wait(*output);
    }
    return outputs;
  });
}

}  // namespace lucid::metal
