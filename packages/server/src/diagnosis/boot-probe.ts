/** Boots the guest kernel, with KVM if that works and the settings allow it, until the agent answers. */
import { chmodSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { pino } from 'pino';
import type { Config } from '../config/config.ts';
import type { Accelerator } from '../lib/protocol/runner-protocol.ts';
import { bootOnce, type BootPlace } from '../runner/accelerator/boot-once.ts';
import { bootWithKvm } from '../runner/accelerator/boot-with-kvm.ts';
import { findKvmObstacle, tryKvm, type KvmFinding } from '../runner/accelerator/kvm-probe.ts';
import { expectRanges } from '../runner/host-ranges/host-ranges.ts';
import { measureTscKhz } from '../runner/host/host-tsc.ts';
import { openVmm } from '../runner/open-vmm.ts';
import { SharedAccount } from '../runner/confinement/vm-accounts.ts';
import { makeProbeDirectory, removeLeftDirectories } from './leftovers.ts';

/** On an idle machine a guest answers within half a second with KVM, and within four seconds under emulation. */
const TIMEOUT_MS: Record<Accelerator, number> = { kvm: 3000, tcg: 11_000 };

export type BootProbe =
  | { accelerator: Accelerator; reason: string; boot_ms: number; tsc_khz: number }
  /** The service would not start; `refusal` is the reason. */
  | { refusal: string; remedy?: string };

/** Probes again, independently of what the service has found. */
export async function probeBoot(config: Config, signal: AbortSignal): Promise<BootProbe> {
  const { accelerator: mode } = config.runner;
  const tscKhz = await measureTscKhz(config.runner.tools.hostctl);
  const kvm = mode === 'tcg' ? undefined : await tryKvmHere(config, tscKhz, signal);
  if (kvm?.outcome === 'works')
    return {
      accelerator: 'kvm',
      reason: 'a kernel booted with KVM',
      boot_ms: Math.round(kvm.bootMs),
      tsc_khz: tscKhz,
    };
  if (kvm?.outcome === 'unfit')
    return {
      refusal: `COPPICE_CPU ${kvm.reason}`,
      remedy: 'set COPPICE_CPU to a lower level, or to host',
    };
  const reason = kvm?.reason ?? 'COPPICE_ACCELERATOR=tcg';
  if (mode === 'kvm') return { refusal: `COPPICE_ACCELERATOR=kvm, but ${reason}` };
  const { bootMs } = await timeBoot(config, tscKhz, (place) =>
    bootOnce({ ...place, accelerator: 'tcg', timeoutMs: TIMEOUT_MS.tcg, signal }),
  );
  return { accelerator: 'tcg', reason, boot_ms: Math.round(bootMs), tsc_khz: tscKhz };
}

export async function tryKvmHere(
  config: Config,
  tscKhz: number,
  signal: AbortSignal,
): Promise<KvmFinding & { bootMs: number }> {
  let bootMs = 0;
  const probe = {
    findObstacle: findKvmObstacle,
    boot: async (timeoutMs: number) => {
      const booted = await timeBoot(config, tscKhz, (place) =>
        bootWithKvm({ ...place, timeoutMs, signal }, config.runner.cpu),
      );
      bootMs = booted.bootMs;
      return booted.result;
    },
  };
  return { ...(await tryKvm(probe, TIMEOUT_MS.kvm, signal)), bootMs };
}

async function timeBoot<T>(
  config: Config,
  tscKhz: number,
  boot: (place: BootPlace) => Promise<T>,
): Promise<{ result: T; bootMs: number }> {
  const { tools, installationDir, ranges } = config.runner;
  const own = process.getuid?.() ?? 0;
  const uid = own === 0 ? expectRanges(installationDir, ranges).uidBase : own;
  await removeLeftDirectories((path) => new SharedAccount(uid, [join(path, 'vm')]));
  const root = makeProbeDirectory();
  // The VM's own user must be able to reach its directory below this one.
  chmodSync(root, 0o711);
  const log = pino({ level: 'silent' });
  try {
    const { vmm, machines } = await openVmm(
      { machinesDirectory: join(root, 'machines'), tools, uid, tscKhz },
      log,
    );
    const started = performance.now();
    const directory = join(root, 'vm');
    const result = await boot({ vmm, machine: machines.current.key, directory, uid });
    return { result, bootMs: performance.now() - started };
  } finally {
    rmSync(root, { recursive: true, force: true });
  }
}
