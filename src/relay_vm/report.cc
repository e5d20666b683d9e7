#include "relay_vm/report.h"

#include <dmlc/json.h>

#include <sstream>

namespace dtr::relay_vm {
namespace {

struct HolderReport {
  uint64_t bytes;
  int pinned;
  uint32_t locks;
  std::string name;

  void Save(dmlc::JSONWriter* writer) const {
    writer->BeginObject(false);
    writer->WriteObjectKeyValue("name", name);
    writer->WriteObjectKeyValue("bytes", bytes);
    writer->WriteObjectKeyValue("pinned", pinned);
    writer->WriteObjectKeyValue("locks", locks);
    writer->EndObject();
  }
};

// Writes one JSON object, its fields by `fields(writer)`.
template <typename Fields>
std::string Json(Fields fields) {
  std::ostringstream out;
  out.precision(17);
  dmlc::JSONWriter writer(&out);
  writer.BeginObject();
  fields(&writer);
  writer.EndObject();
  return out.str();
}

}  // namespace

std::string BudgetMessage(const BudgetError& error, const std::string& kernel) {
  std::ostringstream out;
  if (error.short_bytes == 0) {
    out << "BudgetError: " << error.requested_bytes << " bytes do not fit "
        << (kernel.empty() ? "beside what is held" : "at " + kernel)
        << " and nothing is left to evict: of the memory budget of " << error.budget_bytes
        << " bytes enough is free, but scattered, the largest run of " << error.largest_free_bytes
        << " bytes; use the paged arena, or a budget of " << error.needed_budget_bytes << " bytes";
    return out.str();
  }
  out << "BudgetError: the memory budget of " << error.budget_bytes << " bytes is "
      << error.short_bytes << " bytes too small "
      << (kernel.empty() ? "for what is held" : "at " + kernel)
      << " and nothing is left to evict; the smallest budget that passes this point is "
      << error.needed_budget_bytes << " bytes";
  return out.str();
}

std::string DescribeError(const BudgetError& error, const TensorName& name,
                          const std::string& kernel) {
  std::vector<HolderReport> holders;
  for (const Holder& h : error.holders) {
    holders.push_back(
        {h.bytes, h.pinned, h.locks, h.tensor == kNone ? "op at hand" : name(h.tensor)});
  }
  return Json([&](dmlc::JSONWriter* writer) {
    writer->WriteObjectKeyValue("kind", std::string("BudgetError"));
    writer->WriteObjectKeyValue("message", BudgetMessage(error, kernel));
    writer->WriteObjectKeyValue("op", kernel);
    writer->WriteObjectKeyValue("budget_bytes", error.budget_bytes);
    writer->WriteObjectKeyValue("requested_bytes", error.requested_bytes);
    writer->WriteObjectKeyValue("short_bytes", error.short_bytes);
    writer->WriteObjectKeyValue("needed_budget_bytes", error.needed_budget_bytes);
    writer->WriteObjectKeyValue("holders", holders);
  });
}

std::string DescribeError(const ThrashError& error) {
  return Json([&](dmlc::JSONWriter* writer) {
    writer->WriteObjectKeyValue("kind", std::string("ThrashError"));
    writer->WriteObjectKeyValue("message", std::string(error.what()));
    writer->WriteObjectKeyValue("compute_cost", error.compute_cost);
    writer->WriteObjectKeyValue("remat_cost", error.remat_cost);
    writer->WriteObjectKeyValue("limit", error.limit);
  });
}

std::string DescribeError(const std::string& kind, const std::string& message) {
  return Json([&](dmlc::JSONWriter* writer) {
    writer->WriteObjectKeyValue("kind", kind);
    writer->WriteObjectKeyValue("message", message);
  });
}

void ThrowError(const std::string& kind, const std::string& message) {
  throw CallerError(kind + ": " + message, DescribeError(kind, message));
}

std::string NumbersJson(const std::vector<std::pair<const char*, double>>& seconds,
                        const std::vector<std::pair<const char*, uint64_t>>& counts) {
  return Json([&](dmlc::JSONWriter* writer) {
    for (const auto& [key, value] : seconds) writer->WriteObjectKeyValue(key, value);
    for (const auto& [key, value] : counts) writer->WriteObjectKeyValue(key, value);
  });
}

}  // namespace dtr::relay_vm
