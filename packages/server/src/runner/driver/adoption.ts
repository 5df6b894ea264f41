/**
 * What an earlier runner process left: VMs that still run are driven on, the others are ended and reported, and no
 * VMM of ours is left that nobody drives.
 *
 *   record ─► running, its process alive, its slot kept ─► driven on
 *        └──► else ─► its process killed ─► its end, in the background
 *   no record ─► a stray: killed
 */
import { readdirSync, rmSync } from 'node:fs';
import type { Logger } from 'pino';
import { findVmRecord, type VmRecord } from '../adopt/vm-record.ts';
import { hostBootId, killAndWait } from '../vmm/host-process.ts';
import type { VmHandle } from '../vmm/vmm.ts';
import { enterStep } from './steps.ts';
import type { AssemblyParts, VmAssembler } from './vm-assembly.ts';
import type { VmDriver } from './vm-driver.ts';

export interface AdoptionParts extends Pick<
  AssemblyParts,
  'vmm' | 'network' | 'accounts' | 'cgroups' | 'vmsDirectory'
> {
  assembler: VmAssembler;
  /** The driver of a VM that has a record, found by its sandbox's id from now on. */
  openDriver: (unit: string, record: VmRecord) => VmDriver;
  onAdopted: (unit: string, record: VmRecord) => void;
  /** Units of all VMs that have a driver. */
  listUnits: () => string[];
  log: Logger;
}

export async function adoptVms(parts: AdoptionParts): Promise<void> {
  // At once: one whose QEMU does not answer must not keep the others, and the service, waiting.
  const units = readdirSync(parts.vmsDirectory);
  const adopted = new Set(await Promise.all(units.map((unit) => adopt(parts, unit))));
  await enterStep('adopt.strays');
  for (const stray of parts.accounts.listAllVmms()) {
    if (adopted.has(stray.pid)) continue;
    parts.log.warn({ pid: stray.pid }, 'ending a VMM that no record names');
    await killAndWait(stray);
  }
  parts.network.sweepUnadopted();
  parts.cgroups.sweep(new Set(parts.listUnits()));
}

/** Process id of the VM if it runs on. */
async function adopt(parts: AdoptionParts, unit: string): Promise<number | undefined> {
  const { assembler, log } = parts;
  const directory = assembler.directoryOf(unit);
  const record = findVmRecord(directory);
  if (record === undefined) {
    rmSync(directory, { recursive: true, force: true });
    return undefined;
  }
  const driver = parts.openDriver(unit, record);
  assembler.registerRelease(driver, record.cgroups);
  const vm = await connect(parts, unit, record);
  if (vm === undefined) {
    // By its identity: the uid may be another VM's by now. One that no record names yet is a stray.
    if (record.process !== null && record.host_boot_id === hostBootId()) await killAndWait(record.process);
    endLeftover(driver, record, log);
    return undefined;
  }
  driver.adopt(vm, record.generation);
  parts.onAdopted(unit, record);
  log.info({ vm: record.info.id, unit, pid: vm.identity.pid }, 'VM adopted');
  return vm.identity.pid;
}

/** A warm VM belongs to nobody, and one whose create was cut off has no caller any more: neither is kept. */
async function connect(
  { vmm, network, assembler, log }: AdoptionParts,
  unit: string,
  record: VmRecord,
): Promise<VmHandle | undefined> {
  const isOver = record.info.state !== 'running' || record.end !== undefined;
  if (isOver || record.process === null || record.host_boot_id !== hostBootId()) return undefined;
  try {
    await enterStep('adopt.slot');
    network.adopt(unit, record.slot);
    await enterStep('adopt.connect');
    return await vmm.adopt(record.process, assembler.socketsOf(unit));
  } catch (error) {
    log.warn({ vm: record.info.id, unit, err: error }, 'VM cannot be adopted');
    return undefined;
  }
}

/** In the background: one that cannot be ended now (a full disk) must not keep the service from starting. */
function endLeftover(driver: VmDriver, record: VmRecord, log: Logger): void {
  const ending = record.end === undefined ? driver.end('vmm_lost') : driver.finishEnd(record.end);
  ending.catch((error: unknown) => {
    log.error({ err: error, unit: driver.unit }, 'what is left of a VM is not ended yet');
  });
}
