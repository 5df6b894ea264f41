/** The parts that the host has now to make a machine from, with their key and versions. */
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { runCommand } from '../../lib/process/run-command.ts';
import { surveyQemu, type QemuFiles } from '../confinement/qemu-closure.ts';
import type { RunnerTools } from '../runner-config.ts';
import { MACHINE_FORMAT, type MachineRecord } from './machine-record.ts';

const TOOL_TIMEOUT_MS = 30_000;
const KEY_LENGTH = 32;
const SHORT_DIGEST_LENGTH = 12;

export interface MachineParts {
  key: string;
  qemu: QemuFiles;
  kernel: Buffer;
  initramfs: Buffer;
  digests: MachineRecord['digests'];
}

export async function surveyMachine(
  tools: Pick<RunnerTools, 'qemu' | 'kernel' | 'initramfs'>,
): Promise<MachineParts> {
  const qemu = await surveyQemu(tools.qemu);
  // Each file is read once, so that the bytes that are hashed are the bytes that are written.
  const [kernel, initramfs] = [readFileSync(tools.kernel), readFileSync(tools.initramfs)];
  const digests = { kernel: hash(kernel), initramfs: hash(initramfs) };
  const key = hash(JSON.stringify([MACHINE_FORMAT, qemu, digests])).slice(0, KEY_LENGTH);
  return { key, qemu, kernel, initramfs, digests };
}

function hash(content: Buffer | string): string {
  return createHash('sha256').update(content).digest('hex');
}

export async function nameVersions(
  qemuPath: string,
  { kernel, digests }: MachineParts,
): Promise<MachineRecord['versions']> {
  const [line = ''] = (await runCommand(qemuPath, ['--version'], TOOL_TIMEOUT_MS)).split('\n');
  return {
    qemu: line.replace(/^QEMU emulator version /u, ''),
    kernel: findKernelRelease(kernel) ?? digests.kernel.slice(0, SHORT_DIGEST_LENGTH),
    agent: digests.initramfs.slice(0, SHORT_DIGEST_LENGTH),
  };
}

/** From Linux's boot protocol for x86: a signature, and a pointer to a text that begins with the release. */
const SIGNATURE = { offset: 0x202, text: 'HdrS' };
const VERSION_POINTER = { offset: 0x20e, base: 0x200 };

function findKernelRelease(kernel: Buffer): string | undefined {
  const { offset, text } = SIGNATURE;
  if (kernel.toString('latin1', offset, offset + text.length) !== text) return undefined;
  const start = kernel.readUInt16LE(VERSION_POINTER.offset) + VERSION_POINTER.base;
  return /^[\w.+~-]+/u.exec(kernel.toString('latin1', start, start + 256))?.[0];
}
