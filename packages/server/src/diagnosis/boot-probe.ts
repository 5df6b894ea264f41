/** Boots the guest kernel once, with the accelerator that the service uses or would choose, until the agent answers. */
import { chmodSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { pino } from 'pino';
import { z } from 'zod';
import type { Config } from '../config/config.ts';
import { Accelerator } from '../lib/runner-protocol.ts';
import { bootOnce, findKvmObstacle } from '../runner/vmm/accelerator.ts';
import { hostBootId } from '../runner/vmm/host-process.ts';
import { measureTscKhz } from '../runner/vmm/host-tsc.ts';
import { expectRanges } from '../runner/host-ranges/host-ranges.ts';
import { Jail } from '../runner/confinement/jail.ts';
import { MachineStore } from '../runner/machine/machine-store.ts';
import { Qemu } from '../runner/vmm/qemu.ts';
import { SharedAccount } from '../runner/vmm/vm-accounts.ts';
import { makeProbeDirectory, removeLeftDirectories } from './leftovers.ts';

/** A guest answers in half a second with KVM, in four under emulation on a machine that is not busy. */
const TIMEOUT_MS: Record<Accelerator, number> = { kvm: 3000, tcg: 11_000 };
const Cached = z.object({ accelerator: Accelerator, reason: z.string(), boot_id: z.string() });

export interface BootProbe {
  accelerator: Accelerator;
  reason: string;
  boot_ms: number;
  tsc_khz: number;
}

export async function probeBoot(config: Config, signal: AbortSignal): Promise<BootProbe> {
  const tscKhz = await measureTscKhz();
  const { accelerator, reason } = readChosen(config) ?? (await chooseHere(config, tscKhz, signal));
  const bootMs = await boot(config, { accelerator, tscKhz, signal });
  return { accelerator, reason, boot_ms: Math.round(bootMs), tsc_khz: tscKhz };
}

interface Choice {
  accelerator: Accelerator;
  reason: string;
}

/** What the service found in this boot of the host. */
function readChosen(config: Config): Choice | undefined {
  try {
    const path = join(config.runner.dataDir, 'accelerator.json');
    const cached = Cached.parse(JSON.parse(readFileSync(path, 'utf8')));
    return cached.boot_id === hostBootId() ? cached : undefined;
  } catch {
    return undefined;
  }
}

async function chooseHere(config: Config, tscKhz: number, signal: AbortSignal): Promise<Choice> {
  const obstacle = findKvmObstacle();
  if (obstacle !== undefined) return { accelerator: 'tcg', reason: obstacle };
  try {
    await boot(config, { accelerator: 'kvm', tscKhz, signal });
    return { accelerator: 'kvm', reason: 'a kernel booted with KVM' };
  } catch (error) {
    const said = error instanceof Error ? error.message.split('\n')[0] : String(error);
    return { accelerator: 'tcg', reason: `/dev/kvm is there, but no kernel boots with it: ${said}` };
  }
}

async function boot(
  config: Config,
  how: { accelerator: Accelerator; tscKhz: number; signal: AbortSignal },
): Promise<number> {
  const { accelerator, tscKhz, signal } = how;
  const { tools, installationDir, ranges } = config.runner;
  const own = process.getuid?.() ?? 0;
  const uid = own === 0 ? expectRanges(installationDir, ranges).uidBase : own;
  await removeLeftDirectories((path) => new SharedAccount(uid, [join(path, 'vm')]));
  const root = makeProbeDirectory();
  // The VM's own user has to pass through to the directory that is its own.
  chmodSync(root, 0o711);
  const log = pino({ level: 'silent' });
  try {
    const jail = await Jail.open({ launcherPath: tools.jail, uid, log });
    const confinement = jail.confinement.kind;
    const machines = await MachineStore.open({ directory: join(root, 'machines'), tools, confinement, log });
    const vmm = new Qemu({ jail, tscKhz }, log);
    const started = performance.now();
    const directory = join(root, 'vm');
    const timeoutMs = TIMEOUT_MS[accelerator];
    await bootOnce({ vmm, machine: machines.current, directory, uid, accelerator, timeoutMs, signal });
    return performance.now() - started;
  } finally {
    rmSync(root, { recursive: true, force: true });
  }
}
