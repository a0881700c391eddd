#include "package.h"

#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "recipe.h"

namespace metalhost {
namespace {

constexpr const char* kManifest = "manifest.plist";
constexpr const char* kModule = "model_0.mpsgraph";
const std::string kMagic = "metalhost graph 1";

using NodeRef = std::shared_ptr<Node>;

void put_values(Writer& writer, const std::vector<Value>& values,
                const std::map<const Node*, uint32_t>& place_of) {
  writer.put(static_cast<uint32_t>(values.size()));
  for (const Value& value : values) {
    writer.put(place_of.at(value.node.get()));
    writer.put(static_cast<uint32_t>(value.index));
  }
}

std::vector<Value> get_values(Reader& reader, const std::vector<NodeRef>& nodes) {
  std::vector<Value> values;
  for (auto left = reader.get<uint32_t>(); left > 0; --left) {
    const auto place = reader.get<uint32_t>();
    const auto index = reader.get<uint32_t>();
    if (place >= nodes.size() || index >= nodes[place]->op.outputs.size()) {
      fail_assertion("MPSGraphPackage.mm", "Error: an operand that does not exist");
    }
    values.push_back({nodes[place], index});
  }
  return values;
}

void write_file(const std::filesystem::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    fail_assertion("MPSGraphPackage.mm", "Error: cannot open " + path.filename().string());
  }
  return {std::istreambuf_iterator<char>(file), {}};
}

// Feeds become placeholders, whatever made them before.
void put_feeds(Writer& writer, const std::vector<Value>& feeds,
               std::map<const Node*, uint32_t>& place_of) {
  writer.put(static_cast<uint32_t>(feeds.size()));
  for (const Value& feed : feeds) {
    place_of.emplace(feed.node.get(), static_cast<uint32_t>(place_of.size()));
    writer.put(feed.type());
  }
}

}  // namespace

void write_package(const std::filesystem::path& folder, const Schedule& schedule) {
  Writer writer;
  writer.put(kMagic);
  std::map<const Node*, uint32_t> place_of;
  put_feeds(writer, schedule.feeds(), place_of);
  writer.put(static_cast<uint32_t>(schedule.nodes().size()));
  for (const NodeRef& node : schedule.nodes()) {
    writer.put(index_of(node->op.recipe.again));
    writer.put(node->op.recipe.arguments);
    put_values(writer, node->inputs, place_of);
    place_of.emplace(node.get(), static_cast<uint32_t>(place_of.size()));
  }
  put_values(writer, schedule.targets(), place_of);
  std::error_code failure;
  std::filesystem::create_directories(folder, failure);
  write_file(folder / kModule, writer.bytes());
  write_file(folder / kManifest, std::string(kModule) + "\n");
}

Schedule read_package(const std::filesystem::path& folder) {
  if (read_file(folder / kManifest) != std::string(kModule) + "\n") {
    fail_assertion("MPSGraphPackage.mm", "Error: the manifest names no module");
  }
  const std::string bytes = read_file(folder / kModule);
  Reader reader(bytes);
  if (reader.get<std::string>() != kMagic) {
    fail_assertion("MPSGraphPackage.mm", "Error: the module is of another kind");
  }
  std::vector<NodeRef> nodes;
  std::vector<Value> feeds;
  for (auto left = reader.get<uint32_t>(); left > 0; --left) {
    auto feed = std::make_shared<Node>();
    feed->op = {.name = "placeholder", .outputs = {reader.get<Type>()}, .evaluate = {}};
    nodes.push_back(feed);
    feeds.push_back({feed, 0});
  }
  for (auto left = reader.get<uint32_t>(); left > 0; --left) {
    auto node = std::make_shared<Node>();
    const MakeAgain again = make_again_at(reader.get<uint32_t>());
    const auto arguments = reader.get<std::string>();
    Reader call(arguments);
    node->op = again(call);
    node->inputs = get_values(reader, nodes);
    node->order = nodes.size();
    nodes.push_back(std::move(node));
  }
  const std::vector<Value> targets = get_values(reader, nodes);
  if (!reader.at_end()) fail_assertion("MPSGraphPackage.mm", "Error: bytes after the module's end");
  return {targets, feeds};
}

}  // namespace metalhost
