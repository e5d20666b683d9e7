// The file of events: what is in it, that it changes no decision, and what a failure leaves.
#include <cstdio>
#include <fstream>
#include <iterator>
#include <memory>

#include "check.h"
#include "core/event_trace.h"
#include "lab.h"

using dtr::EventTrace;
using dtr::TraceKind;
using dtr_test::Lab;

namespace {

constexpr size_t kRecord = 16;

struct TemporaryFile {
  std::string path = std::tmpnam(nullptr);
  ~TemporaryFile() { std::remove(path.c_str()); }
  std::string Read() const {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
};

// The kinds of the records after a header of one record's length.
std::vector<int> Kinds(const std::string& file) {
  std::vector<int> kinds;
  for (size_t at = kRecord; at + kRecord <= file.size(); at += kRecord)
    kinds.push_back(file[at + 4]);
  return kinds;
}

uint64_t Count(const std::string& file, TraceKind kind) {
  uint64_t count = 0;
  for (int found : Kinds(file)) count += found == static_cast<int>(kind);
  return count;
}

// A chain that needs six units in four.
void RunChain(Lab* lab) {
  std::vector<dtr::TensorId> made = {lab->Constant(1)};
  for (int i = 0; i < 6; ++i) made.push_back(lab->One("f" + std::to_string(i), {made.back()}));
  for (int i = 6; i > 0; --i) lab->runtime.Data(made[i]);
}

const std::string kHeader(kRecord, 'h');

}  // namespace

TEST(EveryDecisionIsInTheFile) {
  TemporaryFile file;
  Lab lab(4);
  auto trace = std::make_unique<EventTrace>(file.path, kHeader, &lab.runtime);
  lab.runtime.AddObserver(trace.get());
  RunChain(&lab);
  lab.runtime.RemoveObserver(trace.get());
  trace.reset();
  const std::string written = file.Read();
  const dtr::Stats& stats = lab.runtime.stats();
  EXPECT_EQ(written.substr(0, kRecord), kHeader);
  EXPECT(stats.evictions > 0 && stats.rematerializations > 0);
  EXPECT_EQ(Count(written, TraceKind::kCall), stats.calls);
  EXPECT_EQ(Count(written, TraceKind::kRecompute), stats.rematerializations);
  EXPECT_EQ(Count(written, TraceKind::kEvict), stats.evictions);
  EXPECT_EQ(Count(written, TraceKind::kDecision), stats.evictions);
  EXPECT_EQ(Count(written, TraceKind::kAllocate),
            1 + stats.calls + stats.rematerializations);  // the constant, then each output
}

TEST(TracingChangesNoDecision) {
  for (const std::string& policy : dtr::PolicyNames()) {
    Lab plain(4, policy), traced(4, policy);
    TemporaryFile file;
    EventTrace trace(file.path, kHeader, &traced.runtime);
    traced.runtime.AddObserver(&trace);
    RunChain(&plain);
    RunChain(&traced);
    EXPECT_EQ(plain.Trace(), traced.Trace());
    traced.runtime.RemoveObserver(&trace);
  }
}

TEST(WhatIsThereAlreadyComesFirst) {
  TemporaryFile file;
  Lab lab(4);
  dtr::TensorId constant = lab.Constant(1);
  lab.One("f", {constant});
  EventTrace trace(file.path, kHeader, &lab.runtime);
  trace.Flush();
  const std::string written = file.Read();
  EXPECT_EQ(Count(written, TraceKind::kStorage), 2u);
  EXPECT_EQ(Count(written, TraceKind::kAllocate), 2u);
  EXPECT_EQ(Count(written, TraceKind::kPin), 1u);
}

TEST(TheBufferIsBounded) {
  TemporaryFile file;
  Lab lab(4);
  EventTrace trace(file.path, kHeader, &lab.runtime);
  for (int i = 0; i < 100000; ++i) trace.OnSearch(1e-9);
  EXPECT(file.Read().size() > 90000 * kRecord);  // all but a buffer's worth, without a Flush
}

TEST(LargeValuesAndLongNotesAreKept) {
  TemporaryFile file;
  Lab lab(4);
  {
    EventTrace trace(file.path, kHeader, &lab.runtime);
    trace.OnBudget(uint64_t{300} << 30);
    trace.Note(std::string(kRecord + 1, 'n'));
  }
  const std::string written = file.Read();
  const size_t note = written.size() - 3 * kRecord;
  EXPECT_EQ(static_cast<int>(written[note + 4]), static_cast<int>(TraceKind::kNote));
  EXPECT_EQ(written.substr(note + kRecord), std::string(kRecord + 1, 'n') + std::string(15, ' '));
  EXPECT_EQ(static_cast<int>(written[note - kRecord + 4]), static_cast<int>(TraceKind::kCheck));
  EXPECT_EQ(static_cast<int>(written[note - 2 * kRecord + 5]), 300 >> 2);  // bits 32 to 39
}

TEST(AFileThatCannotBeWrittenIsNamed) {
  Lab lab(4);
  EXPECT_THROWS(EventTrace("/nowhere/trace", kHeader, &lab.runtime), std::runtime_error);
}

TEST(AFullDiskEndsTheTraceAndNotTheRun) {
  Lab lab(4);
  EventTrace trace("/dev/full", "", &lab.runtime);
  lab.runtime.AddObserver(&trace);
  RunChain(&lab);
  EXPECT(trace.Flush().find("/dev/full: No space left") != std::string::npos);
  lab.runtime.RemoveObserver(&trace);
}

TEST_MAIN()
