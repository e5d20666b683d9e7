"""Steps on measured costs under every policy, in a process whose clock is wrong."""

import steps

import tvm_dtr
from tvm_dtr import _core


def main() -> None:
    policies = sorted(_core.policies())
    for policy in policies:
        budget = steps.tight() * 5 // 4
        vm = tvm_dtr.VirtualMachine(
            steps.program(), memory_budget=budget, policy=policy, thrash_limit=0
        )
        vm.module["set_costs"](*steps.cost_table(-1.0))  # taken by the clock
        steps.check(vm, steps.state_after(vm))
    print(len(policies))


if __name__ == "__main__":
    main()
