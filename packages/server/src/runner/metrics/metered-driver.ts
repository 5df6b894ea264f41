/** Measures VMs through their drivers. */
import type { VmDriver } from '../driver/vm-driver.ts';
import type { VmRoster } from '../driver/vm-roster.ts';
import type { MeteredVm } from './metered-vm.ts';

/** Returns the VMs of all sandboxes, by the id of the sandbox. */
export function listMetered(vms: VmRoster): Map<string, MeteredVm> {
  return new Map([...vms.byId].map(([id, driver]) => [id, meterDriver(driver, vms)]));
}

export function findMetered(vms: VmRoster, id: string): MeteredVm | undefined {
  const driver = vms.byId.get(id);
  return driver && meterDriver(driver, vms);
}

function meterDriver(driver: VmDriver, vms: VmRoster): MeteredVm {
  return {
    unit: driver.unit,
    info: driver.info,
    isUp: driver.isUp,
    workspace: driver.workspace,
    isRetired: () => driver.isRetired,
    listOverlayPaths: () => {
      const directory = vms.directoryOf(driver);
      return driver.running.chain.numbers.map((number) => directory.overlay(number));
    },
    sampleUsage: () => driver.sampleUsage(),
    readBlockTraffic: () => driver.running.vm.readBlockTraffic(),
  };
}
