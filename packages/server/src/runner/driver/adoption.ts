/**
 * What an earlier runner process left: VMs that still run are driven on, the others are ended and reported, and no
 * VMM of ours is left that nobody drives.
 *
 *   record ─► running, its process alive, its slot kept ─► driven on; out of a capture it is let go
 *        ├──► hibernated, or another VM has its sandbox now ─► ended, and nobody told
 *        └──► else ─► its process killed ─► its end, in the background
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
  'vmm' | 'network' | 'accounts' | 'cgroups' | 'vmsDirectory' | 'socketsDirectory'
> {
  assembler: VmAssembler;
  /** The driver of a VM that has a record, found by its sandbox's id from now on. */
  openDriver: (unit: string, record: VmRecord) => VmDriver;
  onAdopted: (unit: string, record: VmRecord) => void;
  /** Whether a hibernation is complete. */
  hasCapture: (id: string) => boolean;
  /** Units of all VMs that have a driver. */
  listUnits: () => string[];
  log: Logger;
}

export async function adoptVms(parts: AdoptionParts): Promise<void> {
  // At once: one whose QEMU does not answer must not keep the others, and the service, waiting.
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
  // Not before: a process that its record does not name yet writes to what is taken away here.
  for (const { endLeftover } of adoptions) endLeftover?.();
  sweepSockets(parts);
  parts.network.sweepUnadopted();
  parts.cgroups.sweep(new Set(parts.listUnits()));
}

/** What became of a VM: it runs on as that process, or this ends it in the background. */
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
    // By its identity: the uid may be another VM's by now. One that no record names yet is a stray.
    if (record.process !== null && record.host_boot_id === hostBootId()) await killAndWait(record.process);
    return { endLeftover: () => endLeftover(driver, { ...record, retired: isElsewhere }, log) };
  }
  driver.adopt(vm.handle, vm.chain);
  parts.onAdopted(unit, record);
  log.info({ vm: record.info.id, unit, pid: vm.handle.identity.pid }, 'VM adopted');
  if (record.capturing) letGo(driver, log);
  return { pid: vm.handle.identity.pid };
}

/** A directory whose VM's record went first has nobody who removes it. */
function sweepSockets({ socketsDirectory, listUnits }: AdoptionParts): void {
  const units = new Set(listUnits());
  for (const unit of readdirSync(socketsDirectory))
    if (!units.has(unit)) rmSync(join(socketsDirectory, unit), { recursive: true, force: true });
}

/** The process that saved the guest was killed meanwhile. In the background: an agent may be slow to answer. */
function letGo(driver: VmDriver, log: Logger): void {
  const letting = driver.letGo(async () => {
    await driver.running.vm.start();
    await thaw(driver);
    await driver.tellTime();
  });
  letting.catch((error: unknown) => {
    log.error({ err: error, unit: driver.unit }, 'a VM that was being saved does not go on');
  });
}

/** Units whose sandbox another VM has taken over. */
function findSuperseded(records: readonly (VmRecord | undefined)[]): Set<string> {
  return new Set(
    records.flatMap((record) => (record?.info.state === 'running' ? (record.replaces ?? []) : [])),
  );
}

/** A warm VM belongs to nobody, and one whose create was cut off has no caller any more: neither is kept. */
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
    const handle = await vmm.adopt(record.process, { sockets: assembler.socketsOf(unit), overlays });
    return handle === undefined
      ? undefined
      : { handle, chain: await assembler.adoptDisk(unit, record, handle) };
  } catch (error) {
    log.warn({ vm: record.info.id, unit, err: error }, 'VM cannot be adopted');
    return undefined;
  }
}

/** In the background: one that cannot be ended now (a full disk) must not keep the service from starting. */
function endLeftover(driver: VmDriver, record: VmRecord, log: Logger): void {
  const ending = finish(driver, record);
  ending.catch((error: unknown) => {
    log.error({ err: error, unit: driver.unit }, 'what is left of a VM is not ended yet');
  });
}

function finish(driver: VmDriver, record: VmRecord): Promise<unknown> {
  if (record.retired) return driver.retire();
  return record.end === undefined ? driver.end('vmm_lost') : driver.finishEnd(record.end);
}
