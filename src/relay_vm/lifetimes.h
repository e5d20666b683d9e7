// Which registers an instruction of an executable may still find full.
#ifndef TVM_DTR_RELAY_VM_LIFETIMES_H_
#define TVM_DTR_RELAY_VM_LIFETIMES_H_

#include <tvm/runtime/vm/executable.h>

namespace dtr::relay_vm {

// Turns each kill_register whose register is read later into a jump to the next instruction, and
// returns how many there were. relay.vm.compile writes such kills into one branch of an if or a
// match for values that are read behind it; the stock VM then reads an empty register and hands out
// a null. What such a value keeps in memory is let go of when its function returns. Functions
// without branches are left alone: O(instructions).
size_t RepairLifetimes(tvm::runtime::vm::Executable* executable);

}  // namespace dtr::relay_vm

#endif  // TVM_DTR_RELAY_VM_LIFETIMES_H_
