/**
 * Adopts the running VMs of an earlier runner process, ends and reports the others, and kills every VMM of this runner without
 * a driver.
 *
 *   record ─► running, its process alive, its slot kept ─► adopted; continued if it was being captured
 *        ├──► hibernated, or another VM has its sandbox now ─► ended without a report
 *        └──► else ─► its process is killed ─► it is ended in the background
 *   no record ─► a stray: killed
 */
import { readdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import type { Logger } from 'pino';
import { findVmRecord, type VmRecord } from '../vm/vm-record.ts';
import { hostBootId, killAndWait } from '../host/host-process.ts';
import type { OverlayChain } from '../disk/overlay-chain.ts';
import { thaw } from '../snapshot/take-capture.ts';
import type { VmHandle } from '../vm/vmm.ts';
import { enterStep } from '../vm/steps.ts';
import type { AssemblyParts, VmAssembler } from './vm-assembly.ts';
import type { VmDriver } from './vm-driver.ts';
import { readEgressRecord } from './vm-egress.ts';

export interface AdoptionParts extends Pick<
  AssemblyParts,
  'vmm' | 'network' | 'accounts' | 'cgroups' | 'workspaces' | 'vmsDirectory' | 'socketsDirectory'
> {
  assembler: VmAssembler;
  /** Opens the driver of a VM with a record. From then on the VM is found by its sandbox's id. */
  openDriver: (unit: string, record: VmRecord) => VmDriver;
  onAdopted: (unit: string, record: VmRecord) => void;
  /** Whether the hibernation with this id is complete. */
  hasCapture: (id: string) => boolean;
  /** Names of all VM instances with a driver. */
  listUnits: () => string[];
  log: Logger;
}

export async function adoptVms(parts: AdoptionParts): Promise<void> {
  // In parallel: a VM whose VMM does not answer must not delay the others and the service.
  const units = readdirSync(parts.vmsDirectory);
  const records = units.map((unit) => findVmRecord(parts.assembler.directoryOf(unit).path));
  const superseded = findSuperseded(records);
  const adoptions = await Promise.all(
    units.map((unit, index) => adopt(parts, { unit, record: records[index], superseded })),
  );
  const adopted = new Set(adoptions.map(({ pid }) => pid));
  await enterStep('adopt.strays');
  for (const stray of parts.accounts.listAllVmms()) {
    if (adopted.has(stray.pid)) continue;
    parts.log.warn({ pid: stray.pid }, 'ending a VMM that no record names');
    await killAndWait(stray);
  }
  // Only after the strays are killed: one of them may still write to the files that are removed here.
  parts.workspaces.leaveUnadopted({ superseded, live: new Set(parts.listUnits()) });
  for (const { endLeftover } of adoptions) endLeftover?.();
  sweepSockets(parts);
  parts.network.sweepUnadopted();
  parts.cgroups.sweep(new Set(parts.listUnits()));
}

/** The result for one VM: it keeps running as process `pid`, or `endLeftover` ends it in the background. */
interface Adoption {
  pid?: number;
  endLeftover?: () => void;
}

interface Found {
  unit: string;
  record: VmRecord | undefined;
  superseded: ReadonlySet<string>;
}

async function adopt(parts: AdoptionParts, { unit, record, superseded }: Found): Promise<Adoption> {
  const { assembler, log } = parts;
  if (record === undefined) {
    rmSync(assembler.directoryOf(unit).path, { recursive: true, force: true });
    return {};
  }
  const { hibernating } = record;
  const isHibernated = hibernating !== undefined && parts.hasCapture(hibernating);
  const isElsewhere = isHibernated || superseded.has(unit) || record.retired;
  const driver = parts.openDriver(unit, { ...record, retired: isElsewhere });
  assembler.registerRelease(driver, record.cgroups);
  const vm = isElsewhere ? undefined : await connect(parts, unit, record);
  if (vm === undefined) {
    // Kill by process identity, as the uid may now belong to another VM. A process that no record names is a stray.
    if (record.process !== null && record.host_boot_id === hostBootId()) await killAndWait(record.process);
    return { endLeftover: () => endLeftover(driver, { ...record, retired: isElsewhere }, log) };
  }
  try {
    await assembler.adoptWorkspace(driver, vm.handle);
  } catch (error) {
    log.warn({ vm: record.info.id, unit, err: error }, 'the disk of a VM cannot be adopted');
    await vm.handle.kill();
    return { endLeftover: () => endLeftover(driver, record, log) };
  }
  driver.adopt(vm.handle, vm.chain);
  parts.onAdopted(unit, record);
  log.info({ vm: record.info.id, unit, pid: vm.handle.identity.pid }, 'VM adopted');
  if (record.capturing) continueSaved(driver, log);
  return { pid: vm.handle.identity.pid };
}

/** Removes socket directories without a driver: their VM's record was removed first. */
function sweepSockets({ socketsDirectory, listUnits }: AdoptionParts): void {
  const units = new Set(listUnits());
  for (const unit of readdirSync(socketsDirectory))
    if (!units.has(unit)) rmSync(join(socketsDirectory, unit), { recursive: true, force: true });
}

/** Continues, in the background, a guest that a killed runner was saving: its agent may answer slowly. */
function continueSaved(driver: VmDriver, log: Logger): void {
  const continued = driver.continueSaved(async () => {
    await driver.running.vm.start();
    await thaw(driver);
    await driver.tellTime();
  });
  continued.catch((error: unknown) => {
    log.error({ err: error, unit: driver.unit }, 'could not continue a VM that was being saved');
  });
}

/** Returns the names of VM instances whose sandbox another VM has taken over. */
function findSuperseded(records: readonly (VmRecord | undefined)[]): Set<string> {
  return new Set(
    records.flatMap((record) => (record?.info.state === 'running' ? (record.replaces ?? []) : [])),
  );
}

/**
 * Connects to a VM that keeps its sandbox. Returns undefined for a warm VM, which has no sandbox, and for one whose
 * create was interrupted, which no caller waits for.
 */
async function connect(
  { vmm, network, assembler, log }: AdoptionParts,
  unit: string,
  record: VmRecord,
): Promise<{ handle: VmHandle; chain: OverlayChain } | undefined> {
  const isOver = record.info.state !== 'running' || record.end !== undefined;
  if (isOver || record.process === null || record.host_boot_id !== hostBootId()) return undefined;
  try {
    await enterStep('adopt.slot');
    await network.adopt(unit, record.slot, { vmId: record.info.id, egress: readEgressRecord(record.egress) });
    await enterStep('adopt.connect');
    const { overlays } = assembler.directoryOf(unit);
    const directories = {
      sockets: assembler.socketsOf(unit),
      overlays,
      workspace: assembler.workspaceOf(unit),
    };
    const handle = await vmm.adopt(record.process, directories);
    return handle === undefined
      ? undefined
      : { handle, chain: await assembler.adoptDisk(unit, record, handle) };
  } catch (error) {
    log.warn({ vm: record.info.id, unit, err: error }, 'VM cannot be adopted');
    return undefined;
  }
}

/** Ends a VM in the background: one that cannot be ended now (a full disk) must not delay the start of the service. */
function endLeftover(driver: VmDriver, record: VmRecord, log: Logger): void {
  const ending = finish(driver, record);
  ending.catch((error: unknown) => {
    log.error({ err: error, unit: driver.unit }, 'a leftover VM is not ended yet');
  });
}

function finish(driver: VmDriver, record: VmRecord): Promise<unknown> {
  if (record.retired) return driver.retire();
  return record.end === undefined ? driver.end('vmm_lost') : driver.finishEnd(record.end);
}
